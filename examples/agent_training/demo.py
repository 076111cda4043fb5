"""What the demo does to the run, and what it demands of it."""

import contextlib
import os
import tempfile
from pathlib import Path

from members import EXPERT, RANKS

from unknot.recovery.points import FAULTS_ENV, LOG_ENV, fired

# Each at a named point of a step: the agent and the judge before their commit, the rank before it votes.
FAULTS = (
    "step.commit.before#3@agent/r2=kill",
    "step.commit.before#9@judge/j0=kill",
    "train.vote.before#24@trainer/1=kill",
)
KNOT_IS_TOLD_WITHIN_S = 1.0


@contextlib.contextmanager
def faults_of_the_demo():
    """Arms the faults for all processes that are started inside; gives a function that tells which have fired."""
    with tempfile.TemporaryDirectory(prefix="unknot-demo-") as folder:
        log = str(Path(folder) / "faults")
        os.environ |= {FAULTS_ENV: " ".join(FAULTS), LOG_ENV: log}
        try:
            yield lambda: fired(log)
        finally:
            del os.environ[FAULTS_ENV], os.environ[LOG_ENV]


def show(incident):
    print(f"\n{incident.id}  {incident.headline}")
    for number, line in enumerate(incident.lines, 1):
        print(f"  {number}. {line.text}")
    for action in incident.actions:
        print(f"  {action.remedy} {action.target}: {action.outcome}{f' ({action.note})' if action.note else ''}")
    if incident.resolution:
        print(f"  {incident.resolution}")


def check(report, undisturbed, *, steps, items, fired):
    """Exit status of the demo: 0 only if everything happened, was told and repaired, and nothing was lost by it."""
    for incident in report.incidents:
        show(incident)
    for recovery in report.recoveries:
        parts = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in recovery.split().items())
        print(f"\nrecovery of {recovery.source}: {parts}")
    problems = [*of_the_knot(report), *of_the_losses(report, fired), *of_the_result(report, undisturbed, steps, items)]
    print("\n".join(f"FAILED: {problem}" for problem in problems) or f"all {steps} steps were finished: OK")
    return 1 if problems else 0


def of_the_knot(report):
    found = [i for i in report.incidents if i.cause == "deadlock"]
    if len(found) != 1:
        return [f"expected one deadlock, found {len(found)}"]
    knot = found[0]
    seen_s = knot.confirmed_at - knot.closing_wait_at
    print(f"\nfrom the closing wait to the confirmed incident: {seen_s:.3f} s")
    told = " ".join(line.text for line in knot.lines)
    named = ("trainer/0", "trainer/1", f"agent/{EXPERT}", "search-tool", "group policy", "fresh")
    problems = [f"{name} is not named" for name in named if name not in told]
    problems += [] if seen_s <= KNOT_IS_TOLD_WITHIN_S else [f"confirmed only after {seen_s:.3f} s"]
    broke = [a for a in knot.actions if a.remedy == "break" and a.outcome == "done"]
    problems += [] if broke else ["the group was not broken"]
    return problems + ([] if knot.state == "resolved" else ["the incident is still open"])


def of_the_losses(report, fired):
    problems = [f"{fault} did not fire" for fault in FAULTS if fault not in fired]
    lost = sorted(i.culprits[0] for i in report.incidents if i.kind == "crash" and i.state == "resolved")
    wanted = ["agent/r2#1", "judge/j0#1", "trainer/1#1"]
    return problems + ([] if lost == wanted else [f"lost and replaced were {lost}, not {wanted}"])


def of_the_result(report, undisturbed, steps, items):
    ranks = [report.outcomes.get(f"trainer/{rank}") for rank in range(RANKS)]
    problems = [] if ranks == ["done"] * RANKS else [f"trainers ended as {ranks}"]
    if items.acked != RANKS * steps or items.sent != items.acked + items.queued:
        problems.append(f"{RANKS * steps} items should have been consumed")
    digest, wanted = report.digests.get("policy"), undisturbed.digests.get("policy")
    print(f"undisturbed {wanted}\ndisturbed   {digest}")
    return problems + ([] if digest is not None and digest == wanted else ["the weights are not those of the undisturbed run"])
