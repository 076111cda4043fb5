"""Steps of a trainer: what a re-formed group repeats, and what it does not.

A step's items are received but not acknowledged, and after it the trainer's local state is copied. When a generation ends in the middle
of a step, every rank goes back to the newest copy that all ranks have, acknowledges what was consumed before it, and puts the items of
the repeated steps back. See docs/design.md for why two copies are enough.

This serves ranks that keep their process. Agents, judges and environments use mailboxes directly for now.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol

import msgspec
import torch

from unknot.integrations.torch import carry
from unknot.integrations.torch.group import Group
from unknot.recovery.errors import NotAMember, StepAborted
from unknot.recovery.mailbox import Item, Mailbox
from unknot.supervisor.process import Process

_COPIES_KEPT = 2


class Stateful(Protocol):
    """What a trainer may define so that its state survives a re-form."""

    def state_dict(self) -> Any:
        """Everything a step changes; may hold DTensors."""

    def load_state_dict(self, state: Any) -> None:
        """Take such a state back, its DTensors now on the new group's mesh."""


class _Copy(msgspec.Struct, frozen=True):
    seq: int
    state: Any
    torch_rng: torch.Tensor
    python_rng: Any


class Ledger:
    """A rank's steps: where it stands, its copies of earlier states, and its unacknowledged items."""

    def __init__(self, process: Process, trainer: Any) -> None:
        self.process = process
        self.group: Group | None = None
        self.seq = 0
        self.last_reason = ""
        self._broken_off: Counter[int] = Counter()
        self._entered_first: int | None = None
        self._asked_at = -1
        self._trainer = trainer
        self._copies: list[_Copy] = []
        self._received: list[tuple[int, Mailbox, Item]] = []

    def enter(self, group: Group) -> None:
        """A generation begins, after `setup`: agree on a seq, go back to it, settle the items."""
        self.group = group
        if not self._copies:
            self._keep()
        agreed = self._agree(group)
        self.seq = agreed
        self._copies = [c for c in self._copies if c.seq <= agreed]
        if group.generation > self._first_generation(group):
            self._broken_off[agreed] += 1
            self._restore(self._copies[-1])
        self._settle(before=agreed)
        self._requeue()

    @property
    def attempt(self) -> int:
        """How often the present step was broken off; the same on every rank."""
        return self._broken_off[self.seq]

    def _first_generation(self, group: Group) -> int:
        if self._entered_first is None:
            self._entered_first = group.generation
        return self._entered_first

    def _agree(self, group: Group) -> int:
        assert group.rendezvous is not None
        group.rendezvous.set(f"seq/{group.rank}", str(self._copies[-1].seq))
        return min(int(group.rendezvous.get(f"seq/{r}")) for r in range(group.size))

    def _keep(self) -> None:
        has_state = hasattr(self._trainer, "state_dict")
        state = carry.detach(self._trainer.state_dict()) if has_state else None
        self._copies.append(_Copy(self.seq, state, torch.get_rng_state(), random.getstate()))
        del self._copies[:-_COPIES_KEPT]

    def _restore(self, copy: _Copy) -> None:
        assert self.group is not None
        if copy.state is not None:
            self._trainer.load_state_dict(carry.attach(copy.state, self.group.mesh()))
        torch.set_rng_state(copy.torch_rng)
        random.setstate(copy.python_rng)

    def received(self, mailbox: Mailbox, item: Item) -> None:
        """An item belongs to the present step."""
        self._received.append((self.seq, mailbox, item))

    def commit(self) -> None:
        """The step's body has ended: keep the state for the next, acknowledge what nobody can repeat."""
        self.seq += 1
        self._keep()
        self._settle(before=self._copies[0].seq)

    def _settle(self, *, before: int) -> None:
        for seq, mailbox, item in self._received:
            if seq < before:
                mailbox.ack(item)
        self._received = [r for r in self._received if r[0] >= before]

    def _requeue(self) -> None:
        for mailbox in {id(m): m for _, m, _ in self._received}.values():
            mailbox.requeue_unacked()
        self._received = []

    def made_no_progress(self) -> bool:
        """Whether no step was committed since this was asked last."""
        same, self._asked_at = self.seq == self._asked_at, self.seq
        return same

    def check_attempts(self, limit: int) -> None:
        """Raise StepAborted if the present step was broken off as often as it may be begun."""
        if self.attempt >= limit and self.group is not None:
            raise StepAborted(
                group=self.group.name, seq=self.seq, attempts=self.attempt, reason=self.last_reason or "unknown"
            )

    def finish(self) -> None:
        """The last step is committed on every rank: acknowledge the rest."""
        self._settle(before=self.seq + 1)


class Step:
    """One step. `seq` stays the same when it is repeated, `attempt` grows."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.seq = ledger.seq
        self.attempt = ledger.attempt
        self._boxes: dict[str, Mailbox] = {}

    def __enter__(self) -> Step:
        group = self._ledger.group
        if group is not None:
            group.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._ledger.commit()

    def receive(self, mailbox: str, *, timeout: timedelta | None = None) -> Item:
        """The next item of a mailbox; acknowledged once no rank can repeat this step.

        Args:
            mailbox: its name.
            timeout: None waits for ever.

        Raises:
            TimeoutError: nothing came in time.
            StaleGeneration: the group was broken while waiting.
        """
        process = self._ledger.process
        box = self._boxes.setdefault(mailbox, Mailbox(mailbox, process.store, process.recorder))
        item = box.receive(timeout_s=None if timeout is None else timeout.total_seconds())
        self._ledger.received(box, item)
        return item


_ledger: Ledger | None = None


def use(ledger: Ledger | None) -> None:
    """The ledger that `steps()` of this process works on."""
    global _ledger
    _ledger = ledger


def steps(*, until: int | None = None, attempts: int = 5) -> Iterator[Step]:
    """The trainer's steps, from where the group stands: `for step in unknot.steps(until=200): with step: ...`.

    Args:
        until: the number of steps of the whole run; None goes on for ever.
        attempts: how often one step may be begun.

    Raises:
        NotAMember: not called in a trainer's `run`.
        StepAborted: a step was broken off that often.
    """
    ledger = _ledger
    if ledger is None:
        raise NotAMember(call="unknot.steps")
    while until is None or ledger.seq < until:
        ledger.check_attempts(attempts)
        yield Step(ledger)
