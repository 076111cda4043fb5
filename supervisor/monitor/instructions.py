"""What the decision core tells the shell to do."""

from __future__ import annotations

import msgspec

from unknot.supervisor.incidents import Incident


class AskRound(msgspec.Struct, frozen=True):
    """Ask the publishers of `sources` for their tickets, under `round_id`. The same round may be asked again."""

    sources: tuple[str, ...]
    round_id: int


class Put(msgspec.Struct, frozen=True):
    """Write the incident; with `alert`, tell the receivers too."""

    incident: Incident
    alert: bool = False


class CollectStacks(msgspec.Struct, frozen=True, kw_only=True):
    """Have each source send its stacks, under one key per source."""

    incident: str
    keys: dict[str, str]


class InterruptWait(msgspec.Struct, frozen=True, kw_only=True):
    """End one wait, if it is still that very one."""

    key: str
    incident: str
    participant: str
    ticket: int


class BreakGroup(msgspec.Struct, frozen=True, kw_only=True):
    """End a group's generation: the mark in the store first, then each source shuts its sockets, under one key each."""

    incident: str
    group: str
    generation: int
    reason: str
    keys: dict[str, str]


class RestartMember(msgspec.Struct, frozen=True, kw_only=True):
    """Have the driver replace the process of a member, if it finds it stopped."""

    key: str
    incident: str
    driver: str
    member: str
    reason: str


Instruction = AskRound | Put | CollectStacks | InterruptWait | BreakGroup | RestartMember
