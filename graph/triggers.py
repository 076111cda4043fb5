"""Which events can make anybody stuck who was not, told cheaply from what stands around the event.

A replay looks at the whole graph only when its answer can have changed. While nothing is found, that is when somebody may have become
stuck, and whoever is stuck then was let go on by what the event took away:

- a wait: only if the waiter itself may be stuck. If enough of each clause is served by participants that run, it is not, it goes
  on helping whoever leans on it, and nobody else has lost anything;
- a hold: a unit that is taken by somebody who runs can be given back; so only if the holder does not run;
- something consumed, filled, cleared, counted up, issued or declared anew: only if somebody waits for that resource, or if the
  operation issued is a mismatch;
- a wake: it helps, but one who waited at a mailbox was also a counterpart for the others that wait there;
- an end, a fence: whenever.

The rest (release, set, signal, close, start, progress) only helps. tests/trace/test_triggers.py compares this with looking after
every event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unknot.graph import events as ev
from unknot.graph.needs import Compiler, Group

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph

_OF_RESOURCE = (ev.Recv, ev.Send, ev.Clear, ev.Add, ev.Resource)


@dataclass(slots=True)
class Triggers:
    """Ask `before` the graph takes an event and `after`: either may say that somebody may be stuck now."""

    graph: LiveGraph

    def before(self, event: ev.Event) -> bool:
        """Whether `event` takes a counterpart away."""
        if not isinstance(event, ev.Wake):
            return False
        one = self.graph.participants.get(event.p)
        if one is None or one.wait is None:
            return False
        states = [self.graph.resources[r] for r in one.wait.resources()]
        return any(state.type in ("mailbox", "") and len(state.waiters) > 1 for state in states)

    def after(self, event: ev.Event) -> bool:
        """Whether somebody may be stuck that was not before `event`, which the graph has taken."""
        if isinstance(event, ev.Wait):
            return not self._goes_on(event.p)
        if isinstance(event, ev.Hold):
            one = self.graph.participants.get(event.p)
            return one is None or one.state != "running"
        if isinstance(event, _OF_RESOURCE):
            return self._is_awaited(event.r)
        if isinstance(event, ev.Arrive):
            state = self.graph.resources.get(event.r)
            return self._is_awaited(event.r) or (state is not None and state.mismatched(event.seq))
        return isinstance(event, ev.End | ev.Fence)

    def _is_awaited(self, r: str) -> bool:
        state = self.graph.resources.get(r)
        return state is not None and bool(state.waiters)

    def _goes_on(self, pid: str) -> bool:
        """Whether participants that run suffice to let `pid` go on."""
        one = self.graph.participants.get(pid)
        if one is None or one.wait is None:
            return True
        return all(
            sum(all(map(self._is_met, condition.groups)) for condition in need.of) >= need.k
            for need in Compiler(self.graph).needs(one)
        )

    def _is_met(self, group: Group) -> bool:
        if group.never is not None or group.open:
            return group.never is None
        people = self.graph.participants
        running = (weight for pid, weight in group.weights.items() if people[pid].state == "running")
        return sum(running) >= group.need
