"""A network between brokers, and from them to ZooKeeper, that can be held up.

Every connection goes through a door in this process, one for each whom others connect to. As with
TCP nothing is lost on a connection: what is held up comes through late, or the connection ends.
Each direction between two of them is held up for itself.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress

CHUNK = 65_536
HEADER = struct.Struct(">ihhih")
"""Size, API key, version, correlation id and the length of the client id, which follows."""

Way = tuple[str, str]


class Network:
    """Who is held up on the way to whom, by name."""

    def __init__(self) -> None:
        self._held: set[Way] = set()
        self._changed = threading.Condition()
        self._is_closed = False
        self._doors: list[Door] = []

    def door_to(self, target: str, port: int, source: str = "") -> int:
        """A port that leads to another. Without a source, a broker says itself who it is."""
        door = Door(self, target, port, source)
        self._doors.append(door)
        return door.port

    def hold(self, ways: Iterable[Way]) -> None:
        with self._changed:
            self._held.update(ways)

    def heal(self, *, reset: bool) -> None:
        """What was held up comes through now; with `reset` the connections end instead."""
        with self._changed:
            held, self._held = self._held, set()
            if reset:
                for door in self._doors:
                    door.reset(held)
            self._changed.notify_all()

    def wait(self, way: Way) -> None:
        """Until that way is open."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or way not in self._held)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for door in self._doors:
            door.close()


class Door:
    def __init__(self, network: Network, target: str, target_port: int, source: str) -> None:
        self._network = network
        self._target = target
        self._target_port = target_port
        self._source = source
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._links: dict[socket.socket, tuple[socket.socket, str]] = {}
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def reset(self, held: set[Way]) -> None:
        with self._lock:
            links = list(self._links.items())
        for client, (server, source) in links:
            if held & {(source, self._target), (self._target, source)}:
                _cut(client, server)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        with self._lock:
            links = list(self._links.items())
        for client, (server, _) in links:
            _cut(client, server)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Takes one connection to its end."""
        with client, suppress(OSError):
            first, source = self._recognize(client)
            self._network.wait((source, self._target))
            with socket.create_connection(("127.0.0.1", self._target_port)) as server:
                with self._lock:
                    self._links[client] = server, source
                there = (client, server, (source, self._target), first)
                back = (server, client, (self._target, source), b"")
                answers = threading.Thread(target=self._pump, args=back, daemon=True)
                answers.start()
                self._pump(*there)
                answers.join()
                with self._lock:
                    del self._links[client]

    def _recognize(self, client: socket.socket) -> tuple[bytes, str]:
        """What was read, and which broker it is that connects: its client id begins so."""
        if self._source:
            return b"", self._source
        read = b""
        length = HEADER.size
        while len(read) < length:
            data = client.recv(CHUNK)
            if not data:
                raise ConnectionError("it said nothing")
            read += data
            if len(read) >= HEADER.size:
                length = HEADER.size + HEADER.unpack_from(read)[4]
        return read, "-".join(read[HEADER.size : length].decode().split("-")[:2])

    def _pump(self, source: socket.socket, target: socket.socket, way: Way, first: bytes) -> None:
        with suppress(OSError):
            data = first or source.recv(CHUNK)
            while data:
                self._network.wait(way)
                target.sendall(data)
                data = source.recv(CHUNK)
        _cut(source, target)


def _cut(*ends: socket.socket) -> None:
    for one in ends:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
