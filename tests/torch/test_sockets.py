"""Which sockets belong to a group, and what shutting them down does."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from unknot.integrations.torch.sockets import connected_sockets, mirrored, shut_down

Pair = tuple[socket.socket, socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A listening socket, and the two ends of one connection to it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
        yield listening, near, far
        near.close()
        far.close()


def test_connected_sockets_are_listed_with_both_addresses_and_listening_ones_are_not(pair: Pair) -> None:
    listening, near, far = pair
    found = connected_sockets()
    assert found[near.fileno()] == (near.getsockname(), near.getpeername())
    assert found[far.fileno()] == (near.getpeername(), near.getsockname())
    assert listening.fileno() not in found


def test_a_socket_is_of_the_group_only_if_another_rank_lists_its_other_end(pair: Pair) -> None:
    _, near, far = pair
    found = connected_sockets()
    mine = {near.fileno(): found[near.fileno()]}
    assert mirrored(mine, [found[far.fileno()]]) == mine
    assert mirrored(mine, [(("127.0.0.1", 1), ("127.0.0.1", 2))]) == {}


def test_shutting_down_ends_a_blocked_read_at_the_other_end(pair: Pair) -> None:
    _, near, far = pair
    found = connected_sockets()
    assert shut_down({near.fileno(): found[near.fileno()]}) == 1
    assert far.recv(1) == b""


def test_a_descriptor_that_was_reused_meanwhile_is_left_alone(pair: Pair) -> None:
    _, near, far = pair
    stale = {near.fileno(): (("127.0.0.1", 1), ("127.0.0.1", 2))}
    assert shut_down(stale) == 0
    near.sendall(b"x")
    assert far.recv(1) == b"x"


def test_a_descriptor_that_was_closed_meanwhile_or_is_no_socket_is_passed_over(pair: Pair) -> None:
    _, near, _ = pair
    ends = connected_sockets()[near.fileno()]
    gone = near.fileno()
    near.close()
    assert shut_down({gone: ends, 0: ends}) == 0
