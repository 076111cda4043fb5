"""Who comes back to the same knot: interrupted a few times, then left alone ever longer."""

from __future__ import annotations

import itertools

import pytest

from tests.monitor.desk import A, B, Desk, atom, evidence, interrupted
from unknot.graph import events as ev
from unknot.supervisor.monitor.instructions import InterruptWait


@pytest.fixture
def desk() -> Desk:
    return Desk()


def crossed_again(desk: Desk, left: str = "lock:left", right: str = "lock:right") -> None:
    """A cannot be interrupted, B can."""
    desk.party(A).hold(left).wait(atom(right), interruptible=False)
    desk.party(B).hold(right).wait(atom(left))
    desk.party(A).tell()
    desk.party(B).tell()
    desk.confirm()
    evidence(desk)
    desk.later(3.0)


def parted(desk: Desk, left: str = "lock:left", right: str = "lock:right") -> None:
    assert interrupted(desk).participant == B
    for party, lock in ((A, left), (B, right)):
        desk.party(party).wake().release(lock).tell()


def test_one_that_swallows_its_interruptions_is_left_alone_after_three_and_ever_longer_after_each_more(desk: Desk) -> None:
    for _ in range(3):
        crossed_again(desk)
        parted(desk)
    crossed_again(desk)
    assert (desk.incident().state, desk.incident().actions) == ("confirmed", ())
    pauses = []
    for _ in range(4):
        given, struck_at = len(desk.given(InterruptWait)), desk.now
        while len(desk.given(InterruptWait)) == given:
            assert desk.now < struck_at + 200.0, "it stands there still, and is tried once more"
            desk.later(0.5)
        pauses.append(desk.now - struck_at)
        (told,) = [line.text for line in desk.incident().lines if "several times" in line.text]
        assert told.startswith(f"{B} was interrupted several times")
        parted(desk)
        crossed_again(desk)
    assert all(later > 1.5 * before for before, later in itertools.pairwise(pauses)), pauses
    assert pauses[-1] > 60.0


def test_a_knot_at_another_place_is_freed_however_many_there_were(desk: Desk) -> None:
    for number in range(6):
        crossed_again(desk, f"lock:left-{number}", f"lock:right-{number}")
        assert len(desk.given(InterruptWait)) == number + 1
        parted(desk, f"lock:left-{number}", f"lock:right-{number}")


def test_one_that_made_progress_in_between_is_interrupted_again(desk: Desk) -> None:
    for number in range(6):
        crossed_again(desk)
        assert len(desk.given(InterruptWait)) == number + 1
        parted(desk)
        desk.party(B).extra = [ev.Progress(p=B, what="step", n=number + 1, t=desk.now)]
        desk.party(B).tell()
