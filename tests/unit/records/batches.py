"""Batches made by hand, wrong ones too: nothing here uses the builder that is under test."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from ottla.base.errors import ProtocolError
from ottla.records.validation import ProduceRules, Validated, validate_produced

NOW_MS = 1_700_000_000_000
LONG_MAX = (1 << 63) - 1

RULES = ProduceRules(
    max_message_bytes=1_048_588,
    compression_codec=None,
    compression_level=None,
    timestamp_type="CreateTime",
    before_max_ms=LONG_MAX,
    after_max_ms=3_600_000,
    compacted=False,
    zstd_allowed=True,
)


def rules(**changes: object) -> ProduceRules:
    return dataclasses.replace(RULES, **changes)  # type: ignore[arg-type]


def java_batches() -> dict[str, bytes]:
    """Three records in each codec, as kafka-clients 4.3.1 wrote them (MemoryRecordsBuilder)."""
    text = (Path(__file__).parent / "java_batches.txt").read_text()
    return {name: bytes.fromhex(batch) for name, batch in map(str.split, text.splitlines())}


def zig_zag(value: int) -> bytes:
    code = (value << 1) ^ (value >> 63)
    encoded = b""
    while code > 127:
        encoded += bytes([code & 127 | 128])
        code >>= 7
    return encoded + bytes([code])


def field(content: bytes | None) -> bytes:
    return zig_zag(-1) if content is None else zig_zag(len(content)) + content


def a_record(
    offset_delta: int,
    value: bytes | None = b"v",
    key: bytes | None = None,
    *,
    delta: int = 0,
    headers: bytes = b"\x00",
    attributes: int = 0,
) -> bytes:
    body = bytes([attributes]) + zig_zag(delta) + zig_zag(offset_delta)
    body += field(key) + field(value) + headers
    return zig_zag(len(body)) + body


def a_batch(records: bytes, count: int = 1, **fields: int) -> bytes:
    """A batch of these record bytes; every field of the header may be given another value."""
    values = {
        "base_offset": 0,
        "leader_epoch": -1,
        "magic": 2,
        "attributes": 0,
        "last_offset_delta": count - 1,
        "base_timestamp": NOW_MS,
        "max_timestamp": fields.get("base_timestamp", NOW_MS),
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": count,
    } | fields
    covered = struct.pack(
        ">hiqqqhii",
        values["attributes"],
        values["last_offset_delta"],
        values["base_timestamp"],
        values["max_timestamp"],
        values["producer_id"],
        values["producer_epoch"],
        values["base_sequence"],
        values["record_count"],
    )
    covered += records
    crc = values.get("crc", google_crc32c.value(covered))
    rest = struct.pack(">ibI", values["leader_epoch"], values["magic"], crc) + covered
    length = values.get("batch_length", len(rest))
    return struct.pack(">qi", values["base_offset"], length) + rest


def with_right_crc(batch: bytes) -> bytes:
    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


def validate(batch: bytes, given: ProduceRules = RULES, now_ms: int = NOW_MS) -> Validated:
    return validate_produced(memoryview(batch), given, now_ms)


def refusal(call: Callable[..., object], *arguments: object) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        call(*arguments)
    return caught.value
