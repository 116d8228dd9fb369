"""`.txnindex`: the aborted transactions whose marker is in the segment, 34 bytes each.

An entry is (int16 version 0, int64 producer id, int64 first offset, int64 last offset, int64 last
stable offset when the marker was written). There is no file until a transaction is aborted. It is
written without a sync; for what lies above the recovery point it is made anew after a crash.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.ports import File, Files

ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = 34
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Opens its file for each write. What was read is kept: every read_committed fetch asks."""

    __slots__ = ("_entries", "_exists", "_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._exists: bool | None = None
        self._entries: list[AbortedTransaction] | None = None
        self.path = path

    def start_empty(self) -> None:
        self._exists = False
        self._entries = None

    def appeared(self) -> None:
        """Somebody has written the file."""
        self._exists = True
        self._entries = None

    def exists(self) -> bool:
        if self._exists is None:
            self._exists = self._files.exists(self.path)
        return self._exists

    def append(self, aborted: AbortedTransaction) -> None:
        file: File = self._files.open(self.path, create=True)
        # A tail that is no whole entry was torn by a crash: the next one goes over it.
        whole = file.size() - file.size() % ENTRY_BYTES
        if whole != file.size():
            file.truncate(whole)
        file.append([ENTRY.pack(VERSION, *aborted)])
        file.close()
        if whole == 0:
            self._entries = []
        self._exists = True
        if self._entries is not None:
            self._entries.append(aborted)

    def read(self) -> list[AbortedTransaction]:
        """By the offset of their markers. Not the caller's to change."""
        if not self.exists():
            return []
        if self._entries is None:
            self._entries = list(parse(self._files.read(self.path)))
        return self._entries

    def truncate(self, offset: int) -> None:
        """Drops the transactions whose marker is at `offset` or above."""
        entries = self.read()
        keep = [entry for entry in entries if entry.last_offset < offset]
        if len(keep) != len(entries):
            file = self._files.open(self.path)
            file.truncate(len(keep) * ENTRY_BYTES)
            file.close()
            self._entries = keep


def parse(content: bytes) -> Iterator[AbortedTransaction]:
    """The entries of a file; an entry of another version ends the list, as does a torn one."""
    for at in range(0, len(content) - ENTRY_BYTES + 1, ENTRY_BYTES):
        version, *fields = ENTRY.unpack_from(content, at)
        if version != VERSION:
            return
        yield AbortedTransaction(*fields)


def build(entries: list[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)
