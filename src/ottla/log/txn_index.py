"""`.txnindex`: the aborted transactions whose marker is in the segment, 34 bytes each.

An entry is (int16 version 0, int64 producer id, int64 first offset, int64 last offset, int64 last
stable offset when the marker was written). There is no file until a transaction is aborted. It is
written without a sync; for what lies above the recovery point it is made anew after a crash.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.ports import File, Files

ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = 34
VERSION = 0
_MARKER_OFFSET = struct.Struct(">q")
_MARKER_AT = 18


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Opens its file for each write. What was read is kept, since every read_committed fetch asks:
    as the bytes of the file, an entry as an object takes six times as much.
    """

    __slots__ = ("_content", "_exists", "_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._exists: bool | None = None
        self._content: bytearray | None = None
        """Whole entries of the version that is known, by the offset of their markers."""
        self.path = path

    def start_empty(self) -> None:
        self._exists = False
        self._content = None

    def appeared(self) -> None:
        """Somebody has written the file."""
        self._exists = True
        self._content = None

    def exists(self) -> bool:
        if self._exists is None:
            self._exists = self._files.exists(self.path)
        return self._exists

    def is_in_memory(self) -> bool:
        return self._content is not None

    def give_up(self) -> None:
        """Lets go of what is kept: it is in the file."""
        self._content = None

    def append(self, aborted: AbortedTransaction) -> None:
        file: File = self._files.open(self.path, create=True)
        # A tail that is no whole entry was torn by a crash: the next one goes over it.
        whole = file.size() - file.size() % ENTRY_BYTES
        if whole != file.size():
            file.truncate(whole)
        entry = ENTRY.pack(VERSION, *aborted)
        file.append([entry])
        file.close()
        if whole == 0:
            self._content = bytearray()
        self._exists = True
        if self._content is not None:
            self._content += entry

    def read(self) -> list[AbortedTransaction]:
        return list(self.since(0))

    def since(self, offset: int) -> Iterator[AbortedTransaction]:
        """Those whose marker is at `offset` or above, by the offset of their markers."""
        content = self._loaded()
        for slot in range(_slot_of(content, offset), len(content) // ENTRY_BYTES):
            _, *fields = ENTRY.unpack_from(content, slot * ENTRY_BYTES)
            yield AbortedTransaction(*fields)

    def __len__(self) -> int:
        return len(self._loaded()) // ENTRY_BYTES

    def truncate(self, offset: int) -> None:
        """Drops the transactions whose marker is at `offset` or above."""
        content = self._loaded()
        keep_bytes = _slot_of(content, offset) * ENTRY_BYTES
        if keep_bytes != len(content):
            file = self._files.open(self.path)
            file.truncate(keep_bytes)
            file.close()
            del content[keep_bytes:]

    def _loaded(self) -> bytearray:
        if not self.exists():
            return bytearray()
        if self._content is None:
            content = self._files.read(self.path)
            self._content = bytearray(content[: _readable_bytes(content)])
        return self._content


def _slot_of(content: bytearray, offset: int) -> int:
    """Of the first entry whose marker is at `offset` or above."""

    def marker_offset(slot: int) -> int:
        (found,) = _MARKER_OFFSET.unpack_from(content, slot * ENTRY_BYTES + _MARKER_AT)
        return int(found)

    return bisect_left(range(len(content) // ENTRY_BYTES), offset, key=marker_offset)


def _readable_bytes(content: bytes) -> int:
    """Up to an entry of another version, or one that is torn."""
    whole = len(content) - len(content) % ENTRY_BYTES
    for at in range(0, whole, ENTRY_BYTES):
        if content[at] or content[at + 1]:  # the version, which is 0
            return at
    return whole


def parse(content: bytes) -> Iterator[AbortedTransaction]:
    """The entries of a file; an entry of another version ends the list, as does a torn one."""
    for _, *fields in ENTRY.iter_unpack(content[: _readable_bytes(content)]):
        yield AbortedTransaction(*fields)


def build(entries: list[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)
