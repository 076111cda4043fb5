"""SIGKILL at every named point of registration, step and take, in a real process: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recovery.relay import MEMBER
from unknot.recovery.errors import WaitTimeout
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.points import FAULTS_ENV, LOG_ENV, fired
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.steps import committed_steps
from unknot.recovery.take import settle, take
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
ROOT = Path(__file__).parents[2]
STEPS = 4
# The passage that is hit: some points are first passed in a step with others before it.
STEP_POINTS = [
    "register.before", "register.after", "step.begun", "step.begun#3", "step.received", "step.once.before", "step.once.called",
    "step.once.kept", "step.undo.before", "step.undo.after", "step.commit.before", "step.commit.before#2", "step.commit.waiting",
    "step.commit.after", "step.commit.after#2", "step.ended",
]  # fmt: skip


class Relay:
    """Starts the judge's processes, one after the other, all with the same armed point."""

    def __init__(self, store: RedisStore, url: str, folder: Path, point: str) -> None:
        self.calls, self.log = folder / "calls", folder / "faults"
        self._command = [sys.executable, str(ROOT / "tests/recovery/relay.py"), url, store.run, str(STEPS), str(self.calls)]
        name, _, nth = point.partition("#")
        self.fault = f"{name}#{nth or 1}@{MEMBER}=kill"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, FAULTS_ENV: self.fault, LOG_ENV: str(self.log)}
        self._started.append(subprocess.Popen(self._command, env=environment))
        return self._started[-1]

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def relay(store: RedisStore, redis_url: str, tmp_path: Path) -> Iterator[Callable[[str], Relay]]:
    made: list[Relay] = []

    def make(point: str) -> Relay:
        made.append(Relay(store, redis_url, tmp_path, point))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("point", STEP_POINTS)
def test_a_judge_that_is_killed_anywhere_relays_every_item_exactly_once(
    store: RedisStore, join: Join, relay: Callable[[str], Relay], point: str
) -> None:
    driver = join("driver/main")
    raw, scored = Mailbox("raw", store, driver).declare(8), Mailbox("scored", store, driver).declare(2)
    for value in range(STEPS):
        raw.send(value)
    judge = relay(point)
    assert judge.start().wait(60) == -signal.SIGKILL
    assert fired(str(judge.log)) == [judge.fault]
    whole_steps_alone(store, raw, scored)
    after = judge.start()
    values = [received(scored) for _ in range(STEPS)]
    assert after.wait(60) == 0
    assert values == [(value, value * 10) for value in range(STEPS)]
    nothing_is_left(store, raw, scored)
    called_once(judge, store, point)


def received(box: Mailbox) -> Any:
    item = box.receive(60)
    box.ack(item)
    return item.value


def whole_steps_alone(store: RedisStore, raw: Mailbox, scored: Mailbox) -> None:
    """What is committed is whole; what is not, has left only what the next registration gives back."""
    done = committed_steps(store, MEMBER)
    assert (scored.statistics().sent, raw.statistics().acked) == (done, done)
    assert raw.statistics().queued + raw.statistics().unacked == STEPS - done
    kept = store.command("HGET", store.key("state", MEMBER), "done")
    assert (kept is None) == (done == 0)


def nothing_is_left(store: RedisStore, raw: Mailbox, scored: Mailbox) -> None:
    assert committed_steps(store, MEMBER) == STEPS
    assert (raw.statistics().acked, raw.statistics().queued, scored.statistics().sent) == (STEPS, 0, STEPS)
    assert DistributedLock("x", store, NullRecorder("driver/main", 1)).statistics().holder is None
    kinds = ("unacked", "waits", "held", "once")
    assert store.command("EXISTS", *(store.key(kind, MEMBER) for kind in kinds)) == 0
    places = [("mboxi", "raw"), ("mboxc", "scored"), ("holding", "raw"), ("origin", "driver/main")]
    assert store.command("EXISTS", *(store.key(*place) for place in places)) == 0


def called_once(judge: Relay, store: RedisStore, point: str) -> None:
    """A process that dies between the call and the keeping calls again: that one point alone."""
    calls = Counter(judge.calls.read_text().split())
    ids = {f"{store.run}:{MEMBER}:{seq}" for seq in range(STEPS)}
    assert set(calls) == ids
    twice = [step for step, count in calls.items() if count > 1]
    assert twice == ([f"{store.run}:{MEMBER}:0"] if point == "step.once.called" else [])


TAKES = """
import sys
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import new_boot, register
from unknot.recovery.take import take
from unknot.supervisor.store.redis_store import RedisStore
store = RedisStore.connect(*sys.argv[1:3])
me = register(store, "trainer/0", role="trainer", pid=1, host="here", boot=new_boot())
items = take(store, NullRecorder("trainer/0", me.incarnation), group="policy", seq=3, call=0, mailbox="q", n=2)
print([item.value for item in items])
"""


def test_a_rank_that_is_killed_with_its_take_in_hand_gets_it_again_and_so_do_the_others(
    store: RedisStore, redis_url: str, join: Join, tmp_path: Path
) -> None:
    box = Mailbox("q", store, join("agent/a")).declare(4, ack="manifest")
    for value in range(4):
        box.send(value)
    environment = {**os.environ, FAULTS_ENV: "take.granted=kill", LOG_ENV: str(tmp_path / "faults")}
    command = [sys.executable, "-c", TAKES, redis_url, store.run]
    first = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (first.returncode, first.stdout) == (-signal.SIGKILL, "")
    place = {"group": "policy", "seq": 3, "call": 0, "mailbox": "q", "n": 2}
    assert [item.value for item in take(store, join("trainer/1"), **place)] == [0, 1]  # type: ignore[arg-type]
    second = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (second.returncode, second.stdout) == (0, "[0, 1]\n")
    assert settle(store, "policy", 4, ack="manifest") == 2
    with pytest.raises(WaitTimeout):
        take(store, join("trainer/1"), **{**place, "seq": 4, "n": 3}, timeout_s=0)  # type: ignore[arg-type]


def test_every_point_of_registration_step_and_take_is_documented_and_hit_here() -> None:
    named = re.findall(r'reached\("((?:register|step|take)\.[a-z.]+)"', "".join(p.read_text() for p in (ROOT / "recovery").glob("*.py")))
    assert set(named) == {point.partition("#")[0] for point in STEP_POINTS} | {"take.granted"}
    page = (ROOT / "docs/design.md").read_text()
    assert [name for name in named if f"`{name}`" not in page] == []
