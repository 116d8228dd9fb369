"""Batches of several kinds, and each with every byte that matters changed in turn."""

from __future__ import annotations

from ottla.base.errors import ProtocolError
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.validation import ProduceRules, validate_produced
from tests.unit.records.batches import NOW_MS, with_right_crc

KINDS: dict[str, list[RecordToWrite]] = {
    "one record": [RecordToWrite(NOW_MS, None, b"v" * 30)],
    "fifteen": [RecordToWrite(NOW_MS + at // 4, None, b"v" * 30) for at in range(15)],
    "keys": [RecordToWrite(NOW_MS, b"key", b"v" * 70) for _ in range(5)],
    "empty keys and values": [RecordToWrite(NOW_MS, b"", b"") for _ in range(3)],
    "nothing at all": [RecordToWrite(NOW_MS, None, None) for _ in range(64)],
    "without a time": [RecordToWrite(-1, None, b"v") for _ in range(3)],
    "more than deltas of a byte": [
        RecordToWrite(NOW_MS + at // 40, None, b"v" * 9) for at in range(100)
    ],
    "many with keys": [RecordToWrite(NOW_MS, b"key", b"v") for _ in range(66)],
    "many around a wider length": [RecordToWrite(NOW_MS, None, b"v" * 57) for _ in range(67)],
    "many of nothing": [RecordToWrite(NOW_MS, None, None) for _ in range(65)],
}
BYTES = (0, 1, 2, 3, 126, 127, 128, 254, 255)


def a_batch_of(records: list[RecordToWrite]) -> bytes:
    return build_batch(records, producer_id=7, producer_epoch=0, base_sequence=3)


def changes(batch: bytes) -> list[bytes]:
    """With checksums that are right."""
    changed = [
        with_right_crc(batch[:at] + bytes([byte]) + batch[at + 1 :])
        for at in places(len(batch))
        for byte in BYTES
    ]
    return [*changed, batch, batch[:-1], batch + b"\0", with_right_crc(batch[:-1])]


def places(size: int) -> list[int]:
    """The header and first records, the last ones, and those around record 64 of long batches."""
    return sorted({*range(min(size, 250)), *range(max(0, size - 60), size), *range(250, size, 7)})


def judged(batch: bytes, by: ProduceRules) -> object:
    try:
        validated = validate_produced(memoryview(batch), by, NOW_MS)
    except ProtocolError as refused:
        return refused.code, str(refused)
    return validated.header, bytes(validated.batch)
