"""One generation of a collective group: formed, watched, broken, left. The process stays.

Forming: all ranks join in the store, make a Gloo group over the generation's own rendezvous, run one reduction, and tell each
other which sockets appeared, so that each knows exactly the sockets between ranks. Breaking: the store's mark first, then every
rank shuts those sockets down, so that whoever stands in a collective fails at once, and whoever waits elsewhere is interrupted. Leaving
comes before anything else in the next generation: a rank that stays would keep others blocked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from unknot.graph.events import Atom, Clause
from unknot.integrations.torch import flight, sockets
from unknot.integrations.torch.rendezvous import RendezvousStore
from unknot.recovery.errors import ConfigError, FencedError, StaleGeneration
from unknot.recovery.group import GroupSlot, group_status
from unknot.recovery.points import reached
from unknot.supervisor.members import STARTING
from unknot.supervisor.process import Process
from unknot.supervisor.recorder.commands import Broken, Command, encode

_RENDEZVOUS_KEPT = timedelta(hours=1)
# Of collectives of the checkpoint group, which wait for the slowest disk: explicit, since a new group has no limit of its own.
_CHECKPOINT_LIMIT = timedelta(minutes=5)


class Group:
    """What a trainer's `setup` is given. `StaleGeneration` is raised by its methods once it is replaced.

    Attributes:
        name: the group's name.
        generation: grows by one each time the group is re-formed.
        rank, size: this process' place.
        process_group: the torch process group of this generation, also torch's default one.
        checkpoint_group: another one of all ranks, for what runs beside training.
    """

    def __init__(self, slot: GroupSlot, *, process_group: Any, issuer_ident: int) -> None:
        self.name = slot.name
        self.generation = slot.generation
        self.rank = slot.rank
        self.size = slot.size
        self.process_group = process_group
        self.slot = slot
        self.broken: str | None = None
        self.checkpoint_group: Any = None
        self.links: Mapping[int, sockets.Endpoints] = {}
        self.checkpoint_links: Mapping[int, sockets.Endpoints] = {}
        self.rendezvous: RendezvousStore | None = None
        self.issuer_ident = issuer_ident

    def mesh(self, *dims: int, names: tuple[str, ...] | None = None) -> DeviceMesh:
        """A device mesh over this group: one dimension by default.

        Args:
            dims: sizes of the dimensions, their product is the group's size.
            names: names of the dimensions.

        Raises:
            StaleGeneration: the group was re-formed.
            ConfigError: the sizes do not multiply to the group's size.
        """
        self.check()
        if not dims or dims == (self.size,):
            return DeviceMesh.from_group(self.process_group, "cpu", mesh_dim_names=names)
        product = 1
        for dim in dims:
            product *= dim
        if product != self.size:
            raise ConfigError(
                what=f"mesh{dims} has {product} places, group {self.name} has {self.size} ranks",
                todo="give sizes whose product is the group's size",
            )
        return init_device_mesh("cpu", dims, mesh_dim_names=names)

    def check(self) -> None:
        """Raise StaleGeneration if this generation is over."""
        if self.broken is not None:
            raise StaleGeneration(group=self.name, generation=self.generation, reason=self.broken)

    def shut(self) -> int:
        """Shut the sockets between the ranks down; how many."""
        return sockets.shut_down(self.links) + sockets.shut_down(self.checkpoint_links)

    def shut_checkpoint(self) -> int:
        """Shut down those of the checkpoint group alone; how many."""
        return sockets.shut_down(self.checkpoint_links)

    def has_lost_rank(self) -> bool:
        """Whether the checkpoint group has lost a connection: this generation is over, or about to be."""
        return self.broken is not None or sockets.lost(self.checkpoint_links) > 0

    def is_over(self) -> str | None:
        """Why this generation is over, by our own mark or the store's; None while it runs."""
        if self.broken is None:
            self.broken = self.slot.reason_if_broken()
        return self.broken

    def __repr__(self) -> str:
        state = f"broken: {self.broken}" if self.broken else "running"
        return f"<Group {self.name} generation {self.generation} rank {self.rank} of {self.size}, {state}>"


class Former:
    """Forms, breaks and leaves the generations of one rank's group."""

    def __init__(self, process: Process, name: str, *, rank: int, size: int, timeout: timedelta) -> None:
        self.group: Group | None = None
        self._process = process
        self._name = name
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._collectives: flight.CollectiveSource | None = None
        if process.table is not None and process.listener is not None:
            self._collectives = flight.CollectiveSource(process.table)
            process.table.add_source(self._collectives)
            process.listener.handle("break", self._on_break)
            process.listener.on_broken(self._on_broken)

    def form(self) -> Group:
        """Join the next generation and make its process groups; blocks until all ranks have joined.

        Raises:
            RunClosed: the run ended meanwhile.
        """
        slot = self._joined()
        self._say_over(slot.generation - 1, f"generation {slot.generation} has begun")
        try:
            reached("group.joined", self._process.member)
            group = self._connected(slot)
            slot.running()
        except FencedError:
            raise
        except Exception as error:
            self._give_up(slot, error)
            raise StaleGeneration(group=slot.name, generation=slot.generation, reason=str(error)) from error
        self.group = group
        self._process.mark("formed")
        reached("group.running", self._process.member)
        return group

    def _connected(self, slot: GroupSlot) -> Group:
        store = RendezvousStore(
            self._process.store, prefix=("gstore", self._name, str(slot.generation)), timeout=self._timeout,
            keep=_RENDEZVOUS_KEPT,
        )  # fmt: skip
        store.give_up = lambda: _refuse_over(slot)
        before = sockets.connected_sockets()
        dist.init_process_group("gloo", store=store, rank=self._rank, world_size=self._size, timeout=self._timeout)
        dist.all_reduce(torch.zeros(1))
        recorder_id = flight.newest_recorder_id() if self._collectives is not None else None
        group = Group(slot, process_group=dist.group.WORLD, issuer_ident=threading.get_ident())
        group.rendezvous = store
        group.links = self._new_links(store, before, "train")
        reached("group.connected", self._process.member)
        before = sockets.connected_sockets()
        group.checkpoint_group = dist.new_group(backend="gloo", timeout=_CHECKPOINT_LIMIT)
        dist.barrier(group.checkpoint_group)
        group.checkpoint_links = self._new_links(store, before, "checkpoint")
        self._watch(group, slot.sources, recorder_id)
        store.give_up = group.check
        return group

    def _give_up(self, slot: GroupSlot, error: Exception) -> None:
        """A rank that cannot form its generation ends it: the others would wait for it."""
        if self._collectives is not None:
            self._collectives.forget(self._name)
        if dist.is_initialized():
            dist.destroy_process_group()
        slot.break_(f"rank {slot.rank} could not connect: {type(error).__name__}: {str(error)[:200]}")
        self._say_over(slot.generation, "it could not be formed")

    def _new_links(
        self, store: RendezvousStore, before: Mapping[int, sockets.Endpoints], purpose: str
    ) -> dict[int, sockets.Endpoints]:
        new = {fd: ends for fd, ends in sockets.connected_sockets().items() if before.get(fd) != ends}
        return sockets.mirrored(new, self._exchanged(store, new, purpose))

    def over(self, error: Exception) -> str | None:
        """Why this generation is over, given an error of this rank's code; None if the error is the code's own.

        A lost connection to another rank ends the generation for all: no rank can be exchanged in it.
        """
        group = self.group
        if group is None:
            return None
        reason = group.is_over()
        if reason is None and sockets.lost(group.links):
            reason = f"rank {group.rank} lost its connection to another rank"
            self.end(group, reason)
        return reason or (str(error) if isinstance(error, StaleGeneration) else None)

    def end(self, group: Group, reason: str) -> None:
        """End this generation for all ranks."""
        group.slot.break_(reason)
        group.broken = reason
        self._say_over(group.generation, reason)

    def _say_over(self, generation: int, reason: str) -> None:
        if generation > 0:
            self._process.store.publish("cmd", encode(Broken(group=self._name, generation=generation, reason=reason)))

    def _on_broken(self, message: Broken) -> None:
        group = self.group
        if group is None or (group.name, group.generation) != (message.group, message.generation):
            return
        reason = group.is_over()
        if reason is not None:
            self._end_now(group, reason)

    def _joined(self) -> GroupSlot:
        process = self._process
        recorder = process.recorder
        before = group_status(process.store, self._name).generation
        need = Clause(k=1, of=(Atom(external=f"{STARTING}group {self._name}"),))
        with recorder.wait(recorder.next_ticket(), [need]) as waiting:

            def look() -> Exception | None:
                # A rank that stands in no collective, but waits for a message, has not seen that this one was lost.
                self._say_over(before, f"rank {self._rank} joins anew")
                return waiting.poll_interrupt()

            return GroupSlot.join(
                process.store, self._name, size=self._size, rank=self._rank, member=process.member,
                incarnation=process.incarnation, give_up=look,
            )  # fmt: skip

    def _exchanged(
        self, store: RendezvousStore, mine: Mapping[int, sockets.Endpoints], purpose: str
    ) -> list[sockets.Endpoints]:
        store.set(f"sockets/{purpose}/{self._rank}", json.dumps(list(mine.values())))
        others = [r for r in range(self._size) if r != self._rank]
        lists = [json.loads(store.get(f"sockets/{purpose}/{r}")) for r in others]
        return [((a[0], a[1]), (b[0], b[1])) for ends in lists for a, b in ends]

    def _watch(self, group: Group, sources: tuple[str, ...], recorder_id: int | None) -> None:
        if self._collectives is None or recorder_id is None:
            return
        self._collectives.watch(
            flight.Watched(
                name=group.name, generation=group.generation, recorder_id=recorder_id,
                members=sources, issuer_ident=group.issuer_ident,
            )
        )  # fmt: skip

    def leave(self) -> None:
        """Shut the generation's sockets and destroy its process group: the first act of a survivor."""
        group, self.group = self.group, None
        if group is None:
            return
        group.broken = group.broken or "left"
        group.shut()
        if self._collectives is not None:
            self._collectives.forget(group.name)
        dist.destroy_process_group()

    def _on_break(self, command: Command) -> str:
        group = self.group
        if group is None or group.generation != command.generation or group.name != command.group:
            return "gone"
        return f"broke {self._end_now(group, command.reason)} links"

    def _end_now(self, group: Group, reason: str) -> int:
        """Free whoever of this process stands in a collective of the group, or waits elsewhere on its behalf."""
        group.broken = reason
        self._interrupt_issuer(group, reason)
        return group.shut()

    def _interrupt_issuer(self, group: Group, reason: str) -> None:
        table = self._process.table
        assert table is not None
        slot = table.slot_of(group.issuer_ident)
        waiting = slot.wait if slot is not None else None
        if slot is None or waiting is None:
            return
        error = StaleGeneration(group=group.name, generation=group.generation, reason=reason)
        table.interrupt(slot.participant, waiting.ticket, error)
        self._process.wake(slot.participant, waiting.ticket)


def _refuse_over(slot: GroupSlot) -> None:
    reason = slot.reason_if_broken()
    if reason is not None:
        raise StaleGeneration(group=slot.name, generation=slot.generation, reason=reason)
