"""Chaos: a real training run in which an agent, the judge and each trainer rank are killed at named points, once for each seed.

    python tests/chaos/run.py [--steps N] SEED...

First the example trains undisturbed; then, for each seed, again with the same training seed and with `kill -9` at points that the chaos
seed chooses: of steps and commits (agent, judge), of votes, saves, restores and re-forms (ranks). Each run must finish, its faults must
have fired, every item must have been consumed once, the SHA-256 over weights, optimizer and random generators must be that of
the undisturbed run, and no process that it started may be left. Exit status 1 if one falls short; it prints how to repeat that one.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from unknot.recovery import points

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent_training" / "main.py"
AGENTS, MANIFEST_EVERY = 4, 5
MARK = "UNKNOT_CHAOS_RUN"
LIMIT_S = 600.0
_DIGEST = re.compile(r"random generators: ([0-9a-f]{64})")
_ITEMS = re.compile(r"items of the trainers: (\d+) sent, (\d+) consumed once each, (\d+) left over")

OF_STEPS = ("step.begun", "step.commit.before", "step.commit.after", "step.ended")
OF_TRAINING = ("train.body.before", "train.vote.before", "train.vote.after", "train.commit.after")
OF_SAVING = (
    "manifest.prepare.before", "manifest.prepare.after", "manifest.shards.before", "manifest.shards.after",
    "manifest.rng.after", "manifest.digest.after", "manifest.answer.before", "manifest.answer.after",
)  # fmt: skip
OF_A_REFORM = (
    "group.joined#2", "group.connected#2", "group.running#2", "restore.verify.before", "restore.load.before",
    "restore.load.after", "restore.rng.after",
)  # fmt: skip


class Outcome(NamedTuple):
    """One run of the example: exit status, digest, (sent, consumed, left over), processes left, seconds, output."""

    status: int
    digest: str
    items: tuple[int, int, int]
    left: tuple[str, ...]
    took_s: float
    output: str


def faults_of(seed: int, steps: int) -> list[str]:
    """What a seed kills, and where: an agent, the judge, and both ranks, the second one while the group goes back."""
    chance = random.Random(seed)
    per_agent = 2 * steps // AGENTS
    first, second = chance.sample([0, 1], 2)
    training = f"{chance.choice(OF_TRAINING)}#{chance.randint(2, steps - 1)}"
    saving = f"{chance.choice(OF_SAVING)}#{chance.randint(1, steps // MANIFEST_EVERY)}"
    return [
        f"{chance.choice(OF_STEPS)}#{chance.randint(1, per_agent - 1)}@agent/r{chance.randrange(AGENTS)}=kill",
        f"{chance.choice(OF_STEPS)}#{chance.randint(1, 2 * steps - 4)}@judge/j0=kill",
        f"{chance.choice([training, saving])}@trainer/{first}=kill",
        f"{chance.choice(OF_A_REFORM)}@trainer/{second}=kill",
    ]


def train(steps: int, faults: list[str], log: Path) -> Outcome:
    """Run the example in a process of its own."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, MARK: mark}
    if faults:
        environment |= {points.FAULTS_ENV: " ".join(faults), points.LOG_ENV: str(log)}
    began = time.monotonic()
    command = [sys.executable, str(EXAMPLE), "--deterministic", "--steps", str(steps)]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False
    )
    found, items = _DIGEST.search(done.stdout), _ITEMS.search(done.stdout)
    counts = tuple(int(number) for number in items.groups()) if items else (0, 0, 0)
    return Outcome(
        done.returncode, found[1] if found else "", (counts[0], counts[1], counts[2]), left_of(mark),
        time.monotonic() - began, done.stdout,
    )  # fmt: skip


def left_of(mark: str) -> tuple[str, ...]:
    """Processes that the run of that mark has started and not ended, after a moment to end in."""
    deadline = time.monotonic() + 20.0
    while left := [process for process in psutil.process_iter() if _has(process, mark)]:
        if time.monotonic() > deadline:
            return tuple(f"{process.pid} {' '.join(process.cmdline()[:3])}" for process in left)
        time.sleep(0.2)
    return ()


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(MARK) == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False


def problems_of(outcome: Outcome, undisturbed: Outcome, *, steps: int, unfired: list[str]) -> list[str]:
    """What falls short."""
    sent, consumed, left_over = outcome.items
    found = [f"{fault} did not fire" for fault in unfired]
    found += [] if outcome.status == 0 else [f"exit status {outcome.status}"]
    found += [] if outcome.digest == undisturbed.digest else [f"digest {outcome.digest or 'none'} is another one"]
    found += [] if (consumed, sent) == (2 * steps, consumed + left_over) else [f"items {outcome.items}"]
    return found + [f"left running: {process}" for process in outcome.left]


def main() -> int:
    """Exit status 0 only if every seed came out as the undisturbed run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=12)
    options.add_argument("seeds", type=int, nargs="+")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="unknot-chaos-") as folder:
        undisturbed = train(chosen.steps, [], Path(folder) / "none")
        say(f"undisturbed: {undisturbed.took_s:.0f} s, {undisturbed.digest or undisturbed.output}")
        if not undisturbed.digest:
            return 1
        return 1 if [seed for seed in chosen.seeds if not survives(seed, chosen.steps, undisturbed, Path(folder))] else 0


def survives(seed: int, steps: int, undisturbed: Outcome, folder: Path) -> bool:
    """Whether a run with the faults of `seed` comes out the same; says what it did."""
    faults, log = faults_of(seed, steps), folder / f"faults-{seed}"
    say(f"seed {seed}: {' '.join(faults)}")
    try:
        outcome = train(steps, faults, log)
    except subprocess.TimeoutExpired as error:
        say(f"seed {seed}: FAILED: not finished within {LIMIT_S:.0f} s\n{error.stdout!s}")
        return False
    fired = points.fired(str(log))
    wanted = [fault.text for fault in points.parse_faults(" ".join(faults))]
    problems = problems_of(outcome, undisturbed, steps=steps, unfired=[one for one in wanted if one not in fired])
    if problems:
        say(f"{outcome.output}\nseed {seed}: FAILED: {'; '.join(problems)}\nrepeat: make chaos SEEDS={seed}")
    else:
        say(f"seed {seed}: {outcome.took_s:.0f} s, all fired, {outcome.items[1]} items once each, the same digest: OK")
    return not problems


def say(text: str) -> None:
    """A line for people, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
