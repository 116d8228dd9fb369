"""Makes batches: for the coordinators' own records, the client, tests and tools.

Owns the encoding of records, laid out byte for byte as the Java client does it: the first record's
time is the base, varints are of the shortest form, all records are packed as one block. Whoever
calls is trusted: what cannot be encoded is an InvariantError or a struct.error, never a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from ottla.base.errors import check
from ottla.records.batch_header import (
    ATTRIBUTES_POSITION,
    CONTROL_MASK,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_MASK,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
)
from ottla.records.compression import NONE, compress
from ottla.records.crc32c import crc32c
from ottla.records.varints import varint

RecordHeader = tuple[str, bytes | None]

_UINT32 = Struct(">I")
_NULL = varint(-1)


@dataclass(slots=True)
class RecordToWrite:
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[RecordHeader] = ()


def build_batch(
    records: Sequence[RecordToWrite],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = NONE,
    timestamp_type: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One batch of all `records`; `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime."""
    check(len(records) > 0, "a batch has at least one record")
    base_timestamp = records[0].timestamp_ms
    plain = b"".join(
        _encode_record(record, index, base_timestamp) for index, record in enumerate(records)
    )
    packed = compress(codec, plain)
    attributes = (
        codec
        | (LOG_APPEND_TIME_MASK if timestamp_type else 0)
        | (TRANSACTIONAL_MASK if transactional else 0)
        | (CONTROL_MASK if control else 0)
    )
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE - LENGTH_END + len(packed),
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max(record.timestamp_ms for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += packed
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return bytes(batch)


def _encode_record(record: RecordToWrite, offset_delta: int, base_timestamp: int) -> bytes:
    parts = [
        b"\x00",  # attributes: none are in use
        varint(record.timestamp_ms - base_timestamp),
        varint(offset_delta),
        *_encode_field(record.key),
        *_encode_field(record.value),
        varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts.extend(_encode_field(name.encode()))
        parts.extend(_encode_field(value))
    body = b"".join(parts)
    return varint(len(body)) + body


def _encode_field(field: bytes | None) -> tuple[bytes, bytes]:
    return (_NULL, b"") if field is None else (varint(len(field)), field)
