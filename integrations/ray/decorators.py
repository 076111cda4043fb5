"""`@unknot.trainer`, `@unknot.agent`, `@unknot.judge`, `@unknot.environment`, `@unknot.member`.

A decorator leaves the class a class: same name, same signature, same pickling. It adds what the role is, joins the run before the
class' own `__init__` (registration comes before user code, also when Ray runs the constructor again), and gives it the one
method that the run calls. Outside a run the class is what it was.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

from unknot.recovery.errors import ConfigError
from unknot.recovery.restart import KINDS, RestartPolicy
from unknot.recovery.values import shown, suggestion
from unknot.supervisor.process import WORKER_ENV

C = TypeVar("C", bound=type)

SPEC = "__unknot_spec__"
MAIN = "unknot_main"
_RESTART = RestartPolicy()
_OWN_ROLES = ("trainer", "agent", "judge", "environment")
_POLICIES = tuple(f"unknot.{kind}()" for kind in KINDS)
_NAME = re.compile(r"\w[\w.-]{0,99}")


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
        TypeError: an unknown option, a `restart` that is no policy, something that is no plain class (put `@ray.remote`
            outside), or a class that has another of these decorators.
        ConfigError: `group` cannot name a group.
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

    Raises:
        TypeError: as `trainer`.
        ConfigError: `role` cannot name a role, or belongs to another decorator.
    """
    return _decorate(cls, None, options, {"role": "member", "restart": _RESTART})


def _decorate(cls: Any, role: str | None, options: dict[str, Any], known: dict[str, Any]) -> Any:
    decorator = f"@unknot.{role or 'member'}"
    for name in options:
        if name not in known:
            takes = f"it takes {', '.join(sorted(known))}"
            raise TypeError(f"{decorator} has no option {name!r}{suggestion(name, known)}; {takes}")
    values = {**known, **options}
    _check_restart(decorator, values["restart"])
    for option in ("role", "group"):
        if option in values:
            _check_name(decorator, option, values[option])
    spec = Spec(role=role or values["role"], group=values.get("group"), restart=values["restart"])
    if cls is None:
        return lambda wrapped: _attach(wrapped, spec)
    return _attach(cls, spec)


def _check_restart(decorator: str, given: Any) -> None:
    if isinstance(given, RestartPolicy):
        return
    word = getattr(given, "__name__", given)
    near = suggestion(f"unknot.{word}()", _POLICIES) if isinstance(word, str) else ""
    raise TypeError(f"{decorator}(restart={shown(given)}) is no policy{near}; give {', '.join(_POLICIES[:-1])} or {_POLICIES[-1]}")


def _check_name(decorator: str, option: str, given: Any) -> None:
    """A role and a group's name stand in names of members, in keys of Redis and in patterns."""
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise ConfigError(
            what=f"{decorator}({option}={shown(given)}) cannot name a {option}",
            todo="use letters, digits, '_', '.' and '-', up to 100, the first no sign",
        )
    if option == "role" and given in (*_OWN_ROLES, "driver"):
        raise ConfigError(
            what=f"{decorator}(role={given!r}) is another's role",
            todo="the driver has it: choose another" if given == "driver" else f"decorate with @unknot.{given}, or choose another",
        )


def _written(spec: Spec) -> str:
    """The decorator of a spec, as its user wrote it."""
    own = spec.role in _OWN_ROLES
    options = {
        "role": spec.role if not own and spec.role != "member" else None,
        "group": spec.group if spec.group != "policy" else None,
        "restart": f"unknot.{spec.restart.kind}(…)" if spec.restart != _RESTART else None,
    }
    given = ", ".join(f"{name}={value}" for name, value in options.items() if value is not None)
    return f"@unknot.{spec.role if own else 'member'}" + (f"({given})" if given else "")


def _attach(cls: Any, spec: Spec) -> Any:
    decorator = _written(spec).partition("(")[0]
    if not inspect.isclass(cls):
        if hasattr(cls, "__ray_metadata__") or type(cls).__name__.startswith("ActorClass"):
            raise TypeError(
                f"{decorator} stands outside of @ray.remote; swap the two lines: @ray.remote first, {decorator} below it"
            )
        raise TypeError(
            f"{decorator} decorates a class, not {type(cls).__name__} {shown(cls)}; put it above a class with a method run(), "
            "and give options by name"
        )
    standing = cls.__dict__.get(SPEC)
    if standing is not None and standing != spec:
        raise TypeError(f"class {cls.__name__} has {_written(standing)} and {_written(spec)}; keep one of the two")
    if standing is not None:
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
