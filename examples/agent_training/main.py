"""A small but real agent training run on Ray: 2 FSDP2 trainer ranks, a judge, 4 rollout agents, 2 simulators.

    python examples/agent_training/main.py                  trains, with progress, loss and reward
    python examples/agent_training/main.py --deterministic  the same, and the same weights each time
    python examples/agent_training/main.py --straggler      one simulator is slow: it is named, not called a deadlock
    python examples/agent_training/main.py --demo           trains twice: undisturbed, then with a wait across lock, mailbox and
                                                            collective, and with an agent, the judge and a rank killed
"""

import argparse
import sys
import time
from datetime import timedelta

from demo import check, faults_of_the_demo, show
from members import AGENTS, EXPERT, RANKS, Expert, Judge, Plan, Rollout, Simulator, Trainer

import unknot

SIMULATORS = 2
KNOT_AT = 12
STRAGGLE_S = 4.0
LIMIT = timedelta(minutes=10)


def start(run, plan):
    ordered = {"order": "origin", "origins": [f"agent/r{i}" for i in range(AGENTS)]} if plan.deterministic else {}
    run.mailbox("raw", capacity=8, senders="agent/r*", receivers="judge/*")
    run.mailbox("scored", capacity=8, senders="judge/*", receivers="trainer/*", ack="manifest", **ordered)
    run.mailbox("requests", capacity=1, senders="trainer/*", receivers=f"agent/{EXPERT}")
    run.mailbox("fresh", capacity=1, senders=f"agent/{EXPERT}", receivers="trainer/*")
    run.group(Trainer, plan, size=RANKS)
    run.spawn(Judge, name="j0")
    run.spawn(Expert, name=EXPERT)
    simulators = [
        run.spawn(Simulator, plan.slow_s if i == 0 else 0.0, name=f"e{i}") for i in range(SIMULATORS)
    ]
    for i in range(AGENTS):
        run.spawn(Rollout, f"r{i}", simulators[i % SIMULATORS].actor, i, plan, name=f"r{i}")


def train(plan, *, run=None, redis=None):
    """One run: its report, and what the mailbox of the trainers says of its items."""
    config = {"slow_after_s": STRAGGLE_S / 2} if plan.slow_s else {}
    started = time.monotonic()
    with unknot.init(run, redis=redis, config=config) as running:
        start(running, plan)
        report = running.wait(timeout=LIMIT)
        items = running.mailbox_statistics("scored")
    print(f"{plan.steps} steps finished in {time.monotonic() - started:.0f} s")
    print(f"items of the trainers: {items.sent} sent, {items.acked} consumed once each, {items.queued} left over at the end")
    print(f"SHA-256 over weights, optimizer and random generators: {report.digests.get('policy', 'none')}", flush=True)
    return report, items


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=30)
    options.add_argument("--straggler", action="store_true")
    options.add_argument("--deterministic", action="store_true")
    options.add_argument("--demo", action="store_true")
    options.add_argument("--run", help="name of the run")
    options.add_argument("--redis", help="URL of a Redis; by default a private one is started")
    chosen = options.parse_args()
    place = {"run": chosen.run, "redis": chosen.redis}
    if chosen.demo:
        return demo(chosen.steps, place)
    plan = Plan(
        steps=chosen.steps, deterministic=chosen.deterministic, slow_s=STRAGGLE_S if chosen.straggler else 0.0
    )
    report, _ = train(plan, **place)
    for incident in report.incidents:
        show(incident)
    return 0


def demo(steps, place):
    print("first, undisturbed:", flush=True)
    undisturbed, _ = train(Plan(steps=steps, deterministic=True), **place)
    print("\nnow with a knot across three layers, and with kill -9 of an agent, of the judge and of a trainer rank:", flush=True)
    with faults_of_the_demo() as fired:
        report, items = train(Plan(steps=steps, deterministic=True, knot_at=KNOT_AT), **place)
        return check(report, undisturbed, steps=steps, items=items, fired=fired())


if __name__ == "__main__":
    sys.exit(main())
