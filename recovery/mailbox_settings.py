"""How a mailbox is declared, and which declarations cannot be."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import msgspec

from unknot.graph.ids import is_pattern
from unknot.recovery.errors import ConfigError
from unknot.recovery.member_patterns import member_patterns
from unknot.recovery.registration import check_member
from unknot.recovery.values import choice, shown, whole

DEFAULT_CAPACITY = 1024
Ack = Literal["step", "manifest"]
Order = Literal["arrival", "origin"]


class MailboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a mailbox is declared. `senders`, `receivers`: patterns of members, None: anybody; `origins`: with order `origin` alone."""

    capacity: int = DEFAULT_CAPACITY
    senders: tuple[str, ...] | None = None
    receivers: tuple[str, ...] | None = None
    ack: Ack = "step"
    order: Order = "arrival"
    origins: tuple[str, ...] | None = None


def settings_of(
    mailbox: str, *, capacity: Any, senders: Any, receivers: Any, ack: Any, order: Any, origins: Any
) -> MailboxSettings:
    """What `Mailbox.declare` was given, as values; arguments as there. ConfigError: no mailbox can be like that."""
    begin = f"mailbox {mailbox}: "
    return MailboxSettings(
        capacity=whole(capacity, name=f"{begin}capacity", least=1),
        senders=member_patterns(senders, name=f"{begin}senders"),
        receivers=member_patterns(receivers, name=f"{begin}receivers"),
        ack=cast("Ack", choice(ack, get_args(Ack), name=f"{begin}ack")),
        order=cast("Order", choice(order, get_args(Order), name=f"{begin}order")),
        origins=_origins(origins, order, name=f"{begin}origins"),
    )


def _origins(given: Any, order: Any, *, name: str) -> tuple[str, ...] | None:
    if given is not None and not isinstance(given, list | tuple):
        raise ConfigError(what=f"{name}={shown(given)} is no list of member names", todo="give a list of members, in order")
    if (order == "origin") != bool(given):
        raise ConfigError(
            what=f"{name}={shown(given)} with order={order!r}",
            todo="with order='origin' name the members that items come from first, in the order of their turns; else none",
        )
    if not given:
        return None
    for origin in given:
        if isinstance(origin, str) and is_pattern(origin):
            raise ConfigError(what=f"{name}: {origin!r} is a pattern", todo="name each member, in the order of their turns")
        check_member(origin)
    twice = [origin for place, origin in enumerate(given) if origin in given[:place]]
    if twice:
        raise ConfigError(what=f"{name}: {twice[0]} stands there twice", todo="name each once")
    return tuple(given)
