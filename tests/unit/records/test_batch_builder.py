"""Goal: batches are byte for byte those of the Java client. Method: its own batches as goldens."""

from __future__ import annotations

import pytest

from ottla.base.errors import InvariantError
from ottla.records import compression
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import ATTRIBUTES, BASE_OFFSET, LEADER_EPOCH, read_header
from ottla.records.batch_view import is_intact, records_of
from tests.unit.records.batches import java_batches

REPEATED = b"a value that repeats a value that repeats a value that repeats"
RECORDS = [
    RecordToWrite(1_700_000_000_000, b"key", b"value", [("h", b"x"), ("n", None)]),
    RecordToWrite(1_700_000_000_100, None, REPEATED),
    RecordToWrite(1_699_999_999_990, b"", None),
]


def the_java_records(codec: int) -> bytes:
    return build_batch(
        RECORDS, leader_epoch=5, codec=codec, producer_id=77, producer_epoch=3, base_sequence=41
    )


@pytest.mark.parametrize("codec", [compression.NONE, compression.SNAPPY, compression.LZ4])
def test_byte_for_byte(codec: int) -> None:
    assert the_java_records(codec) == java_batches()[compression.CODEC_NAMES[codec]]


@pytest.mark.parametrize("codec", [compression.GZIP, compression.ZSTD])
def test_the_same_but_for_the_packing(codec: int) -> None:
    ours, java = the_java_records(codec), java_batches()[compression.CODEC_NAMES[codec]]
    assert ours[21:61] == java[21:61]
    assert is_intact(ours)
    assert list(records_of(ours, 1000)) == list(records_of(java, 1000))


def test_offset_epoch_and_flags() -> None:
    batch = build_batch(
        RECORDS,
        base_offset=10**15,
        leader_epoch=9,
        timestamp_type=1,
        transactional=True,
        control=True,
    )
    header = read_header(batch)
    assert (header[BASE_OFFSET], header[LEADER_EPOCH]) == (10**15, 9)
    assert header[ATTRIBUTES] == 0x08 | 0x10 | 0x20
    assert is_intact(batch)


def test_a_batch_has_at_least_one_record() -> None:
    with pytest.raises(InvariantError):
        build_batch([])
