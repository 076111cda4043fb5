"""`@unknot.trainer`, `@unknot.agent`, `@unknot.judge`, `@unknot.environment`, `@unknot.member`.

A decorator leaves the class a class: same name, same signature, same pickling. It adds what the role is, joins the run before the
class' own `__init__` (registration comes before user code, also when Ray runs the constructor again), and gives it the one
method that the run calls. Outside a run the class is what it was.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

from unknot.recovery.restart import RestartPolicy
from unknot.supervisor.process import WORKER_ENV

C = TypeVar("C", bound=type)

SPEC = "__unknot_spec__"
MAIN = "unknot_main"
_RESTART = RestartPolicy()


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a decorator said of a class."""

    role: str
    group: str | None = None
    restart: RestartPolicy = RestartPolicy()


@overload
def trainer(cls: C) -> C: ...
@overload
def trainer(*, group: str = "policy", restart: RestartPolicy = ...) -> Callable[[C], C]: ...
def trainer(cls: type | None = None, **options: Any) -> Any:
    """A rank of a collective group: `setup(group)` and `run()` are entered by Unknot in each generation.

    Args:
        cls: the class, when used bare.
        group: the group's name, "policy" unless given.
        restart: when its process is started again; `unknot.transient()` unless given.

    Raises:
        TypeError: an unknown option, or something that is no plain class (put `@ray.remote` outside).
    """
    return _decorate(cls, "trainer", options, {"group": "policy", "restart": _RESTART})


@overload
def agent(cls: C) -> C: ...
@overload
def agent(*, restart: RestartPolicy = ...) -> Callable[[C], C]: ...
def agent(cls: type | None = None, **options: Any) -> Any:
    """A rollout agent: `setup()` if it has one, then `run()`, entered by Unknot. `restart` and errors as `trainer`."""
    return _decorate(cls, "agent", options, {"restart": _RESTART})


@overload
def judge(cls: C) -> C: ...
@overload
def judge(*, restart: RestartPolicy = ...) -> Callable[[C], C]: ...
def judge(cls: type | None = None, **options: Any) -> Any:
    """A judge or reward model; as `agent`."""
    return _decorate(cls, "judge", options, {"restart": _RESTART})


@overload
def environment(cls: C) -> C: ...
@overload
def environment(*, restart: RestartPolicy = ...) -> Callable[[C], C]: ...
def environment(cls: type | None = None, **options: Any) -> Any:
    """An environment simulator; its methods are called by agents, so it may have no `run()`."""
    return _decorate(cls, "environment", options, {"restart": _RESTART})


@overload
def member(cls: C) -> C: ...
@overload
def member(*, role: str, restart: RestartPolicy = ...) -> Callable[[C], C]: ...
def member(cls: type | None = None, **options: Any) -> Any:
    """A member of any other role.

    Args:
        cls: the class, when used bare.
        role: the role, "member" unless given.
        restart: as `trainer`.
    """
    return _decorate(cls, None, options, {"role": "member", "restart": _RESTART})


def _decorate(cls: Any, role: str | None, options: dict[str, Any], known: dict[str, Any]) -> Any:
    for name in options:
        if name not in known:
            raise TypeError(_unknown_option(role or "member", name, known))
    values = {**known, **options}
    if not isinstance(values["restart"], RestartPolicy):
        raise TypeError(
            f"@unknot.{role or 'member'}(restart={values['restart']!r}) is no policy; give unknot.permanent(), "
            "unknot.transient() or unknot.temporary()"
        )
    spec = Spec(role=role or str(values["role"]), group=values.get("group"), restart=values["restart"])
    if cls is None:
        return lambda wrapped: _attach(wrapped, spec)
    return _attach(cls, spec)


def _unknown_option(role: str, name: str, known: dict[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    takes = f"it takes {', '.join(sorted(known))}" if known else "it takes no options"
    return f"@unknot.{role} has no option {name!r}; {f'did you mean {near[0]!r}?' if near else takes}"


def _attach(cls: Any, spec: Spec) -> Any:
    if not inspect.isclass(cls):
        if hasattr(cls, "__ray_metadata__") or type(cls).__name__.startswith("ActorClass"):
            raise TypeError(
                f"@unknot.{spec.role} stands outside of @ray.remote; swap the two lines: "
                f"@ray.remote first, @unknot.{spec.role} below it"
            )
        raise TypeError(f"@unknot.{spec.role} decorates a class, not {type(cls).__name__} {cls!r}")
    if SPEC in cls.__dict__:
        return cls
    setattr(cls, SPEC, spec)
    setattr(cls, "__init__", _joining_init(cls.__init__))  # noqa: B010 - mypy forbids the plain form
    setattr(cls, MAIN, _main)
    return cls


def _joining_init(init: Callable[..., None]) -> Callable[..., None]:
    if init is object.__init__:  # Ray looks into what is wrapped, and a slot of C has no signature
        return _join_only

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        _join()
        init(self, *args, **kwargs)

    return __init__


def _join_only(self: Any) -> None:  # noqa: ARG001 - it stands in for __init__
    _join()


def _join() -> None:
    if WORKER_ENV in os.environ:
        from unknot.integrations.ray.host import join_as_actor

        join_as_actor()


def _main(self: Any) -> str:
    """What the run calls: enters the member's code and returns how it ended."""
    from unknot.integrations.ray.host import enter

    return enter(self)


def spec_of(actor_class: Any) -> Spec | None:
    """The spec of a class, or of the class inside a Ray actor class."""
    metadata = getattr(actor_class, "__ray_metadata__", None)
    inner = metadata.modified_class if metadata is not None else actor_class
    found: Spec | None = getattr(inner, SPEC, None)
    return found
