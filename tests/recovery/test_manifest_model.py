"""The protocol of manifests against a model: one attempt for a step, committed once by the last answer, never after its generation.

Every question is asked twice and must be answered the same twice, since the store asks again when an answer is lost. After each
step the store, and every reader of it, must say what the model says, and each change of state must be in the table.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.recovery.manifests import GROUP, form, record, write_files
from unknot.recovery.checkpoint_files import list_folders, read_shelf
from unknot.recovery.checkpoints import Answered, Checkpoints, Place
from unknot.recovery.errors import FencedError
from unknot.recovery.group import break_group
from unknot.recovery.manifest import LEGAL, may_follow
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import new_boot, register
from unknot.recovery.weight_rights import declare_publishers
from unknot.recovery.weights import Weights
from unknot.supervisor.store.redis_store import RedisStore

SIZE = 2
KEEP = 2
seqs = st.integers(1, 3)
ranks = st.integers(0, SIZE - 1)
_runs = itertools.count(1)


class Known(msgspec.Struct):
    """An attempt as the model has it."""

    generation: int
    seq: int
    state: str
    answered: set[int]
    number: int = 0
    agents: dict[str, int] = {}
    published: int = 0


class ManifestMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.store = RedisStore.connect(self.url, f"manifest-model-{os.getpid()}-{next(_runs)}")
        self.folder = TemporaryDirectory()
        self.checkpoints = Checkpoints(self.store, Path(self.folder.name), keep=KEEP)
        self.attempts: dict[str, Known] = {}
        self.states: dict[str, str] = {}
        self.numbers = itertools.count(1)
        self.agents: dict[str, int] = {}
        self.published = 0
        self.swept = False
        agent = register(self.store, "agent/a", role="agent", pid=1, host="here", boot=new_boot())
        declare_publishers(self.store, "policy", ["agent/a"])
        self.weights = Weights("policy", self.store, NullRecorder("agent/a", agent.incarnation))
        self.places = form(self.store, size=SIZE)
        self.broken = False
        self.old_places: list[Place] = []

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def stands(self, known: Known) -> bool:
        return not self.broken and known.generation == self.places[0].generation

    def id_of(self, seq: int) -> str:
        generation = self.places[0].generation
        return next((i for i, k in self.attempts.items() if (k.generation, k.seq) == (generation, seq)), "")

    @rule(rank=ranks, seq=seqs)
    def a_rank_prepares(self, rank: int, seq: int) -> None:
        self.prepare(rank, seq)

    def prepare(self, rank: int, seq: int) -> None:
        first = self.checkpoints.prepare(self.places[rank], seq)
        assert self.checkpoints.prepare(self.places[rank], seq) == first, "asked again, answered the same"
        known = self.id_of(seq)
        if self.broken:
            assert first.id == ""
        elif not known:
            assert first.id
            self.attempts[first.id] = Known(self.places[0].generation, seq, "preparing", set())
            for other in self.attempts.values():
                if other.generation != self.places[0].generation and other.state == "preparing":
                    other.state = "abandoned"
        elif self.attempts[known].state in ("abandoned", "dropped"):
            assert first.id == ""
        else:
            assert first.id == known

    @precondition(lambda self: self.attempts)
    @rule(rank=ranks, data=st.data())
    def answer(self, rank: int, data: st.DataObject) -> None:
        self.answered(data.draw(st.sampled_from(sorted(self.attempts))), rank)

    @rule(seq=seqs, first=ranks)
    def all_ranks_save(self, seq: int, first: int) -> None:
        for rank in (first, 1 - first):
            self.prepare(rank, seq)
        if id_ := self.id_of(seq):
            for rank in (first, 1 - first):
                self.answered(id_, rank)

    @rule(seq=seqs, rank=ranks)
    def one_rank_gives_up_and_the_other_does_not_know_yet(self, seq: int, rank: int) -> None:
        self.prepare(rank, seq)
        if id_ := self.id_of(seq):
            self.give_up(id_, rank)
            self.prepare(1 - rank, seq)
            self.answered(id_, 1 - rank)

    def answered(self, id_: str, rank: int) -> None:
        known = self.attempts[id_]
        place = self.places[rank]
        mine = record(rank, source=place.source, body=id_.encode())
        write_files(self.checkpoints.folder(id_), mine, body=id_.encode())
        first = self.checkpoints.answer(id_, place, mine)
        assert self.checkpoints.answer(id_, place, mine) == first, "asked again, answered the same"
        self.expect_answer(first, known, rank)

    def expect_answer(self, said: Answered, known: Known, rank: int) -> None:
        if known.state == "preparing" and not self.stands(known):
            known.state = "abandoned"
        if known.state in ("abandoned", "dropped"):
            assert (said.outcome, said.manifest) == ("over", None)
            return
        known.answered.add(rank)
        if known.state == "preparing" and len(known.answered) == SIZE:
            known.state, known.number = "committed", next(self.numbers)
            known.agents, known.published = dict(self.agents), self.published
        if known.state == "committed":
            assert said.outcome == "committed"
            assert said.manifest is not None
            assert said.manifest.number == known.number
        else:
            assert said.outcome == "waiting"

    def give_up(self, id_: str, rank: int) -> None:
        known = self.attempts[id_]
        over = self.checkpoints.abandon(id_, self.places[rank], "a test says so")
        assert self.checkpoints.abandon(id_, self.places[rank], "again") == over
        if known.state == "preparing":
            known.state = "abandoned"
        assert over == (known.state == "abandoned")

    @precondition(lambda self: self.attempts and not self.broken)
    @rule()
    def the_generation_ends(self) -> None:
        break_group(self.store, GROUP, self.places[0].generation, reason="a test ends it")
        self.broken = True

    @precondition(lambda self: self.broken)
    @rule()
    def the_next_generation_forms(self) -> None:
        self.old_places = self.places
        self.places = form(self.store, size=SIZE)
        self.broken = False

    @precondition(lambda self: self.old_places and self.attempts)
    @rule(rank=ranks, data=st.data())
    def a_late_rank_of_an_old_generation_changes_nothing(self, rank: int, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.attempts)))
        late = self.old_places[rank]
        for call in (
            lambda: self.checkpoints.prepare(late, 1),
            lambda: self.checkpoints.answer(id_, late, record(rank, source=late.source)),
            lambda: self.checkpoints.abandon(id_, late, "late"),
        ):
            try:
                call()
            except FencedError:
                continue
            raise AssertionError("a replaced process was heard")

    @rule(seq=st.integers(1, 99))
    def an_agent_commits_a_step(self, seq: int) -> None:
        self.agents["agent/a"] = seq
        self.store.command("HSET", self.store.key("step", "agent/a"), "committed", seq)

    @rule()
    def weights_are_published(self) -> None:
        self.published = self.weights.publish(self.published).n

    @rule()
    def settle(self) -> None:
        settled = self.checkpoints.settle()
        kept = sorted((k for k in self.attempts.values() if k.state == "committed"), key=lambda k: -k.number)
        for known in kept[KEEP:]:
            known.state = "dropped"
        assert len(settled.dropped) == len(kept[KEEP:])
        gone = [i for i, k in self.attempts.items() if k.state != "committed" and not (k.state == "preparing" and self.stands(k))]
        for id_ in gone:
            del self.attempts[id_]
        again = self.checkpoints.settle()
        assert (again.written, again.dropped, again.swept) == ((), (), ()), "twice is once"
        self.swept = True

    def kept(self) -> list[str]:
        return sorted(i for i, k in self.attempts.items() if k.state == "committed")

    @precondition(lambda self: self.kept())
    @rule(data=st.data())
    def a_manifest_file_was_lost_in_a_crash(self, data: st.DataObject) -> None:
        (self.checkpoints.folder(data.draw(st.sampled_from(self.kept()))) / "manifest.json").unlink(missing_ok=True)

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        found = {attempt.id: attempt for attempt in self.checkpoints.attempts()}
        assert found.keys() == self.attempts.keys()
        for id_, known in self.attempts.items():
            attempt = found[id_]
            assert attempt.validate() == ()
            assert (attempt.state, set(attempt.answered)) == (known.state, known.answered), id_
            assert attempt.live == (known.state == "preparing" and self.stands(known))

    @invariant()
    def every_change_of_state_is_in_the_table(self) -> None:
        now: dict[str, Any] = {attempt.id: attempt.state for attempt in self.checkpoints.attempts()}
        for id_ in self.states.keys() | now.keys():
            before, after = self.states.get(id_), now.get(id_)
            assert before == after or self.reachable(before, after), (id_, before, after)
        self.states = now

    def reachable(self, before: Any, after: Any) -> bool:
        """In one change, or in the two that one call of housekeeping makes."""
        return may_follow(before, after) or any(may_follow(before, one) and may_follow(one, after) for one in LEGAL)

    @invariant()
    def readers_see_committed_manifests_alone_with_what_stood_at_their_commit(self) -> None:
        seen = self.checkpoints.manifests()
        kept = {i: k for i, k in self.attempts.items() if k.state == "committed"}
        assert [one.id for one in seen] == sorted(kept, key=lambda i: -kept[i].number)
        for one in seen:
            assert one.validate() == ()
            assert one.agents == kept[one.id].agents
            assert [version.n for version in one.weights] == ([kept[one.id].published] if kept[one.id].published else [])
            assert self.checkpoints.examine(one) == ()
        on_disk = read_shelf(self.checkpoints.directory)
        assert on_disk.unreadable == ()
        dropped = {i for i, k in self.attempts.items() if k.state == "dropped"}
        assert {one.id for one in on_disk.manifests} <= kept.keys() | dropped

    @invariant()
    def after_housekeeping_only_what_is_committed_or_live_has_files(self) -> None:
        if self.swept:
            self.swept = False
            assert {entry.name for entry in list_folders(self.checkpoints.directory)} <= self.attempts.keys()
            assert {one.id for one in read_shelf(self.checkpoints.directory).manifests} == {
                i for i, k in self.attempts.items() if k.state == "committed"
            }


def test_making_manifests_is_its_model(redis_url: str) -> None:
    ManifestMachine.url = redis_url
    run_state_machine_as_test(
        ManifestMachine,
        settings=settings(max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)),
    )
