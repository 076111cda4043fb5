"""From the wait that closes a deadlock to the confirmed incident: 20 crossed waits of two processes, with a real Redis and no Ray.

In each round both members take a lock of their own, meet, and then want the other's lock. The monitor finds it, confirms it with two
collection rounds and interrupts one wait; then comes the next round. The times are those that the incidents themselves carry.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

from measuring import show_machine, show_target
from running import ended, member_process, monitor_process

from unknot.integrations.primitives import Lock
from unknot.recovery.errors import DeadlockInterrupted
from unknot.supervisor import process as processes
from unknot.supervisor.config import Config
from unknot.supervisor.incidents import Incident
from unknot.supervisor.process import WorkerSettings
from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.redis_store import RedisStore

RUN, ROUNDS = "bench-detection", 20
MEMBERS = ("agent/a", "agent/b")
TARGET_S = 1.0
LIMIT_S = 120


def main() -> int:
    if len(sys.argv) > 1:
        return member_main(int(sys.argv[1]))
    show_machine()
    with tempfile.TemporaryDirectory(prefix="unknot-bench-") as folder, contextlib.ExitStack() as stack:
        server = stack.enter_context(start_redis(Path(folder) / "redis"))
        config = Config(redis=server.url)
        log = stack.enter_context((Path(folder) / "monitor.log").open("w"))
        stack.enter_context(ended(monitor_process(RUN, config, log)))
        members = [
            stack.enter_context(ended(member_process(settings_of(name, config), __file__, str(number))))
            for number, name in enumerate(MEMBERS)
        ]
        ended_well = all(member.wait(timeout=LIMIT_S) == 0 for member in members)
        store = stack.enter_context(RedisStore.connect(server.url, RUN))
        found = [one for one in IncidentStore(store).list(open_only=False) if one.cause == "deadlock"]
    return tell(found) if ended_well else 1


def settings_of(member: str, config: Config) -> WorkerSettings:
    return WorkerSettings(run=RUN, redis=config.redis or "", member=member, role="agent", config=config)


def tell(found: list[Incident]) -> int:
    took_s = sorted(took for one in found if (took := seen_after_s(one)) is not None)
    if len(took_s) != ROUNDS:
        print(f"FAILED: {len(took_s)} deadlocks were found, {ROUNDS} were made")
        return 1
    print(f"{ROUNDS} deadlocks: fastest {took_s[0]:.3f} s, median {statistics.median(took_s):.3f} s")
    show_target("the slowest, closing wait to confirmed", took_s[-1], TARGET_S, " s")
    return 0


def seen_after_s(incident: Incident) -> float | None:
    """Seconds from the closing wait to the confirmed incident."""
    if incident.confirmed_at is None or incident.closing_wait_at is None:
        return None
    return incident.confirmed_at - incident.closing_wait_at


def member_main(number: int) -> int:
    interrupted = 0
    for this_round in range(ROUNDS):
        mine, other = (f"lock-{this_round}-{i}" for i in (number, 1 - number))
        with Lock(mine):
            meet(this_round)
            try:
                with Lock(other):
                    pass
            except DeadlockInterrupted:
                interrupted += 1
    processes.leave()
    print(interrupted)
    return 0


def meet(this_round: int) -> None:
    """Until both members hold their own lock."""
    store = processes.current("meet").store
    key = store.key("bench", str(this_round))
    store.command("INCR", key)
    end = time.monotonic() + LIMIT_S
    while int(store.command("GET", key)) < len(MEMBERS):
        if time.monotonic() > end:
            raise TimeoutError("the other member did not come")
        time.sleep(0.001)


if __name__ == "__main__":
    sys.exit(main())
