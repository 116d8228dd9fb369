"""A way to a ZooKeeper server that can lose what goes over it, in either direction, and be cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

CHUNK = 65_536


class Link:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = (client, server)
        self.loses_requests = False
        self.loses_answers = False
        self.lost_bytes = 0

    def pump_requests(self) -> None:
        client, server = self.ends
        self._pump(client, server, lambda: self.loses_requests)

    def pump_answers(self) -> None:
        client, server = self.ends
        self._pump(server, client, lambda: self.loses_answers)

    def _pump(
        self, source: socket.socket, target: socket.socket, loses: Callable[[], bool]
    ) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if loses():
                    self.lost_bytes += len(data)
                else:
                    target.sendall(data)
        self.cut()

    def cut(self) -> None:
        for one in self.ends:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Forwards to a port. What is lost is read and thrown away: nobody notices until a cut."""

    def __init__(self, target_port: int) -> None:
        self.links: list[Link] = []
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def lose(self, *, requests: bool = False, answers: bool = False) -> None:
        """On the connections there are; new ones are sound."""
        for link in self.links:
            link.loses_requests, link.loses_answers = requests, answers

    def lost_bytes(self) -> int:
        return sum(link.lost_bytes for link in self.links)

    def cut(self) -> None:
        """Breaks the connections there are; new ones are possible."""
        for link in tuple(self.links):
            link.cut()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for link in self.links:
            for one in link.ends:
                one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port))
                link = Link(client, server)
                self.links.append(link)
                for pump in (link.pump_requests, link.pump_answers):
                    self._threads.append(threading.Thread(target=pump, daemon=True))
                    self._threads[-1].start()
