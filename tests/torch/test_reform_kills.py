"""SIGKILL of a real rank at every named point of a re-form.

Three ranks stand in generation 1; it ends, and one of them dies exactly at the point. A new process takes its place. Then the other
two train on in the processes they are in, one generation stands, of all ranks, and whoever is left of an older one is refused.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import re
import signal
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.torch.reforming import GROUP, SIZE, STEPS, Plan, live, told
from unknot.recovery.errors import FencedError
from unknot.recovery.group import REFORM_POINTS, GroupSlot, break_group, group_status, join_once
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.points import fired
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.run import RunClaim
from unknot.supervisor.recorder import commands
from unknot.supervisor.store.redis_store import RedisStore

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
VICTIM = 1
LIMIT_S = 60.0
OF_A_LOST_LINK = ("group.break.before", "group.break.marked", "group.break.after")
OF_WORD_FROM_OUTSIDE = ("group.end.before", "group.end.after")
OF_A_FAILED_START = ("group.unformed.before", "group.unformed.marked", "group.unformed.after")
OF_THE_END = ("group.done.before", "group.done.after")
STOPPED_AT = ("group.join.before", "group.told", "group.connected", "group.running.before", "group.agreed")
OF_A_REFORM = tuple(point for point in REFORM_POINTS if point not in OF_THE_END)
Eventually = Callable[..., None]


class Ranks:
    """The processes of one test, by rank, and what they have told."""

    def __init__(self, store: RedisStore, redis: str, folder: Path) -> None:
        self.log = folder / "fired"
        self.processes: list[BaseProcess] = []
        self.now: dict[int, tuple[Plan, BaseProcess]] = {}
        self._store = store
        self._plan = Plan(redis=redis, run=store.run, rank=0, story="", first="stand", faults_log=str(self.log))
        self._folder = folder

    def start(self, rank: int, **how: Any) -> None:
        """A process for `rank`, in the place of the one before."""
        story = self._folder / f"story-{rank}-{len(self.processes)}"
        plan = msgspec.structs.replace(self._plan, rank=rank, story=str(story), **how)
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(["tests.torch.warm"])
        process = context.Process(target=live, args=(plan,), daemon=True)
        process.start()
        self.processes.append(process)
        self.now[rank] = (plan, process)

    def story(self, rank: int, what: str) -> list[dict[str, Any]]:
        """What the rank's present process has told of one kind."""
        return [line for line in told(self.now[rank][0]) if line["what"] == what]

    def all_told(self, what: str, **facts: Any) -> bool:
        """Whether every rank has told this last."""
        return all(
            (lines := self.story(rank, what)) and facts.items() <= lines[-1].items() for rank in range(SIZE)
        )  # fmt: skip

    def whole_story(self) -> str:
        """Of all present processes, for a test that fails."""
        return "\n".join(f"{rank}: {told(plan)}" for rank, (plan, _) in sorted(self.now.items()))

    def end(self) -> None:
        """Leave no process."""
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
            process.close()


@pytest.fixture
def ranks(store: RedisStore, redis_url: str, tmp_path: Path) -> Iterator[Ranks]:
    started = Ranks(store, redis_url, tmp_path)
    yield started
    started.end()


def start_all(ranks: Ranks, point: str, action: str) -> None:
    """Three ranks in generation 1; the fault is armed."""
    hold = point in (*OF_A_LOST_LINK, *OF_WORD_FROM_OUTSIDE, "group.join.waiting")
    first = "train" if point in OF_THE_END else "cut" if point in OF_A_LOST_LINK else "stand"
    faults = f"{point}@trainer/{VICTIM}={action}"
    if point in OF_A_FAILED_START:
        faults = f"group.told@trainer/{VICTIM}=raise {faults}"
    ranks.start(VICTIM, first=first, faults=faults)
    for rank in set(range(SIZE)) - {VICTIM}:
        stands = first == "stand" and rank == 0 and point != "group.join.waiting"
        ranks.start(rank, first="stand" if stands else "wait" if first != "train" else "train", hold=hold)


def end_generation(store: RedisStore) -> None:
    """As the monitor does when a group is the knot."""
    break_group(store, GROUP, 1, reason="a test breaks it")
    command = commands.Command(
        key="break", token=1, source=f"trainer/{VICTIM}#1", do="break", incident="inc_1", group=GROUP, generation=1,
        reason="a test breaks it",
    )  # fmt: skip
    store.publish("cmd", commands.encode(command))


def check_standing(ranks: Ranks, store: RedisStore) -> None:
    """One generation stands, of all ranks, two of which have lived through it all; all have the right sum."""
    status = group_status(store, GROUP)
    sources = tuple(f"trainer/{rank}#{2 if rank == VICTIM else 1}" for rank in range(SIZE))
    assert (status.state, status.ranks) == ("running", sources)
    for rank in range(SIZE):
        trained = ranks.story(rank, "trained")[-1]
        assert trained["generation"] == status.generation, ranks.whole_story()
        assert trained["weight"] == STEPS * sum(range(1, SIZE + 1)), ranks.whole_story()
        assert {line["pid"] for line in told(ranks.now[rank][0])} == {ranks.now[rank][1].pid}
        running = [line["generation"] for line in ranks.story(rank, "running")]
        assert running == sorted(set(running)), "a generation is entered once"
        assert (rank == VICTIM) == (running[0] != 1), ranks.whole_story()
        assert len(trained["older"]) >= len(running) - 1
        assert [kinds for kinds in trained["older"] if kinds != ["StaleGeneration", "StaleGeneration", "refused"]] == []


def check_fence(store: RedisStore) -> None:
    """What a process of the older incarnation would say next is refused, and changes nothing."""
    before = store.command("HGETALL", store.key("group", GROUP))
    old = {"member": f"trainer/{VICTIM}", "incarnation": 1}
    with pytest.raises(FencedError):
        join_once(store, GROUP, size=SIZE, rank=VICTIM, token="late", **old)  # type: ignore[arg-type]
    with pytest.raises(FencedError):
        break_group(store, GROUP, group_status(store, GROUP).generation, reason="late", source=(f"trainer/{VICTIM}", 1))
    with pytest.raises(FencedError):
        GroupSlot.join(store, GROUP, size=SIZE, rank=VICTIM, timeout_s=0, **old)  # type: ignore[arg-type]
    assert not break_group(store, GROUP, 1, reason="the monitor is late")
    assert store.command("HGETALL", store.key("group", GROUP)) == before


def check_keys(store: RedisStore) -> None:
    """Nothing waits in the name of the process that died; of rendezvous only the present generation's is there."""
    prefix = store.key() if store.key().endswith(":") else store.key() + ":"
    keys = [key.decode().removeprefix(prefix) for key in store.command("KEYS", prefix.replace("{", "\\{") + "*")]
    assert keys, prefix
    generation = group_status(store, GROUP).generation
    assert [key for key in keys if key.startswith("gstore")] == [f"gstore:{GROUP}:{generation}"]
    assert [key for key in keys if re.match(r"groupq|waits|lockq|held|unacked", key)] == []
    dead = [key for key in keys if f"trainer/{VICTIM}#1" in key]
    assert {key.partition(":")[0] for key in dead} <= {"proc", "wake"}
    assert [key for key in dead if store.command("TTL", store.key(*key.split(":", 1))) < 0] == []


@pytest.mark.parametrize("point", OF_A_REFORM)
def test_a_rank_killed_at_any_point_of_a_reform_is_replaced_and_the_others_train_on_in_their_processes(
    point: str, ranks: Ranks, store: RedisStore, eventually: Eventually
) -> None:
    start_all(ranks, point, "kill")
    begin(point, ranks, store, eventually)
    kill_happens(ranks, point)
    ranks.start(VICTIM, first="train")
    ends_well(ranks, store, eventually)


@pytest.mark.parametrize("point", STOPPED_AT)
def test_a_rank_stopped_in_a_reform_and_replaced_can_do_nothing_once_it_goes_on(
    point: str, ranks: Ranks, store: RedisStore, eventually: Eventually
) -> None:
    start_all(ranks, point, "stop")
    begin(point, ranks, store, eventually)
    eventually(lambda: fired(str(ranks.log)), limit_s=LIMIT_S)
    plan, stopped = ranks.now[VICTIM]
    assert stopped.pid is not None
    ranks.start(VICTIM, first="train")
    all_stand(ranks, store, eventually)
    before = store.command("HGETALL", store.key("group", GROUP))
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.join(LIMIT_S)
    assert (stopped.exitcode, told(plan)[-1]["kind"]) == (1, "FencedError"), told(plan)
    assert store.command("HGETALL", store.key("group", GROUP)) == before
    let_go(store, *range(SIZE))
    check_ended(ranks, store)


def test_ranks_that_wait_for_items_learn_from_the_rank_that_joins_anew_that_theirs_are_not_needed(
    ranks: Ranks, store: RedisStore, eventually: Eventually
) -> None:
    Mailbox("items", store, NullRecorder("driver/main", 1)).declare(8, ack="manifest")
    for rank in range(SIZE):
        ranks.start(rank, first="take")
    eventually(lambda: store.command("HLEN", store.key("waits", "trainer/0")) == 1, limit_s=LIMIT_S)
    eventually(lambda: ranks.all_told("first"), limit_s=LIMIT_S)
    ranks.now[VICTIM][1].kill()
    ranks.now[VICTIM][1].join()
    ranks.start(VICTIM, first="train")
    ends_well(ranks, store, eventually)


def kill_happens(ranks: Ranks, point: str) -> None:
    """The one process dies, there and by that."""
    victim = ranks.now[VICTIM][1]
    victim.join(LIMIT_S)
    assert victim.exitcode == -signal.SIGKILL, ranks.whole_story()
    assert fired(str(ranks.log))[-1] == f"{point}#1@trainer/{VICTIM}=kill"


def ends_well(ranks: Ranks, store: RedisStore, eventually: Eventually) -> None:
    """All come to the same end, are looked at, and leave."""
    all_stand(ranks, store, eventually)
    check_standing(ranks, store)
    check_fence(store)
    check_keys(store)
    let_go(store, *range(SIZE))
    check_ended(ranks, store)


def begin(point: str, ranks: Ranks, store: RedisStore, eventually: Eventually) -> None:
    """Generation 1 stands, and is over: by a lost connection that the fault's rank has, or else from outside."""
    eventually(lambda: ranks.all_told("first"), limit_s=LIMIT_S)
    if point not in OF_A_LOST_LINK:
        end_generation(store)


def all_stand(ranks: Ranks, store: RedisStore, eventually: Eventually) -> None:
    """Every rank has trained to its end in the present generation, and stays there."""

    def standing() -> bool:
        return ranks.all_told("trained", generation=group_status(store, GROUP).generation)

    try:
        eventually(standing, limit_s=LIMIT_S)
    except AssertionError as error:
        raise AssertionError(ranks.whole_story()) from error


def let_go(store: RedisStore, *of_ranks: int) -> None:
    """Those have been looked at and may come to their end."""
    for rank in of_ranks:
        store.command("SET", store.key("looked", str(rank)), 1, "EX", 600)


def check_ended(ranks: Ranks, store: RedisStore) -> None:
    """All present processes come to a good end."""
    for rank in range(SIZE):
        ranks.now[rank][1].join(LIMIT_S)
        assert ranks.now[rank][1].exitcode == 0, ranks.whole_story()
    assert group_status(store, GROUP).state == "done"


@pytest.mark.parametrize("point", OF_THE_END)
def test_a_rank_killed_as_the_last_one_at_its_end_is_waited_for_before_its_mark_and_not_needed_after_it(
    point: str, ranks: Ranks, store: RedisStore, eventually: Eventually
) -> None:
    RunClaim.take(store, lease_s=600)
    start_all(ranks, point, "kill")
    others = sorted(set(range(SIZE)) - {VICTIM})
    let_go(store, *others)
    eventually(lambda: all(store.command("HEXISTS", store.key("group", GROUP), f"done:{rank}") for rank in others), limit_s=LIMIT_S)
    let_go(store, VICTIM)
    kill_happens(ranks, point)
    if point == "group.done.after":
        for rank in others:
            ranks.now[rank][1].join(LIMIT_S)
    ranks.start(VICTIM, first="train")
    check_ended(ranks, store)
    generations = [[line["generation"] for line in ranks.story(rank, "running")] for rank in range(SIZE)]
    assert generations == ([[1, 2], [2], [1, 2]] if point == "group.done.before" else [[1], [], [1]])
    assert [ranks.story(rank, "ended")[-1]["how"] for rank in range(SIZE)] == ["done"] * SIZE


def test_every_point_of_a_reform_is_killed_at_here_and_described_in_order() -> None:
    sources = "".join(path.read_text() for folder in ("recovery", "integrations") for path in (ROOT / folder).rglob("*.py"))
    passed = set(re.findall(r'reached\("(group\.[a-z.]+)"', sources))
    passed |= {f"group.{at}" for at in re.findall(r'self\._reached\("([a-z.]+)"\)', (ROOT / "integrations/torch/group.py").read_text())}
    assert passed == set(REFORM_POINTS)
    assert set(REFORM_POINTS) == {*OF_A_REFORM, *OF_THE_END}
    page = (ROOT / "docs/design.md").read_text()
    assert re.findall(r"^\| \d+ \| `(group\.[a-z.]+)` \|", page, re.MULTILINE) == list(REFORM_POINTS)
