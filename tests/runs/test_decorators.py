"""What the decorators do to a class, and what they refuse."""

from __future__ import annotations

import inspect
import pickle

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
    with pytest.raises(TypeError, match=r"@unknot\.trainer has no option 'gruop'; did you mean 'group'"):
        unknot.trainer(gruop="policy")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"@unknot\.agent has no option 'group'; it takes restart"):
        unknot.agent(group="policy")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"restart=3\) is no policy; give unknot\.permanent"):
        unknot.agent(restart=3)  # type: ignore[call-overload]


def test_ray_remote_below_the_decorator_is_refused_and_the_message_says_to_swap_the_lines() -> None:
    @ray.remote
    class Wrong:
        pass

    with pytest.raises(TypeError, match="swap the two lines"):
        unknot.agent(Wrong)


def test_something_that_is_no_class_is_refused() -> None:
    with pytest.raises(TypeError, match="decorates a class, not function"):
        unknot.agent(lambda: None)  # type: ignore[call-overload]


def test_decorating_twice_is_decorating_once() -> None:
    joined = Plain.__init__
    assert unknot.agent(Plain) is Plain
    assert Plain.__init__ is joined
