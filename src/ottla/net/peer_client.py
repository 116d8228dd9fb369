"""One connection to another broker: requests out, answers in, in order.

Connects when it is first asked, and again after it was lost; whoever asked gets an answer or
`PeerLost`, exactly once. Straight on a non-blocking socket, as `net.connection` is, because the
bytes of a follower's fetch go from here to the disk without another copy.

An answer is a view of a buffer that is used again: it is good until the callback returns. The
buffer grows with what an answer declares, up to a bound, and is given back when it is not needed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.errors import PeerLost
from ottla.base.limits import PEER_ANSWER_BYTES_MAX, PEER_REQUESTS_MAX
from ottla.base.ports import Timer, Timers
from ottla.protocol.api_keys import FIRST_FLEXIBLE_VERSION, NEVER_FLEXIBLE
from ottla.protocol.primitives import legacy_string

BUFFER_BYTES_FIRST = 64 * 1024
BUFFER_BYTES_KEPT = 2 * 1024 * 1024

_pack_start = struct.Struct(">ihhi").pack
_read_size = struct.Struct(">i").unpack_from
_read_size_and_id = struct.Struct(">ii").unpack_from


class _Asked:
    __slots__ = ("answer", "body_position", "correlation_id", "sent_ms")

    def __init__(self, correlation_id: int, body_position: int, sent_ms: int) -> None:
        self.correlation_id = correlation_id
        self.body_position = body_position
        self.sent_ms = sent_ms
        self.answer: Deferred[memoryview] = Deferred()


class PeerClient:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        now_ms: Callable[[], int],
        address: tuple[str, int],
        client_id: str,
        timeout_ms: Callable[[], int],
        receive_buffer_bytes: int = -1,
    ) -> None:
        self._loop = loop
        self._timers = timers
        self._now_ms = now_ms
        self._address = address
        self._client_id = legacy_string(client_id)
        self._timeout_ms = timeout_ms
        self._receive_buffer_bytes = receive_buffer_bytes
        self._socket: socket.socket | None = None
        self._descriptor = -1
        self._is_connected = False
        self._is_writing = False
        self._correlation_id = 0
        self._asked: deque[_Asked] = deque()
        self._unsent: deque[bytes | memoryview] = deque()
        self._buffer = bytearray(BUFFER_BYTES_FIRST)
        self._have = 0
        self._timer: Timer | None = None
        self._resolving: asyncio.Task[None] | None = None

    # -- asking -------------------------------------------------------------------------------

    def request(self, api_key: int, version: int, body: bytes) -> Deferred[memoryview]:
        """The body of the answer, behind its header; or PeerLost."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        is_flexible = version >= FIRST_FLEXIBLE_VERSION.get(api_key, NEVER_FLEXIBLE)
        asked = _Asked(self._correlation_id, 9 if is_flexible else 8, self._now_ms())
        if len(self._asked) >= PEER_REQUESTS_MAX:
            asked.answer.fail(PeerLost(f"{len(self._asked)} requests wait for an answer already"))
            return asked.answer
        tail = self._client_id + b"\0" if is_flexible else self._client_id
        size = 8 + len(tail) + len(body)
        frame = _pack_start(size, api_key, version, asked.correlation_id) + tail + body
        self._asked.append(asked)
        if self._timer is None:
            self._timer = self._timers.call_later(self._timeout_ms(), self._look_at_time)
        self._unsent.append(frame)
        if self._socket is None and self._resolving is None:
            self._connect()
        elif self._is_connected and not self._is_writing:
            self._send()
        return asked.answer

    def close(self) -> None:
        self._lose("closed")

    # -- connecting ---------------------------------------------------------------------------

    def _connect(self) -> None:
        host = self._address[0]
        try:
            socket.inet_pton(socket.AF_INET, host)
        except OSError:
            self._resolving = self._loop.create_task(self._resolve())
        else:
            self._open(socket.AF_INET, self._address)

    async def _resolve(self) -> None:
        try:
            found = await self._loop.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        except OSError as failure:
            self._resolving = None
            self._lose(f"{self._address[0]} has no address: {failure}")
            return
        self._resolving = None
        family, _, _, _, address = found[0]
        self._open(family, address)

    def _open(self, family: int, address: tuple[object, ...]) -> None:
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._receive_buffer_bytes > 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        self._socket = opened
        self._descriptor = opened.fileno()
        try:
            opened.connect(address)
        except BlockingIOError:
            pass
        except OSError as failure:
            # Not at once: whoever asks has not got its Deferred yet.
            self._loop.call_soon(self._lose_of, opened, f"cannot connect: {failure}")
            return
        self._watch_writable(True)

    def _on_writable(self) -> None:
        connected = self._socket
        if connected is None:
            return
        if not self._is_connected:
            error = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._lose(f"cannot connect: {OSError(error, '').strerror or error}")
                return
            self._is_connected = True
            self._loop.add_reader(self._descriptor, self._on_readable)
        self._send()

    def _watch_writable(self, wanted: bool) -> None:
        if wanted != self._is_writing:
            self._is_writing = wanted
            if wanted:
                self._loop.add_writer(self._descriptor, self._on_writable)
            else:
                self._loop.remove_writer(self._descriptor)

    # -- bytes --------------------------------------------------------------------------------

    def _send(self) -> None:
        connected, unsent = self._socket, self._unsent
        if connected is None:
            return
        try:
            while unsent:
                frame = unsent[0]
                sent = connected.send(frame)
                if sent < len(frame):
                    unsent[0] = memoryview(frame)[sent:]
                    break
                unsent.popleft()
        except BlockingIOError:
            pass
        except OSError as failure:
            self._loop.call_soon(self._lose_of, connected, f"connection lost: {failure}")
            return
        self._watch_writable(bool(unsent))

    def _on_readable(self) -> None:
        connected = self._socket
        if connected is None:
            return
        try:
            received = connected.recv_into(memoryview(self._buffer)[self._have :])
        except BlockingIOError:
            return
        except OSError as failure:
            self._lose(f"connection lost: {failure}")
            return
        if received == 0:
            self._lose("the peer closed the connection")
            return
        self._have += received
        self._take_answers(connected)

    def _take_answers(self, connected: socket.socket) -> None:
        start = 0
        while self._have - start >= 8:
            size, correlation_id = _read_size_and_id(self._buffer, start)
            end = start + 4 + size
            if not 4 < size <= PEER_ANSWER_BYTES_MAX:
                self._lose(f"an answer of {size} bytes")
                return
            if end > self._have:
                break
            if not self._asked or self._asked[0].correlation_id != correlation_id:
                self._lose("an answer to nothing that was asked")
                return
            asked = self._asked.popleft()
            asked.answer.resolve(memoryview(self._buffer)[start + asked.body_position : end])
            if connected is not self._socket:
                return  # lost while the answer was being taken
            start = end
        self._make_room(start)

    def _make_room(self, start: int) -> None:
        """Keep what has begun to come, in a buffer that its whole answer fits in. A new one instead
        of a larger one: somebody may still hold a view of this."""
        left = self._have - start
        need = BUFFER_BYTES_FIRST
        if left >= 4:
            need = max(need, 4 + _read_size(self._buffer, start)[0])
        is_too_large = len(self._buffer) > BUFFER_BYTES_KEPT and start < len(self._buffer) // 4
        if need > len(self._buffer) or (left == 0 and is_too_large):
            larger = bytearray(need)
            larger[:left] = self._buffer[start : self._have]
            self._buffer = larger
        elif start and left:
            self._buffer[:left] = self._buffer[start : self._have]
        self._have = left

    # -- the end ------------------------------------------------------------------------------

    def _look_at_time(self) -> None:
        """One timer for all: it looks at the oldest request and comes back when that is due."""
        self._timer = None
        if not self._asked:
            return
        waited_ms = self._now_ms() - self._asked[0].sent_ms
        left_ms = self._timeout_ms() - waited_ms
        if left_ms <= 0:
            self._lose(f"no answer for {waited_ms} ms")
        else:
            self._timer = self._timers.call_later(left_ms, self._look_at_time)

    def _lose_of(self, lost: socket.socket, reason: str) -> None:
        if lost is self._socket:
            self._lose(reason)

    def _lose(self, reason: str) -> None:
        if self._resolving is not None:
            self._resolving.cancel()
            self._resolving = None
        lost, self._socket = self._socket, None
        if lost is not None:
            self._watch_writable(False)
            if self._is_connected:
                self._loop.remove_reader(self._descriptor)
            lost.close()
        self._is_connected = False
        self._have = 0
        self._unsent.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        asked, self._asked = self._asked, deque()
        for one in asked:
            one.answer.fail(PeerLost(f"{self._address[0]}:{self._address[1]}: {reason}"))
