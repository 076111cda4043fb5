"""The errors a user of the primitives and of the run can meet.

They are named after what happened, not after being errors: `except RunClosed` reads as what it is.
"""

# ruff: noqa: N818

from __future__ import annotations

from unknot.graph.errors import UnknotError


class FencedError(UnknotError):
    """A newer incarnation of this member has registered: this process must end."""

    member: str
    incarnation: int
    current: int

    def __init__(self, *, member: str, incarnation: int, current: int) -> None:
        super().__init__(member=member, incarnation=incarnation, current=current)

    def describe(self) -> str:
        """Who was replaced by whom."""
        return (
            f"{self.member}#{self.incarnation} was replaced by {self.member}#{self.current}; "
            "nothing it writes is accepted any more; let this process end"
        )


class DeadlockInterrupted(UnknotError):
    """The supervisor ended this wait to free a deadlock."""

    participant: str
    resource: str
    incident: str

    def __init__(self, *, participant: str, resource: str, incident: str) -> None:
        super().__init__(participant=participant, resource=resource, incident=incident)

    def describe(self) -> str:
        """Which wait was ended and by which incident."""
        return (
            f"the wait of {self.participant} for {self.resource} was ended to free a deadlock; "
            f"release what you hold and try again (supervisor explain {self.incident})"
        )


class StaleGeneration(UnknotError):
    """The collective group was re-formed: this generation of it is over."""

    group: str
    generation: int
    reason: str

    def __init__(self, *, group: str, generation: int, reason: str) -> None:
        super().__init__(group=group, generation=generation, reason=reason)

    def describe(self) -> str:
        """Which generation ended and why."""
        return (
            f"generation {self.generation} of group {self.group} is over ({self.reason}); "
            "leave run(), Unknot enters it again in the next generation"
        )


class GroupDone(UnknotError):
    """Every rank of the group has come to its end: whoever joins it now has come too late to be needed."""

    group: str
    generation: int

    def __init__(self, *, group: str, generation: int) -> None:
        super().__init__(group=group, generation=generation)

    def describe(self) -> str:
        """Which group, and when it was done."""
        return (
            f"group {self.group} is done: in generation {self.generation} run() has returned on every rank; "
            "let this process end, or start the run anew"
        )


class StepAborted(UnknotError):
    """A step was begun as often as is allowed and never ended: repeating it blindly helps nobody. `group`: or the member."""

    group: str
    seq: int
    attempts: int
    reason: str

    def __init__(self, *, group: str, seq: int, attempts: int, reason: str) -> None:
        super().__init__(group=group, seq=seq, attempts=attempts, reason=reason)

    def describe(self) -> str:
        """Which step, how often, why it was broken off last."""
        whose = self.group if "/" in self.group else f"group {self.group}"
        return (
            f"step {self.seq} of {whose} was broken off {self.attempts} times, the last time since "
            f"{self.reason}; mend what supervisor explain shows, or raise attempts= of unknot.steps"
        )


class StepWouldHang(UnknotError):
    """A step waits for a message that only its own unsent one could be."""

    member: str
    mailbox: str
    seq: int

    def __init__(self, *, member: str, mailbox: str, seq: int) -> None:
        super().__init__(member=member, mailbox=mailbox, seq=seq)

    def describe(self) -> str:
        """Which step, and the way out."""
        return (
            f"step {self.seq} of {self.member} waits in mailbox {self.mailbox} for what it sends itself, and a step sends when it "
            "commits; receive it in the next step, or send outside of steps with unknot.Mailbox"
        )


class RunClosed(UnknotError):
    """The run has ended: waits end, and members leave their loops. `call`: what a driver called after it closed the run."""

    run: str
    call: str

    def __init__(self, *, run: str, call: str = "") -> None:
        super().__init__(run=run, call=call)

    def describe(self) -> str:
        """Which run ended, and what to do."""
        if self.call:
            return f"run {self.run} is closed: use {self.call} before close(), or start another run with unknot.init()"
        return f"run {self.run} has ended; let run() return"


class StoreUnavailable(UnknotError):
    """Redis cannot be used: not reached in time, refused, or not what we need. `lasting`: this does not pass by waiting."""

    where: str
    why: str
    todo: str
    lasting: bool

    def __init__(self, *, where: str, why: str, todo: str, lasting: bool = False) -> None:
        super().__init__(where=where, why=why, todo=todo, lasting=lasting)

    def describe(self) -> str:
        """Where, why, and what to do. `where` never holds a password."""
        return f"cannot use Redis at {self.where}: {self.why}; {self.todo}"


class RunBusy(UnknotError):
    """Another live driver has this run."""

    run: str
    driver: str

    def __init__(self, *, run: str, driver: str) -> None:
        super().__init__(run=run, driver=driver)

    def describe(self) -> str:
        """Who has the run and what to do."""
        return (
            f"run {self.run} is driven by {self.driver}, which is alive, or was a few seconds ago; choose another run name, "
            "or end that driver first (on another host its claim ends some seconds after it)"
        )


class NameTaken(UnknotError):
    """Two members of one run would have one name."""

    name: str
    run: str

    def __init__(self, *, name: str, run: str) -> None:
        super().__init__(name=name, run=run)

    def describe(self) -> str:
        """Which name is taken."""
        return f"run {self.run} already has a member {self.name}; give this one another name="


class ConfigError(UnknotError):
    """A setting, option or argument that cannot be used."""

    what: str
    todo: str

    def __init__(self, *, what: str, todo: str) -> None:
        super().__init__(what=what, todo=todo)

    def describe(self) -> str:
        """What is wrong and what to do."""
        return f"{self.what}; {self.todo}"


class NotAMember(UnknotError):
    """A call that only a member of a run can make."""

    call: str

    def __init__(self, *, call: str) -> None:
        super().__init__(call=call)

    def describe(self) -> str:
        """Which call, and where it belongs."""
        return (
            f"{self.call} needs a run: call it in a member that run.group or run.spawn started, or after unknot.init()"
        )


class RunFailed(UnknotError):
    """The run ended by a failure: the first error of the first victim."""

    run: str
    member: str
    error: str

    def __init__(self, *, run: str, member: str, error: str) -> None:
        super().__init__(run=run, member=member, error=error)

    def describe(self) -> str:
        """Who failed first, and how."""
        return f"run {self.run} failed: {self.member} ended first with {self.error}"


class CallFailed(UnknotError):
    """A call by the driver has failed in a member: the first error of the first one. Its cause is that error, where it pickles."""

    target: str
    method: str
    member: str
    error: str

    def __init__(self, *, target: str, method: str, member: str, error: str) -> None:
        super().__init__(target=target, method=method, member=member, error=error)

    def describe(self) -> str:
        """Which call, who failed first, and what stands now."""
        return f"{self.method} of {self.target} failed: {self.member} ended it first with {self.error}; it can be called again"


class WaitTimeout(UnknotError, TimeoutError):
    """A wait reached the time that its caller gave it."""

    participant: str
    resource: str
    timeout_s: float

    def __init__(self, *, participant: str, resource: str, timeout_s: float) -> None:
        super().__init__(participant=participant, resource=resource, timeout_s=timeout_s)

    def describe(self) -> str:
        """Who waited for what, and how long."""
        return f"{self.participant} waited {self.timeout_s:g} s for {self.resource}, as long as it was told to"


class KeptItemsFull(UnknotError):
    """A trainer group has taken as many items since its last manifest as it may keep."""

    group: str
    kept: int
    limit: int

    def __init__(self, *, group: str, kept: int, limit: int) -> None:
        super().__init__(group=group, kept=kept, limit=limit)

    def describe(self) -> str:
        """How many are kept, and what lets go of them."""
        return (
            f"group {self.group} keeps {self.kept} items that no manifest covers yet (limit {self.limit}); write manifests "
            "more often (manifest_every=), or raise manifest_items_limit"
        )


class LockNotHeld(UnknotError, RuntimeError):
    """A release by somebody who does not hold the lock."""

    name: str
    participant: str

    def __init__(self, *, name: str, participant: str) -> None:
        super().__init__(name=name, participant=participant)

    def describe(self) -> str:
        """Which lock, and who asked."""
        return f"{self.participant} does not hold lock {self.name}; release it in the thread that acquired it"


class StaleWeights(UnknotError):
    """Weights older than those already published: from a generation that is over, or a number already passed."""

    name: str
    n: int
    generation: int
    current_n: int
    current_generation: int

    def __init__(self, *, name: str, n: int, generation: int, current_n: int, current_generation: int) -> None:
        super().__init__(
            name=name, n=n, generation=generation, current_n=current_n, current_generation=current_generation
        )

    def describe(self) -> str:
        """What was refused, and what stands."""
        return (
            f"weights {self.name} n={self.n} of generation {self.generation} are refused: n={self.current_n} of "
            f"generation {self.current_generation} is published; publish a larger n, from the newest generation"
        )


class WeightsGone(UnknotError, LookupError):
    """A version of weights that is not kept any more, or was never published."""

    name: str
    n: int
    newest: int

    def __init__(self, *, name: str, n: int, newest: int) -> None:
        super().__init__(name=name, n=n, newest=newest)

    def describe(self) -> str:
        """Which version, and how far the publisher is."""
        return (
            f"version {self.n} of weights {self.name} is not kept (the newest is {self.newest}); ask for a newer one, or raise "
            "weights_kept"
        )


class LeaseLost(UnknotError):
    """The holder of a lease (driver, leader) was replaced: what it still writes is refused."""

    what: str
    holder: str

    def __init__(self, *, what: str, holder: str) -> None:
        super().__init__(what=what, holder=holder)

    def describe(self) -> str:
        """Which lease, and who has it now."""
        return f"{self.what} is now with {self.holder or 'nobody'}; stop acting for it"


class StoreCorrupt(UnknotError):
    """A key of the run holds something else than Unknot wrote there; nothing was changed."""

    key: str
    why: str
    todo: str

    def __init__(self, *, key: str, why: str, todo: str = "find out who else writes there, or delete it") -> None:
        super().__init__(key=key, why=why, todo=todo)

    def describe(self) -> str:
        """Which key, and what to do."""
        return f"key {self.key} of Redis {self.why}; nothing was changed; {self.todo}"
