"""The sockets between the ranks of one process group, found so that they alone can be shut down.

A rank that stands in a Gloo collective is freed by nothing in torch's API; it is freed by shutting down the sockets
that the collective reads from. Which ones are these? All connected sockets that appeared while the group was made are
only suspects: a thread of Ray or Redis may have connected meanwhile. A socket belongs to the group if another rank lists its
mirror image (local and remote address swapped) among its own suspects. Listening sockets are left alone: shutting one
down ends the process (Gloo's accept loop raises in a thread of its own).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping

Address = tuple[str, int]
Endpoints = tuple[Address, Address]


def connected_sockets() -> dict[int, Endpoints]:
    """Descriptor -> (local, remote) address of each connected TCP socket of this process."""
    found: dict[int, Endpoints] = {}
    for name in os.listdir("/proc/self/fd"):
        endpoints = _endpoints(int(name))
        if endpoints is not None:
            found[int(name)] = endpoints
    return found


def _endpoints(descriptor: int) -> Endpoints | None:
    duplicate = _duplicate(descriptor)
    if duplicate is None:
        return None
    with duplicate:
        return _ends_of(duplicate)


def _duplicate(descriptor: int) -> socket.socket | None:
    """The socket behind a descriptor under a descriptor of our own; None if it is no socket, or is closed by now.

    What is asked of or done to the duplicate is asked of that very socket, also when its owner closes the descriptor meanwhile
    and the number is used again.
    """
    try:
        own = os.dup(descriptor)
    except OSError:
        return None
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        return None


def _ends_of(connected: socket.socket) -> Endpoints | None:
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        local, remote = connected.getsockname(), connected.getpeername()
    except OSError:
        return None
    return (str(local[0]), int(local[1])), (str(remote[0]), int(remote[1]))


def mirrored(mine: Mapping[int, Endpoints], others: Iterable[Endpoints]) -> dict[int, Endpoints]:
    """Those of `mine` whose other end is listed by another rank."""
    far_ends = {(local, remote) for local, remote in others}
    return {fd: (local, remote) for fd, (local, remote) in mine.items() if (remote, local) in far_ends}


def shut_down(sockets: Mapping[int, Endpoints]) -> int:
    """Shut down both directions of each socket that still is what it was; returns how many were."""
    count = 0
    for descriptor, endpoints in sockets.items():
        duplicate = _duplicate(descriptor)
        if duplicate is None:
            continue
        with duplicate:
            count += _ends_of(duplicate) == endpoints and _shut(duplicate)
    return count


def lost(sockets: Mapping[int, Endpoints]) -> int:
    """How many of these sockets are no connection any more: closed here, or by the other end."""
    count = 0
    for descriptor, endpoints in sockets.items():
        duplicate = _duplicate(descriptor)
        if duplicate is None:
            count += 1
            continue
        with duplicate:
            count += _ends_of(duplicate) != endpoints or _has_ended(duplicate)
    return count


def _has_ended(connected: socket.socket) -> bool:
    try:
        return connected.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _shut(connected: socket.socket) -> bool:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    return True
