"""`.timeindex`: from a time to an offset; sparse, 12 bytes an entry.

An entry is (int64 timestamp, int32 offset relative to the segment's base): no batch up to and
including the one that ends at the offset has a later timestamp. Both columns only grow. An entry is
written beside an entry of the offset index if the largest timestamp has grown, and one more when
the segment is rolled or closed, so that the last entry tells the segment's largest timestamp; one
place is kept free for that one.
"""

from __future__ import annotations

import struct

from ottla.base.ids import NO_TIMESTAMP
from ottla.base.ports import Files
from ottla.log.mapped_file import MappedFile

ENTRY = struct.Struct(">qi")
ENTRY_BYTES = 12

_unpack = ENTRY.unpack_from


class TimeIndex:
    """`entries` is -1 until the file has been looked at."""

    __slots__ = (
        "base_offset",
        "entries",
        "entries_max",
        "last_offset",
        "last_timestamp",
        "mapped",
    )

    def __init__(self, files: Files, path: str, base_offset: int, limit_bytes: int) -> None:
        self.base_offset = base_offset
        self.mapped = MappedFile(files, path, ENTRY_BYTES, limit_bytes)
        self.entries_max = limit_bytes // ENTRY_BYTES - 1
        self.entries = -1
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = base_offset

    def start_empty(self) -> None:
        self._set_entries(0)

    def open(self) -> None:
        mapped = self.mapped
        if self.entries == 0 or mapped.capacity:
            return
        found = mapped.map_existing() // ENTRY_BYTES
        if self.entries < 0:
            self._set_entries(self._written(found))

    def close(self) -> None:
        self.mapped.close()

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Only a timestamp above all before is worth an entry."""
        if timestamp <= self.last_timestamp or offset < self.last_offset:
            return False
        at = self.entries * ENTRY_BYTES
        mapped = self.mapped
        if at + ENTRY_BYTES > mapped.capacity:
            mapped.grow(at + ENTRY_BYTES)
        ENTRY.pack_into(mapped.buffer, at, timestamp, offset - self.base_offset)
        self.entries += 1
        self.last_timestamp = timestamp
        self.last_offset = offset
        return True

    def entry(self, slot: int) -> tuple[int, int]:
        """The timestamp and the offset of one entry."""
        timestamp, relative = _unpack(self.mapped.buffer, slot * ENTRY_BYTES)
        return timestamp, self.base_offset + relative

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which everything is older than `timestamp`; the base if none is known."""
        buffer = self.mapped.buffer
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) >> 1
            if _unpack(buffer, middle * ENTRY_BYTES)[0] < timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1)[1] if low else self.base_offset

    def truncate(self, offset: int) -> None:
        """Drops the entries for `offset` and above."""
        relative = offset - self.base_offset
        buffer = self.mapped.buffer
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) >> 1
            if _unpack(buffer, middle * ENTRY_BYTES)[1] < relative:
                low = middle + 1
            else:
                high = middle
        self._set_entries(low)
        self.trim()
        self.open()

    def trim(self) -> None:
        self.mapped.trim(self.entries * ENTRY_BYTES)

    def content(self) -> bytes:
        return bytes(self.mapped.buffer[: self.entries * ENTRY_BYTES]) if self.entries else b""

    def is_sane(self) -> bool:
        """What can be told without reading the log: order at both ends."""
        if self.entries <= 0:
            return self.entries == 0
        first_timestamp, first_offset = self.entry(0)
        return (
            0 <= first_timestamp <= self.last_timestamp
            and self.base_offset <= first_offset <= self.last_offset
        )

    def _written(self, found: int) -> int:
        """Entries of zeros behind the last one are space, not entries.

        From the second on a timestamp is above 0. The first can be 0, for a record from the year
        1970, and is told from space only in a file that was trimmed to it.
        """
        buffer = self.mapped.buffer
        low, high = 1, found
        while low < high:
            middle = (low + high) >> 1
            if _unpack(buffer, middle * ENTRY_BYTES)[0] != 0:
                low = middle + 1
            else:
                high = middle
        if low == 1 and found > 1 and _unpack(buffer, 0) == (0, 0):
            return 0
        return min(low, found)

    def _set_entries(self, entries: int) -> None:
        self.entries = entries
        if entries > 0:
            self.last_timestamp, self.last_offset = self.entry(entries - 1)
        else:
            self.last_timestamp, self.last_offset = NO_TIMESTAMP, self.base_offset


def build(entries: list[tuple[int, int]], base_offset: int) -> bytes:
    """The whole content of a time index file."""
    return b"".join(ENTRY.pack(timestamp, offset - base_offset) for timestamp, offset in entries)
