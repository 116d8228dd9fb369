"""The acceptor of one listener: takes connections, within bounds, for the processor."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from ottla.base.ports import Timers
from ottla.net.processor import Processor

log = logging.getLogger("ottla.net")

ACCEPTS_PER_TURN_MAX = 64
OUT_OF_DESCRIPTORS_PAUSE_MS = 500
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ConnectionLimits:
    """How many connections there may be; read anew for each, since the settings are dynamic."""

    __slots__ = ("per_address_max", "per_second_max", "total_max")

    def __init__(
        self,
        total_max: Callable[[], int],
        per_address_max: Callable[[str], int],
        per_second_max: Callable[[], int],
    ) -> None:
        self.total_max = total_max
        self.per_address_max = per_address_max
        self.per_second_max = per_second_max


class Acceptor:
    def __init__(
        self,
        *,
        name: str,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        processor: Processor,
        limits: ConnectionLimits,
    ) -> None:
        self.name = name
        self._loop = loop
        self._timers = timers
        self._processor = processor
        self._limits = limits
        self._socket: socket.socket | None = None
        self._buffer_bytes = (-1, -1)
        self._second = 0
        self._accepted_this_second = 0

    def bind(self, host: str, port: int, backlog: int, buffer_bytes: tuple[int, int]) -> int:
        """Bind and return the port (a free one for 0). Nothing is accepted before `start`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(backlog)
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)
        self._socket = listening
        self._buffer_bytes = buffer_bytes
        return int(listening.getsockname()[1])

    def start(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            if self._socket is None or self._is_too_fast():
                return
            try:
                connected, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                if failure.errno in OUT_OF_DESCRIPTORS:
                    self._pause(failure)
                    return
                continue  # that peer went away between SYN and accept
            self._take(connected, str(address[0]))

    def _is_too_fast(self) -> bool:
        """Past the rate, the rest waits in the backlog for the next second."""
        now_ms = self._processor.now_ms()
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._accepted_this_second = 0
        self._accepted_this_second += 1
        if self._accepted_this_second <= self._limits.per_second_max():
            return False
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later((1000 - now_ms % 1000) / 1000, self.start)
        return True

    def _take(self, connected: socket.socket, address: str) -> None:
        processor = self._processor
        if processor.count() >= self._limits.total_max():
            processor.complain(address, "there are too many connections (max.connections)")
            connected.close()
            return
        if processor.count_of(address) >= self._limits.per_address_max(address):
            processor.complain(address, "too many connections (max.connections.per.ip)")
            connected.close()
            return
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send_bytes, receive_bytes = self._buffer_bytes
        if send_bytes > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        if receive_bytes > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        processor.open(connected, self.name)

    def _pause(self, failure: OSError) -> None:
        log.warning("accepting is paused on %s: %s", self.name, failure.strerror)
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._timers.call_later(OUT_OF_DESCRIPTORS_PAUSE_MS, self.start)
