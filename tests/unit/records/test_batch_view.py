"""Goal: every batch that may stand in a log is read, and nothing else does harm.
Method: batches of the Java client; what compaction and transactions leave; damage field by field.
"""

from __future__ import annotations

import pytest

from ottla.protocol.error_codes import CORRUPT_MESSAGE, MESSAGE_TOO_LARGE
from ottla.records import compression
from ottla.records.batch_view import RecordView, is_intact, records_of
from tests.unit.records.batches import (
    NOW_MS,
    a_batch,
    a_record,
    field,
    java_batches,
    refusal,
    with_right_crc,
    zig_zag,
)

REPEATED = b"a value that repeats a value that repeats a value that repeats"


def read(batch: bytes, limit: int = 10_000) -> list[RecordView]:
    return list(records_of(batch, limit))


@pytest.mark.parametrize("codec", compression.CODEC_NAMES)
def test_the_records_of_the_java_client(codec: str) -> None:
    batch = java_batches()[codec]
    assert is_intact(batch)
    assert read(batch) == [
        RecordView(0, 1_700_000_000_000, b"key", b"value", (("h", b"x"), ("n", None))),
        RecordView(1, 1_700_000_000_100, None, REPEATED, ()),
        RecordView(2, 1_699_999_999_990, b"", None, ()),
    ]


def test_offsets_count_from_the_base_and_may_have_gaps() -> None:
    records = a_record(2) + a_record(5) + a_record(9)
    batch = a_batch(records, base_offset=1000, record_count=3, last_offset_delta=11)
    assert [record.offset for record in read(batch)] == [1002, 1005, 1009]


@pytest.mark.parametrize("attributes", [0, 1, 4])
def test_a_batch_that_compaction_emptied(attributes: int) -> None:
    batch = a_batch(b"", record_count=0, last_offset_delta=7, attributes=attributes)
    assert read(batch) == []
    assert is_intact(batch)


def test_a_control_batch() -> None:
    commit = a_record(0, b"\x00\x00\x00\x00\x00\x07", b"\x00\x00\x00\x01")
    batch = a_batch(commit, attributes=0x30, producer_id=7, producer_epoch=0)
    (record,) = read(batch)
    assert (record.key, record.value) == (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x07")


def test_log_append_time_is_the_time_of_every_record() -> None:
    records = a_record(0, delta=-5) + a_record(1, delta=100)
    batch = a_batch(records, 2, attributes=8, max_timestamp=NOW_MS + 77)
    assert [record.timestamp for record in read(batch)] == [NOW_MS + 77] * 2


def test_only_the_first_batch_of_a_buffer() -> None:
    first = a_batch(a_record(0, b"first"))
    assert [record.value for record in read(first + a_batch(a_record(0)))] == [b"first"]
    assert is_intact(first + b"rest")


def test_reading_is_lazy() -> None:
    records = records_of(a_batch(a_record(0, b"good") + b"\xff" * 9, 2), 100)
    assert next(records).value == b"good"
    assert refusal(next, records).code == CORRUPT_MESSAGE


def test_names_of_headers_that_are_no_text() -> None:
    record = a_record(0, headers=zig_zag(1) + field(b"\xff") + field(b"x"))
    assert read(a_batch(record))[0].headers == (("\N{REPLACEMENT CHARACTER}", b"x"),)


def test_the_limit_is_for_what_is_packed() -> None:
    records = a_record(0, bytes(5000))
    packed = a_batch(compression.compress(compression.ZSTD, records), attributes=4)
    assert len(read(packed, len(records))) == 1
    assert refusal(read, packed, len(records) - 1).code == MESSAGE_TOO_LARGE
    assert len(read(a_batch(records), 10)) == 1


GOOD = a_batch(a_record(0))


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        GOOD[:60],
        GOOD[:-1],
        a_batch(a_record(0), magic=1),
        a_batch(a_record(0), batch_length=48),
        a_batch(a_record(0), batch_length=-1),
        a_batch(a_record(0), record_count=-1),
        a_batch(a_record(0), record_count=2, last_offset_delta=1),
        a_batch(a_record(0) + b"x"),
        a_batch(a_record(1)),
        a_batch(a_record(-1)),
        a_batch(b"\x01" + a_record(0)[1:]),
        a_batch(b"\x7e" + a_record(0)[1:]),
        a_batch(b"\xff" * 40),
        a_batch(b"\xff" * 40, attributes=1),
        a_batch(zig_zag(6) + b"\x00\x00\x00" + zig_zag(100) + b"aa"),
        a_batch(zig_zag(6) + b"\x00\x00\x00" + zig_zag(-2) + b"\x00\x00"),
        a_batch(zig_zag(6) + b"\x00\x00\x00\x01\x01" + zig_zag(9)),
        a_batch(zig_zag(7) + b"\x00\x00\x00\x01\x01\x00\x00"),
        a_batch(a_record(0, headers=zig_zag(-1))),
        a_batch(a_record(0, headers=zig_zag(2**30))),
        a_batch(a_record(0, headers=zig_zag(1) + zig_zag(-1) + b"\x00")),
        a_batch(b"", record_count=1),
        a_batch(b"", record_count=2**31 - 1, last_offset_delta=2**31 - 2),
    ],
)
def test_damage(batch: bytes) -> None:
    assert refusal(read, batch).code == CORRUPT_MESSAGE


def test_a_batch_is_intact_or_not() -> None:
    assert is_intact(memoryview(bytearray(GOOD)))
    for at in range(16, len(GOOD)):
        assert not is_intact(GOOD[:at] + bytes([GOOD[at] ^ 1]) + GOOD[at + 1 :])
    assert not is_intact(GOOD[:-1])
    assert not is_intact(GOOD[:50])
    assert not is_intact(a_batch(a_record(0), batch_length=40))
    changed = with_right_crc(GOOD[:30] + b"\x00" + GOOD[31:])
    assert is_intact(changed)
