"""What waits to be sent on one connection: bytes, and slices of files by `sendfile`.

Owns the order and the partial sends. Plain slices never enter Python; small ones are read and sent
with the bytes around them, because below 16 KiB one `send` is cheaper than three system calls.
A slice that is not in the page cache would block the loop: the pool sends it.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.ports import Pool
from ottla.log.partition_log import LogSlice

SLICE_BYTES_BY_COPY_MAX = 16 * 1024
SENDFILE_CHUNK_BYTES = 512 * 1024
# What is not in memory keeps a thread of the pool, and the disk, for so many bytes at a time.
COLD_CHUNK_BYTES = 1024 * 1024
# A fast reader of a large answer would keep the loop to itself: others get their turn after this.
TURN_BYTES_MAX = 1024 * 1024
GATHER_PARTS_MAX = 64
# Up to here one piece made of many is cheaper than handing the kernel many.
JOINED_BYTES_MAX = 2 * SLICE_BYTES_BY_COPY_MAX

RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class Outgoing:
    __slots__ = (
        "_cold",
        "_descriptor",
        "_failure",
        "_is_full",
        "_on_ready",
        "_pool",
        "_probed_to",
        "_socket",
        "bytes_queued",
        "parts",
        "waiting",
    )

    def __init__(self, connected: socket.socket, pool: Pool, on_ready: Callable[[], None]) -> None:
        self._socket = connected
        self._descriptor = connected.fileno()
        self._pool = pool
        self._on_ready = on_ready
        self.parts: deque[bytes | bytearray | memoryview | LogSlice] = deque()
        self._probed_to = -1
        self._cold = False  # whether the slice in front had to be read from the disk
        self._is_full = False  # the socket took no more from the pool
        self._failure: OSError | None = None  # of the pool: the answer cannot be finished
        self.bytes_queued = 0  # in memory; slices of files cost none
        self.waiting = False  # for the pool, which sends

    def __bool__(self) -> bool:
        return bool(self.parts)

    def put_bytes(self, content: bytes) -> None:
        self.parts.append(content)
        self.bytes_queued += len(content)

    def put(self, parts: list[bytes | LogSlice]) -> None:
        pieces: list[bytes | bytearray] = []
        for part in parts:
            if isinstance(part, LogSlice):
                content = _at_hand(part) if part.size <= SLICE_BYTES_BY_COPY_MAX else None
                if content is None:
                    self._put_pieces(pieces)
                    pieces = []
                    self.parts.append(part)
                else:
                    pieces.append(content)
            else:
                pieces.append(part)
        self._put_pieces(pieces)

    def _put_pieces(self, pieces: list[bytes | bytearray]) -> None:
        size = sum(map(len, pieces))
        self.bytes_queued += size
        if size <= JOINED_BYTES_MAX:
            self.parts.append(b"".join(pieces))
        else:
            self.parts.extend(pieces)

    def pump(self) -> bool:
        """Send what the socket takes in one turn. True when all is out; OSError ends the peer."""
        if self._failure is not None:
            raise self._failure
        parts = self.parts
        if len(parts) == 1 and self._sent_at_once(parts[0]):
            return True
        turn_bytes_left = TURN_BYTES_MAX
        try:
            while parts:
                if self.waiting or turn_bytes_left <= 0:
                    return False
                if isinstance(parts[0], LogSlice):
                    turn_bytes_left -= self._send_slice(parts[0])
                else:
                    turn_bytes_left -= self._send_bytes()
        except BlockingIOError:
            return False
        return True

    def _sent_at_once(self, only: bytes | bytearray | memoryview | LogSlice) -> bool:
        """The usual answer: one piece, and the socket takes all of it."""
        if type(only) is not bytes:
            return False
        try:
            sent = self._socket.send(only)
        except BlockingIOError:
            return False
        if sent < len(only):
            self.parts[0] = memoryview(only)[sent:]
            self.bytes_queued -= sent
            return False
        self.parts.clear()
        self.bytes_queued = 0
        return True

    def _send_bytes(self) -> int:
        parts = self.parts
        gathered: list[bytes | bytearray | memoryview] = []
        for part in parts:
            if isinstance(part, LogSlice) or len(gathered) == GATHER_PARTS_MAX:
                break
            gathered.append(part)
        flags = socket.MSG_MORE if len(gathered) < len(parts) else 0
        if len(gathered) == 1:
            sent = self._socket.send(gathered[0], flags)
        else:
            sent = self._socket.sendmsg(gathered, (), flags)
        self.bytes_queued -= sent
        left = sent
        for part in gathered:
            if left < len(part):
                parts[0] = memoryview(part)[left:]
                break
            left -= len(part)
            parts.popleft()
        return sent

    def _send_slice(self, part: LogSlice) -> int:
        position = part.position
        if position >= self._probed_to:
            count = min(part.size, SENDFILE_CHUNK_BYTES)
            # The rest of a slice that had to be read is read, too: some of it may be on its way,
            # and as pages come in any order, a look at the first and the last tells nothing.
            self._cold = self._cold or not part.file.is_cached(position, count)
            if self._cold:
                self._send_by_pool(part)
                return 0
            self._probed_to = position + count
        # Not a byte more than is known to be in memory: the loop would wait for the disk.
        count = min(part.size, self._probed_to - position)
        sent = os.sendfile(self._descriptor, part.file.fileno(), position, count)
        if sent == 0:
            raise _cut_short()
        self._passed(part, sent)
        return sent

    def _passed(self, part: LogSlice, sent: int) -> None:
        part.position += sent
        part.size -= sent
        if part.size == 0:
            self.parts.popleft()
            self._probed_to = -1
            self._cold = False

    def _send_by_pool(self, part: LogSlice) -> None:
        if self._is_full:
            self._is_full = False
            raise BlockingIOError
        self.waiting = True
        count = min(part.size, COLD_CHUNK_BYTES)
        # Of its own: this connection may be closed meanwhile, and its number be another's.
        descriptor = os.dup(self._descriptor)

        def sent(outcome: Deferred[int]) -> None:
            self.waiting = False
            try:
                passed = outcome.result()
            except OSError as failure:
                self._failure = failure
            else:
                self._is_full = passed < count
                self._passed(part, passed)
            self._on_ready()

        self._pool.run(_send_cold, descriptor, part, count).when_done(sent)


def _at_hand(part: LogSlice) -> bytearray | None:
    """The whole slice, if it can be had without waiting for the disk."""
    content = bytearray(part.size)
    try:
        read = os.preadv(part.file.fileno(), (content,), part.position, RWF_NOWAIT)
    except OSError:
        return None  # not in memory, or for a reason that sending it will tell
    return content if read == part.size else None


def _send_cold(descriptor: int, part: LogSlice, count: int) -> int:
    """As much as the socket takes, in a thread of the pool, which waits for the disk."""
    file, start, passed = part.file.fileno(), part.position, 0
    try:
        while passed < count:
            sent = os.sendfile(descriptor, file, start + passed, count - passed)
            if sent == 0:
                raise _cut_short()
            passed += sent
    except BlockingIOError:
        pass  # the loop waits until the socket takes more
    finally:
        os.close(descriptor)
    return passed


def _cut_short() -> ConnectionAbortedError:
    """The file is shorter than the slice: it was truncated under us. The peer must not take what
    follows for records."""
    return ConnectionAbortedError("a segment was truncated while it was being sent")
