"""One socket of the plain shell: its bytes, and which thread reads from it.

Three ways: the background thread hears of every answer; a caller's thread *drives* it, reading
while it waits; or it is *parked*, left to a caller that reads whenever it sends, and looked after
every HOVER_MS. Knows nothing of locks; the shell holds its own.
"""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ottla.base.ports import Buffer

if TYPE_CHECKING:
    from ottla.client.tls import TlsSocket

# A caller that comes back within this time needs no thread to read for it; answers that nobody has
# come for in this time are read by the thread.
HOVER_MS = 5.0
# A connection without questions stays parked for so long.
PARK_MS = 50.0

# So long a caller's thread may sit in one `recv`; whoever has less time polls.
PATIENCE_MS = 5_000.0
_PATIENCE = struct.pack("ll", int(PATIENCE_MS) // 1000, 0)
# Of every call that must not wait; TLS has a socket that never does.
AT_ONCE = socket.MSG_DONTWAIT
# So long an answer is looked for before sleeping: to be woken takes a core that has gone idle
# longer than a broker nearby takes to answer.
_LOOK_S = 0.0002
# Where it has not come in that time, so many answers at most are slept for before looking again.
_SLEEPS_MAX = 63

# Of one sendmsg; the kernel takes 1,024.
_BUFFERS_MAX = 512
# Up to here one buffer is sent sooner than several, with the time to join them.
_JOINED_BYTES_MAX = 4096

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
        "sleeps",
        "sleeps_next",
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
        self.sleeps = self.sleeps_next = 0  # answers that are slept for: now, after the next look
        self.poll = select.poll()
        self.poll.register(self.fd, select.POLLIN)

    def open(self) -> None:
        """Connected and secured. A plain socket waits from now on unless it is told not to
        (AT_ONCE): a caller's thread then gets its answer by one call of the kernel."""
        self.is_open = True
        if self.secure is None:
            self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PATIENCE)
            self.raw.setblocking(True)

    def send(self, buffers: list[Buffer], size: int) -> int:
        """How much of them the socket took."""
        try:
            if size < _JOINED_BYTES_MAX:
                return self.sock.send(b"".join(buffers), AT_ONCE)
            return self.sock.sendmsg(buffers[:_BUFFERS_MAX], (), AT_ONCE)
        except BlockingIOError:
            return 0

    def receive(self, buffer: memoryview) -> int:
        """What comes next to a plain socket, however long that takes; looks before it sleeps, but
        where that was in vain, more and more seldom."""
        receive = self.sock.recv_into
        if self.sleeps:
            self.sleeps -= 1
            return receive(buffer)
        until = perf_counter() + _LOOK_S
        while True:
            try:
                count = receive(buffer, 0, AT_ONCE)
            except BlockingIOError:
                if perf_counter() < until:
                    continue
                self.sleeps = self.sleeps_next = min(2 * self.sleeps_next + 1, _SLEEPS_MAX)
                return receive(buffer)
            self.sleeps_next = 0
            return count

    def wanted_events(self, *, is_parked: bool) -> int:
        """What the background thread should hear of it."""
        if not self.is_connected:
            return _READ_WRITE
        events = _PARKED if self.is_driven or is_parked else _READ
        if self.unsent or (self.secure is not None and self.secure.has_unsent):
            events |= select.EPOLLOUT
        return events


def after(buffers: list[Buffer], sent: int) -> list[Buffer]:
    """What is left of `buffers` behind the first `sent` bytes."""
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []
