"""A file of fixed-size entries that grows by doubling and is written through a mapping.

Kafka reserves 10 MiB for each index of an active segment. Here the file starts at 4 KiB and doubles
as it fills, so that ten thousand idle partitions cost nothing. Behind the last entry there are
zeros until `trim()`, which a roll and a close do; after a crash they are still there.
"""

from __future__ import annotations

from typing import Any

from ottla.base.ports import File, Files

FIRST_MAPPED_BYTES = 4096


class MappedFile:
    """`buffer` holds `capacity` bytes of the file; capacity 0 means that nothing is mapped."""

    __slots__ = ("_entry_bytes", "_files", "buffer", "capacity", "limit_bytes", "path")

    def __init__(self, files: Files, path: str, entry_bytes: int, limit_bytes: int) -> None:
        self._files = files
        self._entry_bytes = entry_bytes
        self.path = path
        self.limit_bytes = limit_bytes - limit_bytes % entry_bytes
        self.buffer: Any = b""
        self.capacity = 0

    def map_existing(self) -> int:
        """Maps what the file holds, rounded down to whole entries; returns that many bytes."""
        file = self._files.open(self.path)
        size = file.size()
        size -= size % self._entry_bytes
        if size:
            self.buffer = file.map(size)
        self.capacity = size
        file.close()
        return size

    def grow(self, needed_bytes: int) -> None:
        """Makes room for `needed_bytes`, at least, by doubling."""
        capacity = max(self.capacity, FIRST_MAPPED_BYTES)
        while capacity < needed_bytes:
            capacity *= 2
        capacity = min(capacity - capacity % self._entry_bytes, self.limit_bytes)
        self.close()
        file = self._files.open(self.path, create=True)
        if file.size() < capacity:
            file.truncate(capacity)
        self.buffer = file.map(capacity)
        self.capacity = capacity
        file.close()

    def trim(self, used_bytes: int) -> None:
        """Cuts the file to its entries and unmaps it. The caller syncs."""
        self.close()
        file: File = self._files.open(self.path, create=True)
        if file.size() != used_bytes:
            file.truncate(used_bytes)
        file.close()

    def close(self) -> None:
        if self.capacity:
            self.buffer.close()
        self.buffer = b""
        self.capacity = 0
