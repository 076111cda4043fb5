"""What the supervisor asks of waits that stand in the store: do they really stand, and end this one."""

from __future__ import annotations

from collections.abc import Iterable

from unknot.recovery.answers import ask
from unknot.recovery.errors import LeaseLost
from unknot.recovery.ports import Store


def standing(store: Store, waits: Iterable[tuple[str, int]]) -> dict[tuple[str, int], bool]:
    """Which of these (participant, ticket) stand in a queue of the store, all seen at one instant.

    A wait that was served, but whose thread has not woken yet, does not stand any more.
    """
    asked = tuple(waits)
    if not asked:
        return {}
    entries = [f"{participant}|{ticket}" for participant, ticket in asked]
    answers = store.script("standing", [store.key()], entries)
    return {wait: bool(answer) for wait, answer in zip(asked, answers, strict=True)}


def interrupt(store: Store, participant: str, ticket: int, *, incident: str, leader_token: int | None = None) -> bool:
    """End that very wait: its thread gets DeadlockInterrupted. False when the wait no longer stands. Twice is once.

    Args:
        store: of the run.
        participant: who waits.
        ticket: of the wait; a later wait of the same thread is never hit.
        incident: id, for the error and the record.
        leader_token: of the monitor that decided it.

    Raises:
        LeaseLost: another monitor leads.
    """
    incarnation = participant.partition("#")[2].partition("/")[0]
    token = "" if leader_token is None else leader_token
    answer = ask(store, "interrupt", participant, incarnation, ticket, incident, token)
    if answer.word == "stale":
        raise LeaseLost(what="the lead", holder=f"token {answer.text()}")
    return answer.word == "interrupted"
