"""The settings of one run: one frozen struct, and where each value came from.

Order: explicit argument, then `SUPERVISOR_*` in the environment, then supervisor.toml or `[tool.supervisor]`
in the nearest pyproject.toml, then the default. A key that nobody knows is an error in a file or an argument,
since a misspelt time-out that is silently ignored is found at three in the morning; in the environment it is
only a warning, since other software (supervisord) may own names of that form. The signing secret comes from
the environment or a file of its own only, so that it can never be committed together with the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote, urlsplit

import msgspec

from unknot.recovery.abandoned import Policy
from unknot.recovery.errors import ConfigError
from unknot.recovery.manifest import DEFAULT_KEEP
from unknot.recovery.values import COUNT_LIMIT, shown, suggestion
from unknot.recovery.weights import VERSIONS_KEPT
from unknot.supervisor.config_sources import PREFIX, Source, find_file, read_env, read_file
from unknot.supervisor.config_values import Secret, check_host, mask_url, read_count, read_path, read_seconds

Rung = Literal["alert", "interrupt", "break"]
OnSilent = Literal["alert", "restart"]
LogLevel = Literal["debug", "info", "warning", "error"]
ORIGIN_DEFAULT = "default"
ORIGIN_ARGUMENT = "argument"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Durations are seconds.

    redis: address of Redis; None starts one for the run. run_dir: where a started Redis and the run's files
    live. publish_every_s: how often a process looks at its wait table. publish_after_s: waits shorter than
    this are not told. heartbeat_s, lease_s: how often a member says it lives, and after which silence it
    counts as dead. answer_limit_s: how long a collection round waits for a publisher before it is
    `unresponsive`. confirm_hold_s: how long a component is left alone after a remedy. leader_lease_s: when
    another monitor takes over. slow_after_s, external_after_s: from which age a wait for a running member or
    an outside party is an incident. livelock_after_s: from which time without progress a member that runs is
    one. on_deadlock: the highest rung of the remedy ladder that may be used.
    on_silent: whether a member whose process is stopped is replaced (`restart`), or only told of (`alert`).
    webhook_url, webhook_secret_file, webhook_secret: where alerts go, and what signs them. store_limit_s: how
    long a call waits for Redis before it fails. checkpoints_keep: how many whole checkpoints of the run are kept.
    seed: of the run; each step's seed follows from it. weights_kept: how many versions of published weights stay.
    manifest_items_limit: how many items a trainer group may have taken since its last manifest. on_abandoned: what
    becomes of items made with weights that a roll-back made void.
    """

    redis: str | None = None
    run_dir: str | None = None
    publish_every_s: float = 0.05
    publish_after_s: float = 0.05
    heartbeat_s: float = 1.0
    lease_s: float = 5.0
    answer_limit_s: float = 2.0
    confirm_hold_s: float = 2.0
    leader_lease_s: float = 3.0
    slow_after_s: float = 120.0
    livelock_after_s: float = 600.0
    external_after_s: float = 30.0
    on_deadlock: Rung = "break"
    on_silent: OnSilent = "restart"
    webhook_url: str | None = None
    webhook_secret: Secret | None = None
    webhook_secret_file: str | None = None
    log_level: LogLevel = "info"
    store_limit_s: float = 10.0
    checkpoints_keep: int = DEFAULT_KEEP
    seed: int = 0
    weights_kept: int = VERSIONS_KEPT
    manifest_items_limit: int = 10_000
    on_abandoned: Policy = "keep"

    def for_workers(self) -> Config:
        """The same without what only a monitor needs: where alerts go, and the secret."""
        return msgspec.structs.replace(self, webhook_url=None, webhook_secret=None, webhook_secret_file=None)


class EffectiveConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What holds, the origin of each key, and warnings to show once on stderr."""

    config: Config
    origins: dict[str, str]
    warnings: tuple[str, ...] = ()


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it may be shown: secrets and passwords are masked."""

    key: str
    value: str | float | None
    origin: str


KEYS: tuple[str, ...] = Config.__struct_fields__
_PATHS = ("run_dir", "webhook_secret_file")
_CHOICES = {
    "on_deadlock": get_args(Rung), "on_silent": get_args(OnSilent), "log_level": get_args(LogLevel),
    "on_abandoned": get_args(Policy),
}  # fmt: skip
# Whole numbers, and the smallest that each may be.
_COUNTS = {"checkpoints_keep": 1, "seed": 0, "weights_kept": 1, "manifest_items_limit": 1}
_MOST = {"seed": 2**63 - 1}
# Below these a process would do little else than keep the time, or lose a lease whenever it is not scheduled at once.
_LEAST_S = {"heartbeat_s": 0.05, "lease_s": 0.1, "leader_lease_s": 0.1}
_LEAST_OF_OTHERS_S = 0.001


def load_config(
    explicit: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    *,
    file: Path | None = None,
) -> EffectiveConfig:
    """The settings that hold, merged from all sources.

    `explicit`: arguments of the call; None values count as not given. `env`: the environment to read, none
    when absent. `cwd`: where the search for a file starts; no search when absent. `file`: this file instead
    of a search. Raises ConfigError for a key or value that cannot be used.
    """
    sources, warnings = _sources(explicit or {}, env or {}, cwd, file)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, ORIGIN_DEFAULT)
    for source in sources:
        read = _read_source(source)
        values.update(read)
        origins.update({key: _origin(source, key) for key in read})
        if "webhook_secret_file" in read:
            values["webhook_secret"] = _secret_in_file(read["webhook_secret_file"], _named(source, "webhook_secret_file"))
            origins["webhook_secret"] = f"{_origin(source, 'webhook_secret_file')} (webhook_secret_file)"
    config = Config(**values)
    _check_together(config, origins)
    return EffectiveConfig(config=config, origins=origins, warnings=warnings)


def secret_of(config: Config, env: Mapping[str, str]) -> Secret | None:
    """The signing secret; where `config` came from another process without it, read again from its source.

    Raises ConfigError for a file that cannot be read.
    """
    if config.webhook_secret is not None and config.webhook_secret.reveal():
        return config.webhook_secret
    if config.webhook_secret_file is not None:
        return _secret_in_file(config.webhook_secret_file, "webhook_secret_file")
    text = env.get(f"{PREFIX}WEBHOOK_SECRET", "").strip()
    return Secret.of(text) if text else None


def settings(effective: EffectiveConfig) -> tuple[Setting, ...]:
    """Every setting with its origin, safe to show."""
    return tuple(
        Setting(key=key, value=_shown(getattr(effective.config, key)), origin=effective.origins[key])
        for key in KEYS
    )


def _sources(
    explicit: Mapping[str, Any], env: Mapping[str, str], cwd: Path | None, file: Path | None
) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """Weakest first."""
    given = {key: value for key, value in explicit.items() if value is not None}
    argument = Source(where=ORIGIN_ARGUMENT, values=given, names={key: key for key in given}, folder=cwd)
    environment, warnings = read_env(env, KEYS)
    if file is not None:
        found = read_file(file)
        if found is None:
            raise ConfigError(
                what=f"{file} has no [tool.supervisor]", todo="add that table or name another file"
            )
    else:
        found = find_file(cwd) if cwd is not None else None
    return tuple(source for source in (found, environment, argument) if source is not None), warnings


def _origin(source: Source, key: str) -> str:
    return f"{source.where} {source.names[key]}" if source.where == "environment" else source.where


def _read_source(source: Source) -> dict[str, Any]:
    for key in source.values:
        if key not in KEYS:
            raise ConfigError(
                what=f"unknown setting {key!r} in {_place(source)}{suggestion(str(key), KEYS)}",
                todo="see `supervisor config` for all settings",
            )
    if "webhook_secret" in source.values:
        _check_secret_place(source)
    return {key: _read_value(source, key) for key in source.values}


def _place(source: Source) -> str:
    return "the arguments" if source.where == ORIGIN_ARGUMENT else source.where


def _named(source: Source, key: str) -> str:
    """A key as messages begin: as the user wrote it, in a file after the file's name."""
    name = source.names[key]
    return name if source.where in (ORIGIN_ARGUMENT, "environment") else f"{source.where}: {name}"


def _check_secret_place(source: Source) -> None:
    if source.where != "environment":
        raise ConfigError(
            what=f"webhook_secret cannot stand in {_place(source)}",
            todo=f"set {PREFIX}WEBHOOK_SECRET, or webhook_secret_file to a file that holds it",
        )
    if "webhook_secret_file" in source.values:
        raise ConfigError(
            what=f"both {PREFIX}WEBHOOK_SECRET and {PREFIX}WEBHOOK_SECRET_FILE are set",
            todo="keep one of the two",
        )


def _read_value(source: Source, key: str) -> Any:
    value = source.values[key]
    name = _named(source, key)
    if key.endswith("_s"):
        return read_seconds(value, name=name, least_s=_LEAST_S.get(key, _LEAST_OF_OTHERS_S))
    if key in _COUNTS:
        return read_count(value, name=name, least=_COUNTS[key], most=_MOST.get(key, COUNT_LIMIT))
    if key == "webhook_secret":
        return Secret.of(str(value).strip())
    if not isinstance(value, str):
        raise ConfigError(what=f"{name} = {shown(value)} is not a text", todo="write it in quotes")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise ConfigError(
            what=f"{name} = {shown(value)} is unknown{suggestion(value, _CHOICES[key])}",
            todo=f"choose one of {', '.join(_CHOICES[key])}",
        )
    if key in ("webhook_url", "redis"):
        _check_url(key, value, name=name)
    return _path(value, source.folder, name=name) if key in _PATHS else value


def _path(text: str, folder: Path | None, *, name: str) -> str:
    path = read_path(text, name=name)
    return str(path if folder is None else folder / path)


_SCHEMES = {"webhook_url": ("http", "https"), "redis": ("redis", "rediss", "unix")}


def _check_url(key: str, value: str, *, name: str) -> None:
    try:
        parts = urlsplit(value)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        # The parser's own message can quote a part of the password, so it is dropped, not chained.
        raise ConfigError(
            what=f"{name} is not an address", todo="write scheme://host:port…, and '#', '/', '?' of a password as %23, %2F, %3F"
        ) from None
    scheme = parts.scheme
    if scheme not in _SCHEMES[key]:
        forms = " or ".join(f"{one}://…" for one in _SCHEMES[key])
        raise ConfigError(what=f"{name} has the scheme {scheme!r}", todo=f"write {forms}")
    if scheme != "unix" and not has_host:
        raise ConfigError(what=f"{name} names no host", todo=f"write {scheme}://host…")
    if scheme != "unix":
        check_host(unquote(parts.hostname or ""), name=name)


def _secret_in_file(path: str, name: str) -> Secret:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            what=f"{name} {path} cannot be read ({type(error).__name__})", todo="mend the path or its rights"
        ) from error
    if not text:
        raise ConfigError(what=f"{name} {path} is empty", todo="write the secret (whsec_…) into it")
    return Secret.of(text)


def _check_together(config: Config, origins: Mapping[str, str]) -> None:
    if config.lease_s <= config.heartbeat_s:
        raise ConfigError(
            what=f"lease_s = {config.lease_s:g} ({origins['lease_s']}) is not above "
            f"heartbeat_s = {config.heartbeat_s:g} ({origins['heartbeat_s']})",
            todo="make lease_s at least twice heartbeat_s, or every member counts as dead",
        )


def _shown(value: Any) -> str | float | None:
    if isinstance(value, Secret):
        return "***"
    if isinstance(value, str) and "://" in value:
        return mask_url(value)
    shown: str | float | None = value
    return shown
