"""`.snapshot`: the producers known at an offset, Kafka's format version 1.

int16 version, uint32 CRC-32C of all that follows, int32 count, then for each producer: int64 id,
int16 epoch, int32 last sequence, int64 last offset, int32 offset delta of the last batch, int64
timestamp, int32 coordinator epoch, int64 first offset of its open transaction (or -1).
Only the last batch of a producer is in it, not the last five; see `producer_state`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.records.crc32c import crc32c

HEAD = struct.Struct(">hIi")
ENTRY = struct.Struct(">qhiqiqiq")
CRC_COVERS_FROM = 6
VERSION = 1


class SnapshotEntry(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode(entries: Iterable[SnapshotEntry]) -> bytes:
    body = b"".join(ENTRY.pack(*entry) for entry in entries)
    content = bytearray(HEAD.pack(VERSION, 0, len(body) // ENTRY.size))
    content += body
    checksum = crc32c(memoryview(content)[CRC_COVERS_FROM:])
    HEAD.pack_into(content, 0, VERSION, checksum, len(body) // ENTRY.size)
    return bytes(content)


def decode(content: bytes) -> list[SnapshotEntry] | None:
    """The entries; None if the file is of another version, torn or corrupt."""
    if len(content) < HEAD.size:
        return None
    version, checksum, count = HEAD.unpack_from(content, 0)
    if version != VERSION or len(content) != HEAD.size + count * ENTRY.size:
        return None
    if crc32c(memoryview(content)[CRC_COVERS_FROM:]) != checksum:
        return None
    return [SnapshotEntry(*fields) for fields in ENTRY.iter_unpack(content[HEAD.size :])]
