"""Goal: the network of a chaos test holds up what it is told to, and nothing else, and heals.
Method: two who answer each other through doors, over real sockets.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.chaos.divided_network import HEADER, Network
from tests.patience import SECONDS_MAX
from tests.ports import free_port

ONE, TWO = "broker-1", "broker-2"


class Echo:
    """Says back what it hears."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # who spoke may be gone, with an answer on its way
            while data := connection.recv(1024):
                connection.sendall(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


def hello(name: str) -> bytes:
    client_id = f"{name}-replica".encode()
    return HEADER.pack(10 + len(client_id), 1, 17, 7, len(client_id)) + client_id


def connected(port: int, name: str = ONE) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.settimeout(SECONDS_MAX)
    client.sendall(hello(name))
    return client


def read(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        try:
            data = client.recv(size - len(found))
        except ConnectionError:
            data = b""
        if not data:
            break
        found += data
    return found


def test_an_open_way_carries_everything_both_ways(network: Network, echo: Echo) -> None:
    with connected(network.door_to(TWO, echo.port)) as client:
        assert read(client, len(hello(ONE))) == hello(ONE)


@pytest.mark.parametrize("is_heard", [False, True])
def test_what_is_held_up_comes_through_when_it_heals(
    network: Network, echo: Echo, *, is_heard: bool
) -> None:
    network.hold([(TWO, ONE) if is_heard else (ONE, TWO)])
    with connected(network.door_to(TWO, echo.port)) as client:
        # Nobody else is held up: so time has passed, and the first has still no answer.
        with connected(network.door_to(TWO, echo.port), "broker-3") as other:
            assert read(other, len(hello("broker-3"))) == hello("broker-3")
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        client.settimeout(SECONDS_MAX)
        network.heal(reset=False)
        assert read(client, len(hello(ONE))) == hello(ONE)


def test_connections_that_were_held_up_may_end(network: Network, echo: Echo) -> None:
    with connected(network.door_to(TWO, echo.port)) as client:
        assert read(client, len(hello(ONE))) == hello(ONE)
        network.hold([(TWO, ONE)])
        client.sendall(b"x")
        network.heal(reset=True)
        assert read(client, 2) in (b"", b"x"), "nothing more comes"


def test_who_is_behind_a_door_may_be_away(network: Network) -> None:
    with connected(network.door_to(TWO, free_port())) as client:
        assert read(client, 1) == b""
