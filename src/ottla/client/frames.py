"""Bytes from a socket into frames: what is between the size in front of an answer and its end.

Owns the memory into which a socket is read. Small frames come out as bytes of their own; a frame
that is larger than the room that is left gets memory of exactly its size, and the socket is read
straight into it, so that a fetch of megabytes is copied once, by the kernel.

Never believes a size before it is compared with the bound. One chunk and byte by byte give the
same frames.
"""

from __future__ import annotations

import struct

from ottla.base.limits import ANSWER_BYTES_MAX
from ottla.client.errors import MalformedAnswerError

_ROOM_BYTES = 64 * 1024
_read_size = struct.Struct(">i").unpack_from
_SIZE_BYTES = 4


class FrameReader:
    __slots__ = ("_end", "_filled", "_large", "_room", "_view")

    def __init__(self) -> None:
        self._room = bytearray(_ROOM_BYTES)
        self._view = memoryview(self._room)
        self._end = 0  # bytes in the room that are part of a frame not yet whole
        self._large: bytearray | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go; tell `received` how many came."""
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        return self._view[self._end :]

    def received(self, count: int) -> list[bytes | bytearray]:
        """The frames that are whole now, without their sizes."""
        if self._large is not None:
            self._filled += count
            if self._filled < len(self._large):
                return []
            whole, self._large = self._large, None
            return [whole]
        if self._end == 0 and count > _SIZE_BYTES:
            # Nearly always one small answer, and nothing else.
            (size,) = _read_size(self._room)
            if size == count - _SIZE_BYTES:
                return [bytes(self._view[_SIZE_BYTES:count])]
        self._end += count
        return self._cut()

    def _cut(self) -> list[bytes | bytearray]:
        frames: list[bytes | bytearray] = []
        position, end, room = 0, self._end, self._room
        while end - position >= _SIZE_BYTES:
            (size,) = _read_size(room, position)
            if not 0 < size <= ANSWER_BYTES_MAX:
                raise MalformedAnswerError(f"an answer of {size} bytes")
            begin = position + _SIZE_BYTES
            if begin + size > end:
                if size > _ROOM_BYTES - _SIZE_BYTES:
                    self._begin_large(size, begin)
                    return frames
                break
            position = begin + size
            frames.append(bytes(self._view[begin:position]))
        if position:
            # What is left moves to the front, so that any frame that fits the room gets it whole.
            rest = bytes(self._view[position:end])
            self._view[: len(rest)] = rest
            self._end = len(rest)
        return frames

    def _begin_large(self, size: int, begin: int) -> None:
        large = bytearray(size)
        filled = self._end - begin
        large[:filled] = self._view[begin : self._end]
        self._large, self._filled, self._end = large, filled, 0
