"""What `run.spawn`, `run.group` and `unknot.init` were asked for, checked before anything is started or registered.

All that can be known here is said here, in the caller's own line: in the actor's process the same mistake would be a failed run.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from unknot.integrations.ray.decorators import Spec, spec_of
from unknot.recovery.errors import ConfigError
from unknot.recovery.restart import RestartPolicy
from unknot.recovery.values import suggestion, whole
from unknot.supervisor import process as processes
from unknot.supervisor.store.location import validate_run_name

# The methods that the run enters, with what it hands to each, by role; other roles may be there to be called.
_ENTERED: dict[str, dict[str, tuple[Any, ...]]] = {
    "trainer": {"setup": ("group",)},  # without a run it serves the driver's calls
    "agent": {"run": ()},
    "judge": {"run": ()},
}
_IF_THERE: dict[str, tuple[Any, ...]] = {"setup": (), "run": ()}
_NAME = re.compile(r"\w[\w.-]{0,99}")
_NOT_IN_NAME = re.compile(r"[^\w.-]+")


class Made(NamedTuple):
    """What a member's actor is made of: its class, the constructor's arguments, further options of Ray."""

    cls: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Mapping[str, Any] | None


def check_made(made: Made, call: str) -> Spec:
    """The spec of a class that the run can start so. ConfigError says what about it, its arguments or its options cannot be."""
    spec = _spec(made.cls, call)
    if call == "run.group" and spec.group is None:
        raise ConfigError(
            what=f"run.group takes a class decorated with @unknot.trainer, this one is a {spec.role}", todo="use run.spawn for it"
        )
    if call == "run.spawn" and spec.group is not None:
        raise ConfigError(what="run.spawn of a trainer", todo="use run.group(cls, size=...)")
    inner = made.cls.__ray_metadata__.modified_class
    entered = _ENTERED.get(spec.role, {})
    for method, handed in {**_IF_THERE, **entered}.items():
        _check_method(inner, method, handed, needed_by=spec.role if method in entered else None)
    _check_arguments(inner, made, call)
    options = _checked_options(made.options, call)
    try:
        made.cls.options(**ray_options(options, {}, spec.restart))
    except Exception as error:  # whatever Ray has against them is the caller's to mend
        raise ConfigError(
            what=f"{call}: Ray refuses ray={dict(options)!r} ({_one_line(error)})", todo="give options that ray.remote takes"
        ) from error
    return spec


def _spec(cls: Any, call: str) -> Spec:
    spec = spec_of(cls)
    if spec is None:
        raise ConfigError(
            what=f"{call} was given {getattr(cls, '__name__', cls)!r}, which has no role",
            todo="decorate the class with @unknot.agent, @unknot.judge, @unknot.environment or @unknot.trainer",
        )
    if not hasattr(cls, "__ray_metadata__"):
        raise ConfigError(
            what=f"{call} was given {'the plain class ' + cls.__name__ if inspect.isclass(cls) else 'an instance'}",
            todo="put @ray.remote above the Unknot decorator, and give the class",
        )
    return spec


def _check_method(inner: type, method: str, handed: tuple[Any, ...], *, needed_by: str | None) -> None:
    found = inspect.getattr_static(inner, method, None)
    form = f"def {method}({', '.join(('self', *handed))})"
    if found is None:
        if needed_by is not None:
            raise ConfigError(
                what=f"{inner.__name__} has no {method}(), which Unknot enters in every {needed_by}",
                todo=f"add {form}",
            )
        return
    if inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found):
        raise ConfigError(what=f"{inner.__name__}.{method} is async, and Unknot does not await it", todo=f"make it {form}")
    # What else may stand there (a partial, a compiled method) knows best itself what it takes.
    misfit = _misfit(found, (None, *handed), {}) if inspect.isfunction(found) else None
    if isinstance(found, str | int | float | bool | Mapping | list | type(None)):
        misfit = f"it is {found!r}"
    if misfit is not None:
        raise ConfigError(what=f"{inner.__name__}.{method} cannot be entered ({misfit})", todo=f"make it {form}")


def _check_arguments(inner: type, made: Made, call: str) -> None:
    misfit = _misfit(inner.__init__, (None, *made.args), made.kwargs)  # type: ignore[misc]
    if misfit is not None:
        raise ConfigError(
            what=f"{call}: the constructor of {inner.__name__} cannot take these arguments ({misfit})",
            todo=f"it is {inner.__name__}{_signature(inner)}",
        )


def _misfit(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Why a function cannot be called like that; None also where nobody can know."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def _signature(inner: type) -> str:
    parameters = [*inspect.signature(inner.__init__).parameters.values()][1:]  # type: ignore[misc]
    return str(inspect.Signature([one for one in parameters if not one.name.startswith("_ray_")]))


def _checked_options(options: Any, call: str) -> Mapping[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        raise ConfigError(what=f"{call}: ray={options!r} are no options", todo='give a dict, such as ray={"num_cpus": 1}')
    known = _options_of_ray()
    for key in options:
        if known and key not in known:
            raise ConfigError(
                what=f"{call}: Ray has no option {key!r} for actors{suggestion(key, known)}",
                todo="give options that ray.remote takes for actors",
            )
    runtime = options.get("runtime_env") or {}
    if not isinstance(runtime, Mapping) or not isinstance(runtime.get("env_vars") or {}, Mapping):
        raise ConfigError(
            what=f"{call}: ray runtime_env={runtime!r} is none", todo='give a dict, such as {"env_vars": {"NAME": "value"}}'
        )
    return options


def _options_of_ray() -> tuple[str, ...]:
    """The names that Ray knows; none where it keeps them elsewhere: then Ray itself refuses, without a suggestion."""
    for home in ("ray._common.ray_option_utils", "ray._private.ray_option_utils"):
        with suppress(ImportError):
            return tuple(importlib.import_module(home).actor_options)
    return ()


def ray_options(options: Mapping[str, Any] | None, variables: dict[str, str], policy: RestartPolicy) -> dict[str, Any]:
    """Options for Ray; it restarts whom `policy` may want restarted, and how often is for the keeper to say."""
    merged = {"num_cpus": 0, "max_restarts": 0 if policy.kind == "temporary" else -1, **(options or {})}
    runtime = dict(merged.get("runtime_env") or {})
    runtime["env_vars"] = {**(runtime.get("env_vars") or {}), **variables}
    return {**merged, "runtime_env": runtime}


def check_own_name(what: str, name: Any) -> str:
    """`name` if a member or group of members can have it, else ConfigError. `what`: the call and what it names."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    proposal = _NOT_IN_NAME.sub("-", name).strip("-.")[:100] if isinstance(name, str) else ""
    raise ConfigError(
        what=f"{what} cannot have the name {name!r}: letters, digits, '_', '.' and '-' can, up to 100, the first no sign",
        todo=f"use for example name={proposal or 'r0'!r}",
    )


def check_size(size: Any) -> int:
    """`size` if a group can have so many ranks, else ConfigError."""
    return whole(size, name="run.group: size", least=1)


def refused_by_ray(call: str, error: Exception) -> ConfigError:
    """Ray did not make an actor; its own error is told, and nothing of it is left."""
    return ConfigError(
        what=f"{call}: Ray could not start it ({_one_line(error)}), so nothing was started",
        todo="mend that, and start it again under the same name",
    )


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:500]


def checked_init(run: Any, redis: Any, config: Any) -> tuple[str, dict[str, Any]]:
    """The run's name, and the settings that were given. ConfigError for what can be neither."""
    name = time.strftime(f"run-%Y%m%d-%H%M%S-{os.getpid()}") if run is None else run
    if not isinstance(name, str):
        raise ConfigError(what=f"unknot.init(run={run!r}) is no name", todo="give a text, such as unknot.init('ppo-17')")
    if redis is not None and not (isinstance(redis, str) and redis):
        raise ConfigError(
            what=f"unknot.init(redis=) was given {'no text but ' + type(redis).__name__ if redis else 'an empty address'}",
            todo="give redis='redis://HOST:PORT/0', or None to have one started",
        )
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(
            what=f"unknot.init(config={config!r}) are no settings", todo="give a dict, such as config={'slow_after_s': 30}"
        )
    return validate_run_name(name), {**(config or {}), **({} if redis is None else {"redis": redis})}


_open_run: tuple[int, str] | None = None  # by process: a forked child drives nothing
_opening = threading.Lock()


@contextmanager
def only_run(name: str) -> Iterator[None]:
    """The one run that this process drives, while the block lasts: a process has one place in one run.

    Raises:
        ConfigError: another one is open, or this process is a member of one.
    """
    global _open_run
    with _opening:
        member = processes.joined()
        if member is not None:
            raise _not_alone(name, member.settings.run, member)
        if _open_run is not None and _open_run[0] == os.getpid():
            raise _not_alone(name, _open_run[1], None)
        _open_run = os.getpid(), name
    try:
        yield
    finally:
        _open_run = None


def _not_alone(name: str, run: str, member: processes.Process | None) -> ConfigError:
    asked = f"unknot.init({name!r})"
    if member is not None and member.settings.role != "driver":
        return ConfigError(
            what=f"{asked} in {member.source}, a member of run {run}",
            todo="call it in the driver alone; unknot.Lock, unknot.Mailbox and unknot.steps() work in a member as they are",
        )
    return ConfigError(
        what=f"{asked} while run {run} is open in this process, which drives one at a time",
        todo="close that one first: run.close(), or leave its with block",
    )
