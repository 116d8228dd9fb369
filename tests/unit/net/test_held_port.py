"""Goal: a port that is held is ours while nobody listens on it, and a broker can listen on it.
Method: real sockets on loopback.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ottla.net.held_port import HeldPort


@pytest.fixture
def held() -> Iterator[HeldPort]:
    port = HeldPort("127.0.0.1")
    yield port
    port.close()


def listening_on(port: int) -> socket.socket:
    """As a broker does."""
    return socket.create_server(("127.0.0.1", port))


def test_who_lets_its_address_be_shared_listens_again_and_again(held: HeldPort) -> None:
    for _ in range(3):
        with (
            listening_on(held.port) as server,
            socket.create_connection(("127.0.0.1", held.port)) as client,
        ):
            accepted, _ = server.accept()
            with accepted:
                accepted.sendall(b"x")
                assert client.recv(1) == b"x"


def test_nobody_listens_while_it_is_only_held(held: HeldPort) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", held.port))


def test_others_do_not_find_it_free(held: HeldPort) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", held.port))


def test_a_port_that_somebody_listens_on_is_not_to_be_had() -> None:
    with listening_on(0) as server, pytest.raises(OSError, match="in use"):
        HeldPort("127.0.0.1", server.getsockname()[1])
