"""`.index`: from an offset to the position of the batch that holds it; sparse, 8 bytes an entry.

An entry is (int32 offset relative to the segment's base, int32 file position). As in Kafka since
4.0 the offset is the *last* of the batch that starts at the position, and one entry is written for
each batch that begins more than `index.interval.bytes` after the batch of the entry before.
A position of 0 never occurs, so entries of zeros behind the last one mean "not written".
"""

from __future__ import annotations

import struct

from ottla.base.ports import Files
from ottla.log.mapped_file import MappedFile

ENTRY = struct.Struct(">ii")
ENTRY_BYTES = 8
RELATIVE_OFFSET_MAX = 2**31 - 1

_unpack = ENTRY.unpack_from


class OffsetIndex:
    """`entries` is -1 until the file has been looked at."""

    __slots__ = ("base_offset", "entries", "entries_max", "last_offset", "last_position", "mapped")

    def __init__(self, files: Files, path: str, base_offset: int, limit_bytes: int) -> None:
        self.base_offset = base_offset
        self.mapped = MappedFile(files, path, ENTRY_BYTES, limit_bytes)
        self.entries_max = limit_bytes // ENTRY_BYTES
        self.entries = -1
        self.last_offset = base_offset
        self.last_position = 0

    def start_empty(self) -> None:
        """For a segment that has just been made; the file comes with the first entry."""
        self._set_entries(0)

    def open(self) -> None:
        """Maps the file, if it holds entries. Entries of zeros at the end do not count."""
        mapped = self.mapped
        if self.entries == 0 or mapped.capacity:
            return
        found = mapped.map_existing() // ENTRY_BYTES
        if self.entries < 0:
            self._set_entries(self._written(found))

    def close(self) -> None:
        self.mapped.close()

    def append(self, offset: int, position: int) -> None:
        at = self.entries * ENTRY_BYTES
        mapped = self.mapped
        if at + ENTRY_BYTES > mapped.capacity:
            mapped.grow(at + ENTRY_BYTES)
        ENTRY.pack_into(mapped.buffer, at, offset - self.base_offset, position)
        self.entries += 1
        self.last_offset = offset
        self.last_position = position

    def entry(self, slot: int) -> tuple[int, int]:
        """The offset and the position of one entry."""
        relative, position = _unpack(self.mapped.buffer, slot * ENTRY_BYTES)
        return self.base_offset + relative, position

    def position_for_offset(self, offset: int) -> int:
        """Where to start looking for `offset`: a batch that ends at or before it, or 0."""
        if offset >= self.last_offset:
            return self.last_position
        relative = offset - self.base_offset
        buffer = self.mapped.buffer
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) >> 1
            if _unpack(buffer, middle << 3)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        return int(_unpack(buffer, (low - 1) << 3)[1]) if low else 0

    def position_at_most(self, position: int) -> int:
        """The start of the last indexed batch at or before `position`, or 0."""
        if position >= self.last_position:
            return self.last_position
        buffer = self.mapped.buffer
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) >> 1
            if _unpack(buffer, middle << 3)[1] <= position:
                low = middle + 1
            else:
                high = middle
        return int(_unpack(buffer, (low - 1) << 3)[1]) if low else 0

    def truncate(self, position: int) -> None:
        """Drops the entries of batches that start at or behind `position`."""
        low, high = 0, self.entries
        buffer = self.mapped.buffer
        while low < high:
            middle = (low + high) >> 1
            if _unpack(buffer, middle << 3)[1] < position:
                low = middle + 1
            else:
                high = middle
        self._set_entries(low)
        # What is dropped must not come back as entries when the file is opened after a crash.
        self.trim()
        self.open()

    def trim(self) -> None:
        self.mapped.trim(self.entries * ENTRY_BYTES)

    def content(self) -> bytes:
        return bytes(self.mapped.buffer[: self.entries * ENTRY_BYTES]) if self.entries else b""

    def is_sane(self, log_bytes: int) -> bool:
        """What can be told without reading the log: order at both ends, nothing past the log."""
        if self.entries <= 0:
            return self.entries == 0
        first_offset, first_position = self.entry(0)
        return (
            self.base_offset <= first_offset <= self.last_offset
            and 0 < first_position <= self.last_position < log_bytes
        )

    def _written(self, found: int) -> int:
        """How many of `found` entries were written: the first with position 0 was not."""
        buffer = self.mapped.buffer
        if found == 0 or _unpack(buffer, (found - 1) << 3)[1] != 0:
            return found
        low, high = 0, found
        while low < high:
            middle = (low + high) >> 1
            if _unpack(buffer, middle << 3)[1] != 0:
                low = middle + 1
            else:
                high = middle
        return low

    def _set_entries(self, entries: int) -> None:
        self.entries = entries
        if entries > 0:
            self.last_offset, self.last_position = self.entry(entries - 1)
        else:
            self.last_offset, self.last_position = self.base_offset, 0


def build(entries: list[tuple[int, int]], base_offset: int) -> bytes:
    """The whole content of an index file."""
    content = bytearray(len(entries) * ENTRY_BYTES)
    at = 0
    for offset, position in entries:
        ENTRY.pack_into(content, at, offset - base_offset, position)
        at += ENTRY_BYTES
    return bytes(content)
