"""One socket of the plain shell: its bytes, and which thread reads from it.

Three ways: the background thread hears of every answer; a caller's thread *drives* it, reading
while it waits; or it is *parked*, left to a caller that reads whenever it sends, and looked after
every HOVER_MS. Knows nothing of locks; the shell holds its own.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.tls import TlsSocket

# A caller that comes back within this time needs no thread to read for it; answers that nobody has
# come for in this time are read by the thread.
HOVER_MS = 5.0
# A connection without questions stays parked for so long.
PARK_MS = 50.0

# What the thread wants to hear of a socket: its end always, bytes unless somebody else reads.
_PARKED = select.EPOLLRDHUP
_READ = select.EPOLLIN | select.EPOLLRDHUP
_READ_WRITE = _READ | select.EPOLLOUT
UNWATCHED = -1


class Link:
    """A connection's socket and the bytes that it has not taken yet."""

    __slots__ = (
        "addresses",
        "caller_ms",
        "events",
        "fd",
        "is_connected",
        "is_driven",
        "is_dropped",
        "is_open",
        "poll",
        "raw",
        "secure",
        "sock",
        "unsent",
    )

    def __init__(self, sock: socket.socket, addresses: list[Any], secure: TlsSocket | None) -> None:
        self.raw = sock
        self.sock: socket.socket | TlsSocket = sock if secure is None else secure
        self.secure = secure
        self.fd = sock.fileno()
        self.addresses = addresses  # other addresses of the same name, to be tried
        self.is_connected = False
        self.is_open = False  # connected, and where TLS is spoken its handshake is over
        self.events = UNWATCHED
        self.unsent: deque[memoryview] = deque()
        self.caller_ms = 0.0  # when a caller's thread last looked at it
        self.is_driven = False  # a caller's thread reads from it
        self.is_dropped = False  # to be closed by that thread
        self.poll = select.poll()
        self.poll.register(self.fd, select.POLLIN)

    def wanted_events(self, *, is_parked: bool) -> int:
        """What the background thread should hear of it."""
        if not self.is_connected:
            return _READ_WRITE
        events = _PARKED if self.is_driven or is_parked else _READ
        if self.unsent or (self.secure is not None and self.secure.has_unsent):
            events |= select.EPOLLOUT
        return events
