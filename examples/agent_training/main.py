"""A small but real agent training run on Ray: 2 FSDP2 trainer ranks, a judge, 4 rollout agents, 2 simulators.

    python examples/agent_training/main.py                 trains, with progress, loss and reward
    python examples/agent_training/main.py --straggler     one simulator is slow: it is named, not called a deadlock
    python examples/agent_training/main.py --demo          a wait across lock, mailbox and collective is planted, explained, freed
"""

import argparse
import sys
import time
from datetime import timedelta

from members import AGENT_WHO_IS_ASKED, Judge, Plan, Rollout, Simulator, Trainer

import unknot

AGENTS, SIMULATORS, RANKS = 4, 2, 2
KNOT_AT = 12
STRAGGLE_S = 4.0


def start(run, plan):
    run.mailbox("raw", capacity=8, senders="agent/*", receivers="judge/*")
    run.mailbox("scored", capacity=8, senders="judge/*", receivers="trainer/*")
    run.mailbox("requests", capacity=1, senders="trainer/*", receivers=f"agent/{AGENT_WHO_IS_ASKED}")
    run.mailbox("fresh", capacity=1, senders=f"agent/{AGENT_WHO_IS_ASKED}", receivers="trainer/*")
    run.group(Trainer, plan, size=RANKS)
    run.spawn(Judge, name="j0")
    simulators = [
        run.spawn(Simulator, plan.slow_s if i == 0 else 0.0, name=f"e{i}") for i in range(SIMULATORS)
    ]
    for i in range(AGENTS):
        run.spawn(Rollout, f"r{i}", simulators[i % SIMULATORS].actor, i, name=f"r{i}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=30)
    options.add_argument("--straggler", action="store_true")
    options.add_argument("--demo", action="store_true")
    options.add_argument("--run", help="name of the run")
    options.add_argument("--redis", help="URL of a Redis; by default a private one is started")
    chosen = options.parse_args()
    plan = Plan(
        steps=chosen.steps,
        knot_at=KNOT_AT if chosen.demo else None,
        slow_s=STRAGGLE_S if chosen.straggler else 0.0,
    )
    config = {"slow_after_s": STRAGGLE_S / 2} if chosen.straggler else {}
    started = time.monotonic()
    with unknot.init(chosen.run, redis=chosen.redis, config=config) as run:
        start(run, plan)
        report = run.wait(timeout=timedelta(minutes=10))
    print(f"{plan.steps} steps finished in {time.monotonic() - started:.0f} s")
    for incident in report.incidents:
        show(incident)
    return check(report, plan) if chosen.demo else 0


def show(incident):
    print(f"\n{incident.id}  {incident.headline}")
    for number, line in enumerate(incident.lines, 1):
        print(f"  {number}. {line.text}")
    for action in incident.actions:
        print(f"  {action.remedy} {action.target}: {action.outcome}{f' ({action.note})' if action.note else ''}")
    if incident.resolution:
        print(f"  {incident.resolution}")


def check(report, plan):
    """Exit status of the demo: 0 only if the knot was found in time, told, broken, and every step was finished."""
    found = [i for i in report.incidents if i.cause == "deadlock"]
    problems = []
    if len(found) != 1:
        problems.append(f"expected one deadlock, found {len(found)}")
    else:
        seen_s = found[0].confirmed_at - found[0].closing_wait_at
        print(f"\nfrom the closing wait to the confirmed incident: {seen_s:.3f} s")
        told = " ".join(line.text for line in found[0].lines)
        named = ("trainer/0", "trainer/1", f"agent/{AGENT_WHO_IS_ASKED}", "search-tool", "group policy", "fresh")
        problems += [f"{name} is not named" for name in named if name not in told]
        problems += [] if seen_s <= 1.0 else [f"confirmed only after {seen_s:.3f} s"]
        broke = [a for a in found[0].actions if a.remedy == "break" and a.outcome == "done"]
        problems += [] if broke else ["the group was not broken"]
        problems += [] if found[0].state == "resolved" else ["the incident is still open"]
    ranks = [report.outcomes.get(f"trainer/{rank}") for rank in range(RANKS)]
    problems += [] if ranks == ["done"] * RANKS else [f"trainers ended as {ranks}"]
    print("\n".join(f"FAILED: {problem}" for problem in problems) or f"all {plan.steps} steps were finished: OK")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
