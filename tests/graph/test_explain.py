"""What people read."""

from __future__ import annotations

from tests.graph.scenes import Scene, any_of, atom, demo
from unknot.graph import events as ev
from unknot.graph.advice import advice
from unknot.graph.explain import headline, sentences, slow_headline, slow_sentence, suspect_sentence, text
from unknot.graph.slow import slow_chains
from unknot.graph.unmatched import unmatched
from unknot.graph.verdict import evaluate
from unknot.graph.wording import age, listed


def told(scene: Scene, now: float = 50.0) -> str:
    (finding,) = evaluate(scene.graph, now).findings
    return text(sentences(scene.graph, finding, now))


def first_line(scene: Scene, now: float = 50.0) -> str:
    (finding,) = evaluate(scene.graph, now).findings
    return headline(finding, "ppo-17", now)


def test_the_headline_walks_once_round_the_ring_and_hides_the_group_queue() -> None:
    assert first_line(demo()) == (
        "DEADLOCK in run ppo-17: agent/b → lock:weights → trainer/0 → coll:policy → trainer/1 → mbox:raw → agent/b"
        " (standing for 45 s)"
    )


def test_the_demo_in_sentences() -> None:
    assert told(demo()).splitlines() == [
        "1. agent/b#1 waits 45 s for lock weights (agents.py:31), held by trainer/0#1.",
        (
            "2. trainer/0#1 waits 47 s in all_reduce #41 of group policy (train.py:88): 1 of 2 ranks arrived; "
            "missing trainer/1#1 (waiting for mailbox raw since 46 s at main.py:30)."
        ),
        "3. trainer/1#1 waits 46 s for a message in mailbox raw (main.py:30), which only agent/b#1 could send.",
        "4. driver/main#1 waits 49 s for trainer/0#1 and trainer/1#1 to answer.",
    ]


def test_a_later_generation_is_mentioned_and_the_first_is_not() -> None:
    scene = Scene().resource("coll:policy@g2", "collective", members=("a", "b")).start("a", "b").end("b", "crash")
    scene.put(ev.Arrive(p="a", r="coll:policy@g2", seq=7, op="all_gather")).wait("a", atom("coll:policy@g2", seq=7))
    assert told(scene).splitlines() == [
        "1. b crashed 50 s ago and is still awaited at group policy (generation 2).",
        (
            "2. a waits 49 s in all_gather #7 of group policy (generation 2): 1 of 2 ranks arrived; "
            "missing b (crashed 50 s ago)."
        ),
    ]
    assert first_line(scene) == "DEAD in run ppo-17: a → coll:policy@g2 → b (gone) (standing for 49 s)"


def test_weights_are_told_by_their_name_and_version_and_are_published() -> None:
    scene = Scene().resource("event:weights:policy:1", "event", setters=("b",)).start("a", "b").end("b")
    scene.wait("a", atom("event:weights:policy:1"), site="x.py:3")
    assert told(scene).splitlines() == [
        "1. b ended 50 s ago and is still awaited at weights policy, version 1.",
        "2. a waits 49 s for weights policy, version 1 (x.py:3), which nobody is left to publish: b (ended 50 s ago).",
    ]
    assert first_line(scene) == "ABSENT in run ppo-17: a → weights:policy:1 → b (gone) (standing for 49 s)"


def misspelt() -> Scene:
    """A driver that waits for the agent and the trainer, a trainer that waits for senders of whom there are none."""
    scene = Scene().resource("mbox:policy", "mailbox", senders=("agnt/*",), receivers=("trainer/*",))
    scene.start("driver/main#1", "agent/a#1", "trainer/0#1").end("agent/a#1")
    return scene.wait("trainer/0#1", atom("mbox:policy", op="recv"), site="x.py:3").wait("driver/main#1", atom("p=trainer/0#1"))


def test_senders_that_match_no_member_are_told_with_those_that_may_be_meant() -> None:
    scene = misspelt()
    said = "no member matches senders 'agnt/*' (did you mean agent/*?)"
    assert f"waits 49 s for a message in mailbox policy (x.py:3), which only driver/main#1 could send; {said}." in told(scene)
    (finding,) = evaluate(scene.graph, 50.0).findings
    assert advice(scene.graph, finding).startswith(f"Mend the declaration of mailbox policy: {said}. ")


def test_a_list_that_some_member_matches_or_that_names_nobody_is_not_called_misspelt() -> None:
    members = ["agent/a", "trainer/0", "driver/main"]
    assert unmatched("senders", ("judge/*", "agent/?"), members) == ""
    assert unmatched("senders", ("agent/a#1/loader",), members) == ""
    assert unmatched("senders", (), members) == ""
    assert unmatched("senders", None, members) == ""
    assert unmatched("receivers", ("trainer/O",), members) == "no member matches receivers 'trainer/O' (did you mean trainer/0?)"
    assert unmatched("senders", ("x/*", "y/*"), members) == "no member matches senders 'x/*' or 'y/*'"


def test_a_dead_holder_comes_first() -> None:
    scene = Scene().resource("lock:weights", "lock").hold("b", "lock:weights").end("b", "crash")
    scene.wait("a", atom("lock:weights"), site="x.py:3")
    assert told(scene).splitlines() == [
        "1. b crashed 50 s ago and still holds lock weights.",
        "2. a waits 49 s for lock weights (x.py:3), held by b (crashed 50 s ago).",
    ]


def test_nobody_left_to_send() -> None:
    scene = Scene().resource("mbox:raw", "mailbox", senders=()).wait("a", atom("mbox:raw", op="recv"))
    assert told(scene) == "1. a waits 49 s for a message in mailbox raw, which nobody is left to send."
    assert first_line(scene) == "ABSENT in run ppo-17: a → mbox:raw → nobody (standing for 49 s)"


def test_a_choice_says_that_none_can_come() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("a",)).start("a", "b").wait("b", atom("p=a"))
    scene.wait("a", *any_of(atom("mbox:m", op="recv"), atom("p=b")))
    assert told(scene).splitlines()[0] == (
        "1. a waits 48 s for any of these: for a message in mailbox m, which only a could send; "
        "or for b to answer — none can come."
    )


def test_a_mismatch_says_who_issued_what() -> None:
    scene = Scene().resource("coll:g@g1", "collective", members=("a", "b")).start("a", "b")
    scene.put(ev.Arrive(p="a", r="coll:g@g1", seq=1, op="all_reduce"))
    scene.put(ev.Arrive(p="b", r="coll:g@g1", seq=1, op="broadcast", root=0)).wait("a", atom("coll:g@g1", seq=1))
    assert told(scene) == (
        "1. a waits 49 s in all_reduce #1 of group g, where the ranks disagree: "
        "a issued all_reduce; b issued broadcast, root 0."
    )
    assert first_line(scene) == "MISMATCH in run ppo-17: coll:g #1 issued differently by a and b (standing for 49 s)"


def test_a_long_chain_is_five_lines_and_a_number() -> None:
    scene = demo()
    for n in range(13):
        scene.start(f"env/{n}#1").wait(f"env/{n}#1", atom("p=trainer/0#1"))
    lines = told(scene).splitlines()
    assert len(lines) == 6
    assert lines[-1] == "and 12 more behind it"


def test_a_timed_ring_says_when_it_ends() -> None:
    scene = Scene().start("a", "b").wait("a", atom("p=b"), deadline=68.0).wait("b", atom("p=a"))
    assert first_line(scene) == "DEADLOCK in run ppo-17: a → answer → b → answer → a (standing for 48 s, ends by itself in 18 s)"
    assert "it goes on by itself in 18 s" in told(scene)


def test_slow_and_outside_are_told_without_the_word_deadlock() -> None:
    scene = Scene().start("agent/s#1").wait("trainer/0#1", atom("p=agent/s#1"), site="x.py:1")
    (chain,) = slow_chains(scene.graph, 50.0, 10.0)
    assert slow_headline(chain, "ppo-17") == "SLOW in run ppo-17: trainer/0 waits for agent/s (for 49 s)"
    assert slow_sentence(chain) == (
        "trainer/0#1 waits at x.py:1 for agent/s#1, and agent/s#1 still runs; the oldest wait is 49 s."
    )
    human = Scene().wait("trainer/0#1", atom("ext=approval"))
    (outside,) = slow_chains(human.graph, 50.0, 10.0)
    assert slow_headline(outside, "ppo-17") == "EXTERNAL in run ppo-17: trainer/0 waits for approval (for 49 s)"
    (suspect,) = evaluate(human.graph, 50.0).suspects
    assert suspect_sentence(suspect, 50.0) == "trainer/0#1 waits 49 s for approval, outside the run."


def test_words_for_numbers_and_lists() -> None:
    assert [age(s) for s in (0.42, 42, 400, 9000)] == ["0.4 s", "42 s", "7 min", "2.5 h"]
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed("abcdefg") == "a, b, c and 4 more"
