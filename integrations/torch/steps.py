"""Steps of a trainer group: what a re-formed group repeats, from where, and with which items.

A step counts once all ranks have voted that its body has ended: one small reduction, which also makes sure that no rank is more than
one step ahead of another. After the vote each rank keeps a copy of its local state in memory, and every so often all of them save
theirs as part of a manifest. When a generation ends, all ranks go back to one and the same step:

- to the newest copy in memory that *all* ranks have. That is the case where all processes live (the group was broken to free a
  deadlock); two copies each are enough, since ranks are at most one step apart;
- else to the newest whole manifest: a rank that comes as a new process has nothing in memory, and copies of the others are of no use
  then, for a shard cannot be recomputed from them;
- else, where no manifest was ever committed, to what `setup` made. A trainer with a state saves one before its first step, so this is for
  trainers without.

Items. `take` gives all ranks the same ones and the store keeps them for repeats, until the step is voted (`ack="step"`) or a manifest
covers it. `receive` gives each rank its own; they stay unacknowledged until no rank can repeat the step from memory (`ack="step"`) or a
manifest covers it. So a run that must be the same after a crash has mailboxes with `ack="manifest"`, and takes; or receives, each rank
from a mailbox of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Protocol

import msgspec
import structlog
import torch
import torch.distributed as dist

from unknot.integrations.torch import carry
from unknot.integrations.torch.checkpoint import Saver
from unknot.integrations.torch.digest import state_hash
from unknot.integrations.torch.group import Group
from unknot.integrations.torch.restore import restore
from unknot.integrations.torch.rng import RngState, capture_rng, restore_rng, seed
from unknot.integrations.torch.staging import check_trainer, resolved
from unknot.recovery.abandoned import dropping
from unknot.recovery.checkpoint_wishes import note_begun, wished
from unknot.recovery.checkpoints import Checkpoints, Place
from unknot.recovery.errors import ConfigError, NotAMember, StepAborted
from unknot.recovery.items import Item
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.outcome import put_digest
from unknot.recovery.points import reached
from unknot.recovery.step_buffer import seed_of
from unknot.recovery.steps import check_loop
from unknot.recovery.take import is_nearly_full, settle, take
from unknot.recovery.values import limit_s, whole
from unknot.recovery.weights import Published, Weights
from unknot.supervisor.process import Process

State = Literal["new", "open", "committed", "broken"]
_COPIES_KEPT = 2
_LAST_SAVE_S = 300.0
_log = structlog.get_logger("unknot.steps")


class Stateful(Protocol):
    """What a trainer defines so that its state survives."""

    def state_dict(self) -> Any:
        """Everything a step changes; may hold DTensors."""

    def load_state_dict(self, state: Any) -> None:
        """Take such a state back, its DTensors now on the new group's mesh."""


class _Copy(msgspec.Struct, frozen=True):
    seq: int
    state: Any
    rng: RngState


class Ledger:
    """A rank's steps: where it stands, its copies of earlier states, its items, and the saving of manifests."""

    def __init__(self, process: Process, trainer: Any, checkpoints: Checkpoints | None = None) -> None:
        self.process = process
        self.group: Group | None = None
        self.seq = 0
        self.last_reason = ""
        self.manifest_every: int | None = None
        self.has_state = hasattr(trainer, "state_dict")
        self._trainer = trainer
        self._checkpoints = checkpoints if self.has_state else None
        self._saver: Saver | None = None
        self._saved: set[int] = set()
        self._wish = self._granted = ""
        self._broken_off: Counter[int] = Counter()
        self._asked_at = -1
        self._entered_before = False
        self._copies: list[_Copy] = []
        self._received: list[tuple[int, Mailbox, Item]] = []
        self._published: dict[str, int] = {}

    def set_manifest_every(self, steps: int | None) -> None:
        """After how many steps a manifest is saved. ConfigError: it is no whole number above 0, or the trainer has no state."""
        if steps is not None:
            whole(steps, name="manifest_every", least=1)
            check_trainer(self._trainer)
        self.manifest_every = steps

    # --- a generation begins and ends ---

    def seed(self) -> None:
        """Before `setup`: what it draws is a function of the run's seed and the rank, and not of chance."""
        seed(seed_of(self.process.config.seed, self.process.member, 0))

    def enter(self, group: Group) -> None:
        """A generation begins, after `setup`: go to where all ranks can go on from, settle the items."""
        self.group = group
        self._granted = ""  # a wish that was under way is not fulfilled
        self._saved = set()  # all ranks save the same steps, whatever each has been through before
        if self._checkpoints is not None:
            check_trainer(self._trainer)
            self._saver = Saver(
                self._checkpoints, Place.of(group.slot), process_group=group.checkpoint_group,
                shut=group.shut_checkpoint, lost=group.has_lost_rank,
            )  # fmt: skip
        agreed = self._common(group)
        reached("group.agreed", self.process.member)
        if agreed is not None:
            self._go_to(agreed)
        elif not self._go_to_manifest(group):
            self._begin(group)
        if self._checkpoints is not None and group.rank == 0:
            self._checkpoints.settle(self.process.member)
        self._settle(before=self.seq)
        self._requeue(since=self.seq)
        self.process.mark("restored")
        reached("group.entered", self.process.member)
        if self._entered_before:
            self._broken_off[self.seq] += 1
        self._entered_before = True

    def go_on_at(self, seq: int) -> None:
        """A trainer without a state stands before step `seq`, by what is known elsewhere. All ranks alike."""
        self.seq = seq
        self._copies = []
        self._keep()

    def leave(self) -> None:
        """The generation is over: give up the save under way."""
        saver, self._saver = self._saver, None
        if saver is not None:
            saver.drop()

    def _common(self, group: Group) -> int | None:
        """The newest seq of which every rank has a copy in memory, None if there is none."""
        assert group.rendezvous is not None
        group.rendezvous.set(f"seqs/{group.rank}", json.dumps([copy.seq for copy in self._copies]))
        of_ranks = [set(json.loads(group.rendezvous.get(f"seqs/{rank}"))) for rank in range(group.size)]
        return max(set.intersection(*of_ranks), default=None)

    def _go_to(self, seq: int) -> None:
        self._copies = [copy for copy in self._copies if copy.seq <= seq]
        self.seq = seq
        copy = self._copies[-1]
        assert self.group is not None
        if copy.state is not None:
            carry.give_back(self._trainer, carry.attach(copy.state, self.group.mesh()))
        restore_rng(copy.rng)

    def _go_to_manifest(self, group: Group) -> bool:
        if self._checkpoints is None:
            return False
        restored = restore(
            self._checkpoints, Place.of(group.slot), self._trainer, process_group=group.checkpoint_group
        )
        if restored is None:
            return False
        self.seq = restored.manifest.seq
        self._saved = {self.seq}
        self._copies = []
        self._keep()
        return True

    def _begin(self, group: Group) -> None:
        if self._copies:
            _log.warning("steps.begun_anew", group=group.name, lost=self.seq, reason=self.last_reason)
        self.seq = 0
        self._copies = []
        self._keep()
        self._save()

    # --- a step ends ---

    def commit(self, step: Step) -> None:
        """The step's body has ended on this rank: it counts once it has on all."""
        reached("train.vote.before", self.process.member)
        wants = self._vote(wants_manifest=self._is_due(self.seq + 1))
        reached("train.vote.after", self.process.member)
        step.publish_now()
        self.advance()
        self.process.mark("committed")
        self.process.progressed("steps")
        if wants:
            self._grant()
            self._save()
        reached("train.commit.after", self.process.member)

    def advance(self) -> None:
        """The present step counts: keep the state for the next, consume what nobody can repeat from memory."""
        self.seq += 1
        self._keep()
        before = self._copies[0].seq
        self._settle(before=before)
        if self.group is not None and self.group.rank == 0:
            settle(self.process.store, self.group.name, before, ack="step", recorder=self.process.recorder)

    def _vote(self, *, wants_manifest: bool) -> bool:
        """Wait until all ranks have come so far; whether any of them wants a manifest."""
        wants = torch.tensor([int(wants_manifest)])
        assert self.group is not None
        dist.all_reduce(wants, op=dist.ReduceOp.MAX, group=self.group.process_group)
        return bool(wants.item())

    def _is_due(self, seq: int) -> bool:
        assert self.group is not None
        if self._is_wished_for() or (self.manifest_every is not None and seq % self.manifest_every == 0):
            return True
        limit = self.process.config.manifest_items_limit
        return self._holds_many(limit) or (self.group.rank == 0 and is_nearly_full(self.process.store, self.group.name, limit))

    def _is_wished_for(self) -> bool:
        """Whether the driver asks for a manifest that this generation has not begun yet; one rank looks for all."""
        if self._saver is None or self._saver.place.rank != 0:
            return False
        token = wished(self.process.store, self._saver.place.group)
        self._wish = token if token != self._granted else ""
        return bool(self._wish)

    def _keep(self) -> None:
        state = carry.detach(self._trainer.state_dict()) if self.has_state else None
        self._copies.append(_Copy(self.seq, state, capture_rng()))
        del self._copies[:-_COPIES_KEPT]

    # --- manifests ---

    def _grant(self) -> None:
        if self._wish and self._saver is not None:
            self._granted, self._wish = self._wish, ""
            note_begun(self.process.store, self._saver.place, self._granted, self.seq)

    def _save(self) -> None:
        if self._saver is not None and self.seq not in self._saved:
            self._saved.add(self.seq)
            self._forget_consumed()
            items = [item.id for seq, _, item in self._received if seq < self.seq]
            self._saver.start(self.seq, self._trainer.state_dict(), items=items, covers=self._published)

    def save_last(self) -> None:
        """The last step is done: a manifest of the end, which consumes what was taken; and the digest of it all."""
        if self._saver is None or self.group is None:
            return
        self._save()
        if not self._saver.drain(_LAST_SAVE_S):
            _log.warning("steps.last_save.late", group=self.group.name, seq=self.seq)
        digest = state_hash(resolved(self._trainer.state_dict()), capture_rng())
        put_digest(self.process.store, self.group.name, self.group.rank, seq=self.seq, digest=digest)

    # --- items ---

    def received(self, mailbox: Mailbox, item: Item) -> None:
        """An item belongs to the present step."""
        self._received.append((self.seq, mailbox, item))

    def published(self, name: str, n: int) -> None:
        """A version of weights was published."""
        self._published[name] = n

    def _settle(self, *, before: int) -> None:
        """Acknowledge what steps before `before` received, but for what waits for a manifest."""
        done = [r for r in self._received if r[0] < before and not self._waits_for_manifest(r[1])]
        for _, mailbox, item in done:
            mailbox.ack(item)
        self._received = [r for r in self._received if r not in done]

    def _waits_for_manifest(self, mailbox: Mailbox) -> bool:
        return self._saver is not None and mailbox.settings().ack == "manifest"

    def _requeue(self, *, since: int) -> None:
        """What is repeated will be received again; what steps before had is part of the state that is gone on from."""
        for mailbox, item in [(mailbox, item) for seq, mailbox, item in self._received if seq >= since]:
            mailbox.requeue(item)
        self._received = [r for r in self._received if r[0] < since]

    def _forget_consumed(self) -> None:
        """A manifest has acknowledged them meanwhile."""
        if self._received:
            process = self.process
            held = set(process.store.command("HKEYS", process.store.key("unacked", process.member)))
            self._received = [r for r in self._received if r[2].id.encode() in held]

    def _holds_many(self, limit: int) -> bool:
        """Whether it is time for a manifest, for what this rank has received since the last one."""
        if 2 * len(self._received) >= limit:
            self._forget_consumed()
        return 2 * len(self._received) >= limit

    def finish(self) -> None:
        """The last step is committed on every rank: acknowledge the rest."""
        for _, mailbox, item in self._received:
            mailbox.ack(item)
        self._received = []

    # --- how often ---

    @property
    def attempt(self) -> int:
        """How often the present step was broken off; the same on every rank that was there."""
        return self._broken_off[self.seq]

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


class Step:
    """One step of the group. `seq` stays the same when it is repeated, `attempt` grows.

    Attributes: seq, attempt, seed (a number from the run's seed, the rank's member and seq), id, state.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        process = ledger.process
        self.seq = ledger.seq
        self.attempt = ledger.attempt
        self.seed = seed_of(process.config.seed, process.member, self.seq)
        self.id = f"{process.settings.run}/{process.settings.group}/{self.seq}"
        self.state: State = "new"
        self._error: BaseException | None = None
        self._boxes: dict[str, Mailbox] = {}
        self._takes = 0
        self._publications: list[tuple[str, Any]] = []
        self._when_counted: list[Callable[[], object]] = []

    def __enter__(self) -> Step:
        if self.state != "new":
            raise ConfigError(what=f"{self!r} was used already", todo="let the loop over unknot.steps() give the next one")
        group = self._ledger.group
        if group is not None:
            group.check()
        self.state = "open"
        reached("train.body.before", self._ledger.process.member)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.state, self._error = "broken", error
        if kind is None:
            try:
                self._ledger.commit(self)
            except BaseException as failed:
                self._error = failed
                raise
            self.state = "committed"

    def check_over(self) -> None:
        """The loop goes on: raise what the step was broken off by, if that was swallowed; ConfigError if it was not entered.

        The state may hold half of the step then, and the other ranks are in it: nobody can go on from there.
        """
        if self._error is not None:
            raise self._error
        if self.state != "committed":
            raise ConfigError(what=f"{self!r} was not entered", todo="for step in unknot.steps(): with step: ...")

    def _check_open(self) -> None:
        if self.state != "open":
            raise ConfigError(what=f"{self!r} is not open", todo="use the step inside of its block: with step: ...")

    def __repr__(self) -> str:
        return f"<Step {self.seq} of group {self._ledger.process.settings.group}, attempt {self.attempt}, {self.state}>"

    def receive(self, mailbox: str, *, timeout: timedelta | None = None) -> Item:
        """The next item of a mailbox, for this rank alone; acknowledged once no rank can repeat this step from memory.

        With `ack="manifest"` by the manifest that covers the step: so it comes again when all ranks go back because one was lost.

        Args:
            mailbox: its name.
            timeout: None waits for ever.

        Raises:
            TimeoutError: nothing came in time.
            StaleGeneration: the group was broken while waiting.
            ConfigError: outside of the step's block.
        """
        self._check_open()
        process = self._ledger.process
        box = self._boxes.setdefault(mailbox, Mailbox(mailbox, process.store, process.recorder))
        item = box.receive(timeout_s=limit_s(timeout))
        self._ledger.received(box, item)
        return item

    def take(self, mailbox: str, n: int, *, timeout: timedelta | None = None) -> list[Item]:
        """The next `n` items: the same ones on every rank, and again whenever the step is repeated. All ranks take alike.

        Args:
            mailbox: its name.
            n: how many, at least 1.
            timeout: None waits for ever.

        Raises:
            TimeoutError: not enough came in time.
            ConfigError: another take stands in this place of the step, this member may not receive there, or outside of the block.
            KeptItemsFull: more items would be kept than `manifest_items_limit`.
            StaleGeneration: the group was broken while waiting.
        """
        self._check_open()
        process, group = self._ledger.process, self._ledger.group
        assert group is not None
        items = take(
            process.store, process.recorder, group=group.name, seq=self.seq, call=self._takes, mailbox=mailbox, n=n,
            timeout_s=limit_s(timeout), limit=process.config.manifest_items_limit,
            drop=dropping(process.store, process.config.on_abandoned),
        )  # fmt: skip
        self._takes += 1  # what came in vain is for the next try
        return items

    def publish(self, name: str, state: Any) -> None:
        """Publish `state` as version `seq + 1` of weights `name` once the step is voted; rank 0's is published.

        All ranks may call it (making a full state is a collective); the values of the others are not used. ConfigError on rank 0:
        others are declared to publish them (`run.weights`).
        """
        self._check_open()
        if self._ledger.group is not None and self._ledger.group.rank == 0:
            self._weights(name).check_publish()
        self._publications.append((name, state))

    def publish_now(self) -> None:
        """The step counts: let the weights be seen."""
        ledger = self._ledger
        group = ledger.group
        assert group is not None
        for name, state in self._publications:
            if group.rank == 0:
                self._weights(name).publish(state, group.generation, n=self.seq + 1)
            ledger.published(name, self.seq + 1)
        for act in self._when_counted:
            act()

    def when_counted(self, act: Callable[[], object]) -> None:
        """Call `act` on this rank once the step is voted, and before any manifest can cover it: so it is never left out.

        A rank that is lost in that moment leaves the step to be repeated, and `act` with it.
        """
        self._when_counted.append(act)

    def latest(self, name: str, *, exact: int | None = None) -> Published:
        """The newest version of weights, or the version `exact`; waits until it is there."""
        self._check_open()
        return self._weights(name).latest(exact=exact)

    def _weights(self, name: str) -> Weights:
        process = self._ledger.process
        return Weights(name, process.store, process.recorder, keep=process.config.weights_kept)


_ledger: Ledger | None = None


def use(ledger: Ledger | None) -> None:
    """The ledger that `steps()` of this process works on."""
    global _ledger
    _ledger = ledger


def steps(*, until: int | None = None, attempts: int = 5, manifest_every: int | None = None) -> Iterator[Step]:
    """The trainer's steps, from where the group stands: `for step in unknot.steps(until=200): with step: ...`.

    Args:
        until: the number of steps of the whole run; None goes on for ever.
        attempts: how often one step may be begun.
        manifest_every: after how many steps a manifest is saved; None: before the first step, after the last, and when more
            items are kept for repeats than is good.

    Raises:
        NotAMember: not called in a trainer's `run`.
        ConfigError: a number that cannot be (at the call, not in the loop), or `manifest_every` for a trainer without `state_dict`
            and `load_state_dict`.
        StepAborted: a step was broken off that often.
        ConfigError, by the loop: a step was not entered. Or whatever a step was broken off by, if that was swallowed.
    """
    ledger = _ledger
    if ledger is None:
        raise NotAMember(call="unknot.steps")
    check_loop(until, attempts)
    ledger.set_manifest_every(manifest_every)
    return _loop(ledger, until, attempts)


def _loop(ledger: Ledger, until: int | None, attempts: int) -> Iterator[Step]:
    while until is None or ledger.seq < until:
        ledger.check_attempts(attempts)
        step = Step(ledger)
        yield step
        step.check_over()

