"""What the decorators do to a class, and what they refuse."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest
import ray

import unknot
from unknot.integrations.ray.decorators import spec_of


@unknot.agent
class Plain:
    """A class at module level, so that it pickles by reference."""

    def __init__(self, x: int, *, y: str = "a") -> None:
        self.x, self.y = x, y


def test_a_decorated_class_is_the_same_class_with_its_name_its_signature_and_its_pickling() -> None:
    assert inspect.isclass(Plain)
    assert Plain.__name__ == "Plain"
    assert str(inspect.signature(Plain)) == "(x: 'int', *, y: 'str' = 'a') -> 'None'"
    assert pickle.loads(pickle.dumps(Plain)) is Plain
    assert Plain(3, y="b").x == 3


def test_a_decorator_works_bare_and_with_options_and_ray_finds_the_role_in_the_actor_class() -> None:
    @unknot.trainer(group="critic")
    class Rank:
        pass

    @unknot.member(role="cache")
    class Cache:
        pass

    @unknot.judge
    class Judge:
        pass

    found = [spec_of(ray.remote(cls)) for cls in (Rank, Cache, Judge)]
    assert [(spec.role, spec.group) for spec in found if spec is not None] == [
        ("trainer", "critic"),
        ("cache", None),
        ("judge", None),
    ]


def test_an_unknown_option_is_refused_at_decoration_with_a_suggestion() -> None:
    with pytest.raises(TypeError, match=r"@unknot\.trainer has no option 'gruop' \(did you mean group\?\); it takes group, restart"):
        unknot.trainer(gruop="policy")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"@unknot\.agent has no option 'group'; it takes restart"):
        unknot.agent(group="policy")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "restart=3) is no policy; give unknot.permanent(), unknot.transient() or unknot.temporary()"),
        (None, "restart=None) is no policy; give"),
        ("permanet", "restart='permanet') is no policy (did you mean unknot.permanent()?); give"),
        (unknot.transient, "is no policy (did you mean unknot.transient()?); give"),
    ],
)
@pytest.mark.parametrize("decorator", [unknot.trainer, unknot.agent, unknot.judge, unknot.environment, unknot.member])
def test_a_restart_that_is_no_policy_is_refused_at_decoration(decorator: Any, given: object, told: str) -> None:
    with pytest.raises(TypeError) as caught:
        decorator(restart=given)
    assert str(caught.value).startswith(f"@unknot.{decorator.__name__}(restart=")
    assert told in str(caught.value)


@pytest.mark.parametrize("given", [5, None, True, "", " ", "a b", "a/b", "a#1", "a|b", "a*", "..", "a\nb", "x" * 101, ["policy"]])
def test_a_role_or_group_with_a_name_that_cannot_be_is_refused_at_decoration(given: Any) -> None:
    with pytest.raises(unknot.ConfigError, match=r"@unknot\.trainer\(group=.* cannot name a group; use letters, digits"):
        unknot.trainer(group=given)
    with pytest.raises(unknot.ConfigError, match=r"@unknot\.member\(role=.* cannot name a role; use letters, digits") as caught:
        unknot.member(role=given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("role", "told"), [("driver", "the driver has it"), ("trainer", "decorate with @unknot.trainer"), ("agent", "@unknot.agent")]
)
def test_a_role_of_another_decorator_is_refused(role: str, told: str) -> None:
    with pytest.raises(unknot.ConfigError, match=f"is another's role; .*{told}"):
        unknot.member(role=role)


def test_ray_remote_below_the_decorator_is_refused_and_the_message_says_to_swap_the_lines() -> None:
    @ray.remote
    class Wrong:
        pass

    with pytest.raises(TypeError, match="swap the two lines"):
        unknot.agent(Wrong)


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (lambda: None, "not function <function"),
        (len, "not builtin_function_or_method <built-in function len>"),
        (Plain(1), "not Plain <"),
        ("policy", "not str 'policy'"),
    ],
)
def test_something_that_is_no_class_is_refused(thing: Any, told: str) -> None:
    for decorate in (unknot.agent, unknot.agent(restart=unknot.temporary())):
        with pytest.raises(TypeError) as caught:
            decorate(thing)
        assert str(caught.value).startswith(f"@unknot.agent decorates a class, {told}")
        assert str(caught.value).endswith("put it above a class with a method run(), and give options by name")


def test_decorating_twice_alike_is_decorating_once() -> None:
    joined = Plain.__init__
    assert unknot.agent(Plain) is Plain
    assert unknot.agent()(Plain) is Plain
    assert Plain.__init__ is joined


def test_two_different_decorators_on_one_class_are_refused_and_both_are_named() -> None:
    with pytest.raises(TypeError, match=r"class Plain has @unknot\.agent and @unknot\.judge; keep one of the two"):
        unknot.judge(Plain)
    with pytest.raises(TypeError, match=r"has @unknot\.agent and @unknot\.agent\(restart=unknot\.temporary\(…\)\); keep"):
        unknot.agent(restart=unknot.temporary())(Plain)
    with pytest.raises(TypeError, match=r"has @unknot\.trainer\(group=critic\) and @unknot\.member\(role=cache\); keep"):

        @unknot.member(role="cache")
        @unknot.trainer(group="critic")
        class Both:
            pass


def test_a_class_that_inherits_from_a_decorated_one_may_have_another_decorator() -> None:
    @unknot.judge
    class Heir(Plain):
        pass

    found = spec_of(Heir)
    assert found is not None
    assert found.role == "judge"
