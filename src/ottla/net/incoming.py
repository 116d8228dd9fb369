"""Frames of one connection, cut out of the stream of bytes.

Bytes are received into a scratch buffer that every connection of the processor shares, so an idle
connection owns no memory. What does not make a whole frame is put aside: little as it is, more in a
buffer of its own that grows with the bytes that have really come, never with the size that the peer
declares.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from ottla.base.errors import OttlaError
from ottla.base.limits import REQUEST_BYTES_MAX_OTHER_THAN_PRODUCE

SIZE = struct.Struct(">i")
_unpack_size = SIZE.unpack_from
SIZE_AND_KEY = struct.Struct(">ih")
PRODUCE_KEY = 0

# When so much of a frame has come, it is collected in a buffer of its own. Before, copying the
# pieces is cheaper, and thousands of peers that send the first bytes of large frames take no more.
OWN_BUFFER_BYTES_MIN = 32 * 1024
# The room in it, in times of what has come. With less it would be copied more often, which honest
# producers of large requests would pay for.
OWN_BUFFER_ROOM = 8
KEPT_BUFFER_BYTES_MAX = 2 * 1024 * 1024


class FrameError(OttlaError):
    """A frame that no honest client sends; the connection is closed."""


class FrameMemory:
    """Memory for frames in pieces: a bound over all connections, and one buffer kept for reuse."""

    __slots__ = (
        "_kept",
        "any_bytes_max",
        "bytes_max",
        "bytes_used",
        "frame_bytes_max",
        "make_room",
        "other_bytes_max",
    )

    def __init__(self, bytes_max: int, frame_bytes_max: int, other_bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.frame_bytes_max = frame_bytes_max
        self.other_bytes_max = other_bytes_max or REQUEST_BYTES_MAX_OTHER_THAN_PRODUCE
        self.any_bytes_max = min(self.frame_bytes_max, self.other_bytes_max)
        self.bytes_used = 0
        self._kept: bytearray | None = None
        self.make_room: Callable[[Incoming], bool] = lambda asking: False
        """Closes whoever takes longest, unless that is who asks; for the processor to set."""

    def take(self, size: int, asking: Incoming) -> bytearray:
        while self.bytes_used + size > self.bytes_max:
            if not self.make_room(asking):
                raise FrameError("requests under way exceed the memory set aside for them")
        self.bytes_used += size
        kept = self._kept
        if kept is not None and len(kept) >= size:
            self._kept = None
            self.bytes_used += len(kept) - size
            return kept
        return bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        self.bytes_used -= len(buffer)
        kept_bytes = 0 if self._kept is None else len(self._kept)
        if kept_bytes < len(buffer) <= KEPT_BUFFER_BYTES_MAX:
            self._kept = buffer


class Incoming:
    __slots__ = (
        "_aside",
        "_continued",
        "_end",
        "_have",
        "_memory",
        "_need",
        "_own",
        "_position",
        "_scratch",
        "began_ms",
    )

    def __init__(self, scratch: bytearray, memory: FrameMemory) -> None:
        self._scratch = memoryview(scratch)
        self._memory = memory
        self._position = 0  # of the next byte to look at, in the scratch buffer
        self._end = 0
        self._aside = b""
        self._own: bytearray | None = None
        self._have = 0
        self._need = 0
        self._continued = False  # whether the scratch buffer begins with what was put aside
        self.began_ms = 0
        """When the first byte of a frame came of which some are still missing."""

    def receive(self, connected: socket.socket) -> int:
        own = self._own
        if own is not None:
            return self._receive_own(connected, own)
        aside = self._aside
        if not aside:
            self._continued = False
            received = connected.recv_into(self._scratch)
            self._position, self._end = 0, received
            return received
        start = len(aside)
        received = connected.recv_into(self._scratch[start:])
        self._scratch[:start] = aside
        self._aside = b""
        self._continued = True
        self._position, self._end = 0, start + received
        return received

    def _receive_own(self, connected: socket.socket, own: bytearray) -> int:
        if self._have == len(own):
            own = self._grow(own)
        with memoryview(own) as whole:
            received = connected.recv_into(whole[self._have : self._need])
        self._have += received
        return received

    def _grow(self, own: bytearray) -> bytearray:
        larger = self._memory.take(min(self._need, 2 * len(own)), self)
        larger[: self._have] = own[: self._have]
        self._memory.give_back(own)
        self._own = larger
        return larger

    def next_frame(self) -> memoryview | None:
        """The next whole frame, valid until the next call, or None if there is none at hand."""
        own = self._own
        if own is not None:
            if self._have < self._need:
                return None
            self._own = None
            # Given back at once: nobody else receives before the handler has returned.
            self._memory.give_back(own)
            return memoryview(own)[4 : self._need]
        if self._position == self._end:
            if not self._aside:
                return None
            self._restore()
        start = self._position + 4
        left = self._end - start
        if left < 0:
            return None
        size: int = _unpack_size(self._scratch, start - 4)[0]
        if not 0 < size <= self._memory.any_bytes_max:
            self._judge_size(size, left)
        if left < size:
            return None
        self._position = end = start + size
        return self._scratch[start:end]

    def whole_frames(self, count_max: int) -> list[memoryview]:
        """The next ones, as far as they stand whole in the shared buffer, and valid as long. They
        stay the next ones until `skip` tells which of them are done with."""
        frames: list[memoryview] = []
        if self._own is not None:
            return frames
        scratch, end, position = self._scratch, self._end, self._position
        while end - position > SIZE.size and len(frames) < count_max:
            size = _unpack_size(scratch, position)[0]
            start = position + SIZE.size
            position = start + size
            if position > end or not 0 < size <= self._memory.any_bytes_max:
                break  # `next_frame` says what is wrong with it, if anything is
            frames.append(scratch[start:position])
        return frames

    def skip(self, frames: list[memoryview]) -> None:
        self._position += sum(map(len, frames)) + len(frames) * SIZE.size

    def _restore(self) -> None:
        aside, self._aside = self._aside, b""
        self._scratch[: len(aside)] = aside
        self._position, self._end = 0, len(aside)
        self._continued = True

    def _judge_size(self, size: int, left: int) -> None:
        if size <= 0 or size > self._memory.frame_bytes_max:
            raise FrameError(f"a frame of {size} bytes is not acceptable")
        if left >= SIZE_AND_KEY.size - SIZE.size and size > self._memory.other_bytes_max:
            key = SIZE_AND_KEY.unpack_from(self._scratch, self._position)[1]
            if key != PRODUCE_KEY:
                raise FrameError(f"a frame of {size} bytes is too large for API key {key}")

    def put_aside(self, now_ms: int) -> None:
        """Keep what is left in the scratch buffer, which another connection will overwrite."""
        left = self._end - self._position
        if left == 0:
            return
        if self._position or not self._continued:
            self.began_ms = now_ms  # it is the start of another frame than before
        rest = self._scratch[self._position : self._end]
        self._position = self._end = 0
        if left >= SIZE.size:
            need = SIZE.size + SIZE.unpack_from(rest)[0]
            if OWN_BUFFER_BYTES_MIN < left < need:
                own = self._memory.take(min(need, OWN_BUFFER_ROOM * left), self)
                own[:left] = rest
                self._own, self._have, self._need = own, left, need
                return
        self._aside = bytes(rest)

    def has_aside(self) -> bool:
        return bool(self._aside) or self._own is not None

    def is_partial(self) -> bool:
        """Whether the bytes put aside are less than one frame."""
        if self._own is not None:
            return self._have < self._need
        aside = self._aside
        if not aside:
            return False
        return len(aside) < SIZE.size or len(aside) < SIZE.size + SIZE.unpack_from(aside)[0]

    def declared_bytes(self) -> int:
        """How large the frame is that has begun to come; 0 if that is not known yet."""
        if self._own is not None:
            return self._need
        aside = self._aside
        return SIZE.unpack_from(aside)[0] if len(aside) >= SIZE.size else 0

    def holds_memory(self) -> bool:
        """Whether its frame counts in what is set aside for all of them."""
        return self._own is not None

    def release(self) -> None:
        if self._own is not None:
            self._memory.give_back(self._own)
            self._own = None
        self._aside = b""
