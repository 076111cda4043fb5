"""The errors of checkpoints: of saving one, and of going on from one. Named after what happened, as in errors.py."""

# ruff: noqa: N818

from __future__ import annotations

from unknot.graph.errors import UnknotError


class CheckpointFailed(UnknotError):
    """A checkpoint was not made; training goes on, and the manifest before it stays the newest."""

    group: str
    seq: int
    why: str
    todo: str

    def __init__(self, *, group: str, seq: int, why: str, todo: str) -> None:
        super().__init__(group=group, seq=seq, why=why, todo=todo)

    def describe(self) -> str:
        """Which one, why, and what to do."""
        return (
            f"the checkpoint of group {self.group} before step {self.seq} was not made: {self.why}; "
            f"the one before it stays the newest; {self.todo}"
        )


class StateNotSaveable(UnknotError):
    """Something in a trainer's state cannot be part of a checkpoint."""

    where: str
    why: str
    todo: str

    def __init__(self, *, where: str, why: str, todo: str) -> None:
        super().__init__(where=where, why=why, todo=todo)

    def describe(self) -> str:
        """Which part of the state, why, and what to do."""
        return f"{self.where} cannot be saved: {self.why}; {self.todo}"


class StateMismatch(UnknotError):
    """The trainer's state has not the shape of the checkpoint that it should take."""

    manifest: str
    differences: tuple[str, ...]

    def __init__(self, *, manifest: str, differences: tuple[str, ...]) -> None:
        super().__init__(manifest=manifest, differences=differences)

    def describe(self) -> str:
        """Which checkpoint, what differs, and what to do."""
        shown = "; ".join(self.differences[:4])
        left = len(self.differences) - 4
        more = f"; and {left} more" if left > 0 else ""
        return (
            f"checkpoint {self.manifest} is of another model: {shown}{more}; "
            "build the model and optimizer as they were, or give another checkpoint directory to begin anew"
        )


class NoWholeCheckpoint(UnknotError):
    """There are checkpoints, and every one is damaged: beginning anew without a word would lose the run."""

    directory: str
    damaged: tuple[str, ...]

    def __init__(self, *, directory: str, damaged: tuple[str, ...]) -> None:
        super().__init__(directory=directory, damaged=damaged)

    def describe(self) -> str:
        """What is wrong with each, and what to do."""
        return (
            f"no checkpoint in {self.directory} is whole ({'; '.join(self.damaged)}); "
            "bring the files back, or give another checkpoint directory to begin anew"
        )


class CheckpointUnreadable(UnknotError):
    """A checkpoint whose files are whole could not be loaded."""

    manifest: str
    why: str

    def __init__(self, *, manifest: str, why: str) -> None:
        super().__init__(manifest=manifest, why=why)

    def describe(self) -> str:
        """Which one, why, and what to do."""
        return (
            f"checkpoint {self.manifest} is whole and cannot be loaded: {self.why}; "
            "use the version of torch that wrote it, and the same trainer"
        )
