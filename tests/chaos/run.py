"""Chaos: a real training run in which an agent, the judge and each trainer rank are killed at named points, once for each seed.

    python -m tests.chaos.run [--steps N] SEED...

First the example trains undisturbed; then, for each seed, again with the same training seed and with `kill -9` at points that the chaos
seed chooses: of steps and commits (agent, judge), of votes, saves, restores and re-forms (ranks). Each run must finish, its faults must
have fired, every item must have been consumed once, and the SHA-256 over weights, optimizer and random generators must be that of
the undisturbed run.

Nothing may be left: no process that it started, no port that one of them listened on; in a Ray that is there before and after (odd
seeds) no placement group and no actor; in such a Redis (odd seeds) no key of a kind that the undisturbed run does not keep. A run with
a Ray and a Redis of its own (even seeds) must end both.

Exit status 1 if one falls short; it prints how to repeat that one.
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

from tests.chaos.inside import EXAMPLE, LEFT
from tests.chaos.traces import MARK, Traces, kinds_of_keys, left_in_directory, left_in_redis
from unknot.recovery import points
from unknot.supervisor.store.embedded import start_redis

INSIDE = Path(__file__).with_name("inside.py")
AGENTS, MANIFEST_EVERY = 4, 5
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
    """One run of the example: exit status, digest, (sent, consumed, left over), what is left of it, seconds, output."""

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


class Place(NamedTuple):
    """Where runs go on: a folder for all of them, the Redis that is there before and after, the kinds of keys that a run keeps there."""

    folder: Path
    redis: str
    kept: frozenset[str] = frozenset()


def train(steps: int, faults: list[str], *, name: str, place: Place, outlived: bool) -> Outcome:
    """Run the example in a process of its own; `outlived`: on a Ray and a Redis that are there before and after."""
    mark, runs = f"{os.getpid()}-{time.monotonic_ns()}", place.folder / name
    command = [sys.executable, str(INSIDE if outlived else EXAMPLE), "--deterministic", "--steps", str(steps), "--run", name]
    command += ["--redis", place.redis] if outlived else []
    traces, began = Traces(mark), time.monotonic()
    status, said = _said_by(command, {**_environment(faults, log_of(place, name)), MARK: mark, "SUPERVISOR_RUN_DIR": str(runs)})
    took_s = time.monotonic() - began
    left = (*traces.left(), *(line for line in said.splitlines() if line.startswith(LEFT)), *left_in_directory(runs))
    if outlived and place.kept:
        left += left_in_redis(place.redis, name, place.kept)
    found, items = _DIGEST.search(said), _ITEMS.search(said)
    counts = tuple(int(number) for number in items.groups()) if items else (0, 0, 0)
    return Outcome(status, found[1] if found else "", (counts[0], counts[1], counts[2]), left, took_s, said)


def log_of(place: Place, name: str) -> Path:
    """Where a run notes which faults have fired."""
    return place.folder / f"faults-{name}"


def _environment(faults: list[str], log: Path) -> dict[str, str]:
    """The workers of a Ray that was there before find the example's modules by it."""
    path = os.pathsep.join([str(EXAMPLE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    armed = {points.FAULTS_ENV: " ".join(faults), points.LOG_ENV: str(log)} if faults else {}
    return {**os.environ, **armed, "PYTHONPATH": path}


def _said_by(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Exit status and output; of one that does not end in time, what it has said until it is killed."""
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said, _ = running.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        running.kill()
        said, _ = running.communicate()
        said += f"\nnot finished within {LIMIT_S:.0f} s, killed"
    return running.returncode, said


def problems_of(outcome: Outcome, undisturbed: Outcome, *, steps: int, unfired: list[str]) -> list[str]:
    """What falls short."""
    sent, consumed, left_over = outcome.items
    found = [f"{fault} did not fire" for fault in unfired]
    found += [] if outcome.status == 0 else [f"exit status {outcome.status}"]
    found += [] if outcome.digest == undisturbed.digest else [f"digest {outcome.digest or 'none'} is another one"]
    found += [] if (consumed, sent) == (2 * steps, consumed + left_over) else [f"items {outcome.items}"]
    return found + [f"left: {one}" for one in outcome.left]


def main() -> int:
    """Exit status 0 only if every seed came out as the undisturbed run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=12)
    options.add_argument("seeds", type=int, nargs="+")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="unknot-chaos-") as folder, start_redis(Path(folder) / "redis") as redis:
        place = Place(Path(folder), redis.url)
        undisturbed = train(chosen.steps, [], name="undisturbed", place=place, outlived=True)
        say(f"undisturbed: {undisturbed.took_s:.0f} s, {undisturbed.digest or undisturbed.output}")
        say("".join(f"left: {one}\n" for one in undisturbed.left))
        if undisturbed.left or not undisturbed.digest:
            return 1
        place = place._replace(kept=kinds_of_keys(redis.url, "undisturbed"))
        return 1 if [seed for seed in chosen.seeds if not survives(seed, chosen.steps, undisturbed, place)] else 0


def survives(seed: int, steps: int, undisturbed: Outcome, place: Place) -> bool:
    """Whether a run with the faults of `seed` comes out the same; says what it did."""
    faults, name = faults_of(seed, steps), f"seed-{seed}"
    say(f"seed {seed}: {' '.join(faults)}")
    outcome = train(steps, faults, name=name, place=place, outlived=seed % 2 == 1)
    fired = points.fired(str(log_of(place, name)))
    wanted = [fault.text for fault in points.parse_faults(" ".join(faults))]
    problems = problems_of(outcome, undisturbed, steps=steps, unfired=[one for one in wanted if one not in fired])
    if problems:
        say(f"{outcome.output}\nseed {seed}: FAILED: {'; '.join(problems)}\nrepeat: make chaos SEEDS={seed} STEPS={steps}")
    else:
        say(f"seed {seed}: {outcome.took_s:.0f} s, all fired, {outcome.items[1]} items once each, the same digest, nothing left: OK")
    return not problems


def say(text: str) -> None:
    """A line for people, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
