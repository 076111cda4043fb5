"""What `run.spawn` and `run.group` refuse of a class, its arguments and its options, before Ray is asked for anything."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest
import ray

import unknot
from unknot.integrations.ray.asked import Made, check_made, check_own_name, check_size


@ray.remote
@unknot.agent
class Fit:
    """An agent that can be started."""

    def __init__(self, tool: str, *, tries: int = 3) -> None:
        self.tool, self.tries = tool, tries

    def run(self) -> None: ...


@ray.remote
@unknot.trainer
class Rank:
    """A rank that can be started."""

    def setup(self, group: Any) -> None: ...

    def run(self) -> None: ...


@ray.remote
@unknot.environment
class Idle:
    """Is there to be called."""


class Named:
    """Has a run that is entered as it stands."""

    @staticmethod
    def run() -> None: ...


def refusal(cls: Any, *args: Any, options: Any = None, call: str = "run.spawn", **kwargs: Any) -> str:
    with pytest.raises(unknot.ConfigError) as caught:
        check_made(Made(cls, args, kwargs, options), call)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_what_fits_is_taken() -> None:
    assert check_made(Made(Fit, ("search",), {"tries": 1}, {"num_cpus": 1}), "run.spawn").role == "agent"
    assert check_made(Made(Rank, (), {}, None), "run.group").role == "trainer"
    assert check_made(Made(Idle, (), {}, {"runtime_env": {"env_vars": {"A": "1"}}}), "run.spawn").role == "environment"


@pytest.mark.parametrize("thing", ["x", 5, None, object, ray.remote])
def test_what_is_no_member_class_is_refused_with_the_line_to_add(thing: Any) -> None:
    assert "has no role; decorate the class with @unknot.agent" in refusal(thing)


def test_an_instance_of_a_member_class_is_refused() -> None:
    @unknot.environment
    class Plain:
        pass

    assert "was given an instance; put @ray.remote above" in refusal(Plain())
    assert "was given the plain class Plain; put @ray.remote above" in refusal(Plain)


def test_arguments_that_the_constructor_does_not_take_are_refused_with_what_it_takes() -> None:
    assert "missing a required argument: 'tool'" in refusal(Fit)
    assert "unexpected keyword argument 'tires'" in refusal(Fit, "search", tires=2)
    assert "too many positional arguments" in refusal(Fit, "a", "b")
    assert refusal(Fit).endswith("; it is Fit(tool: 'str', *, tries: 'int' = 3)")
    assert "too many positional arguments" in refusal(Idle, 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_cpuss": 1}, "Ray has no option 'num_cpuss' for actors (did you mean num_cpus?); give options that ray.remote takes"),
        ({"wings": 2}, "Ray has no option 'wings' for actors; give options that ray.remote takes"),
        ({"num_cpus": "many"}, "Ray refuses ray={'num_cpus': 'many'}"),
        ({"num_gpus": -1}, "Ray refuses ray={'num_gpus': -1}"),
        ({"runtime_env": 5}, "runtime_env=5 is none; give a dict"),
        ({"runtime_env": {"env_vars": ["A"]}}, "is none; give a dict"),
        (5, "ray=5 are no options; give a dict"),
        ("num_cpus", "ray='num_cpus' are no options"),
        ({1: 2}, "ray={1: 2} are no options"),
    ],
)
def test_options_that_ray_does_not_take_are_refused(options: Mapping[str, Any], told: str) -> None:
    assert told in refusal(Idle, options=options)


def test_a_trainer_without_setup_and_an_agent_or_judge_without_run_are_refused() -> None:
    class Nothing:
        pass

    class OnlySetup:
        def setup(self, group: Any) -> None: ...

    def made(decorator: Any, plain: type) -> Any:
        return ray.remote(decorator(type(plain.__name__, (plain,), {})))

    without = refusal(made(unknot.trainer, Nothing), call="run.group")
    assert without == "Nothing has no setup(), which Unknot enters in every trainer; add def setup(self, group)"
    assert check_made(Made(made(unknot.trainer, OnlySetup), (), {}, None), "run.group").role == "trainer"
    for decorator in (unknot.agent, unknot.judge):
        assert "Nothing has no run()" in refusal(made(decorator, Nothing))
    for idle in (unknot.environment, unknot.member(role="cache")):
        check_made(Made(made(idle, Nothing), (), {}, None), "run.spawn")


def test_methods_that_cannot_be_entered_are_refused() -> None:
    @ray.remote
    @unknot.agent
    class Asynchronous:
        async def run(self) -> None: ...

    @ray.remote
    @unknot.agent
    class Demanding:
        def run(self, steps: int) -> None: ...

    @ray.remote
    @unknot.trainer
    class Groupless:
        def setup(self) -> None: ...

        def run(self) -> None: ...

    @ray.remote
    @unknot.agent
    class Grouped:
        def setup(self, group: Any) -> None: ...

        def run(self) -> None: ...

    @ray.remote
    @unknot.agent
    class Shadowed:
        run = 100

    @ray.remote
    @unknot.agent
    class Inherited(Named):
        setup = functools.partial(print, "ready")

    check_made(Made(Inherited, (), {}, None), "run.spawn")
    assert "Shadowed.run cannot be entered (it is 100); make it def run(self)" in refusal(Shadowed)
    assert "Asynchronous.run is async, and Unknot does not await it; make it def run(self)" in refusal(Asynchronous)
    assert "Demanding.run cannot be entered (missing a required argument: 'steps')" in refusal(Demanding)
    groupless = refusal(Groupless, call="run.group")
    assert groupless == "Groupless.setup cannot be entered (too many positional arguments); make it def setup(self, group)"
    assert "Grouped.setup cannot be entered" in refusal(Grouped)


@pytest.mark.parametrize("name", [None, 5, "", "a*", "{x}", "a b", "a/b", "a#1", "a|b", "[a]", "a?", "a\nb", "-a", ".", "x" * 101])
def test_a_name_that_no_member_can_have_is_refused_with_one_that_would_do(name: Any) -> None:
    with pytest.raises(unknot.ConfigError, match=r"run\.spawn: a member cannot have the name .*; use for example name='") as caught:
        check_own_name("run.spawn: a member", name)
    assert "\n" not in str(caught.value)
    proposed = str(caught.value).rpartition("name='")[2].rstrip("'")
    assert check_own_name("run.spawn: a member", proposed) == proposed


@pytest.mark.parametrize("name", ["r0", "expert", "a.b-c_d", "7", "größe"])
def test_other_names_are_taken(name: str) -> None:
    assert check_own_name("run.spawn: a member", name) == name


@pytest.mark.parametrize("size", [0, -1, "2", 1.5, True, None])
def test_a_size_that_no_group_can_have_is_refused(size: Any) -> None:
    with pytest.raises(unknot.ConfigError, match=rf"run\.group: size={size!r} is (not a whole number|too small); give .*at least 1"):
        check_size(size)
