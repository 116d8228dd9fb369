"""Goal: the header's layout is Kafka's. Method: one batch that the Java client wrote."""

from __future__ import annotations

from ottla.records import batch_header as h
from tests.unit.records.batches import java_batches


def test_every_field_of_a_java_batch_is_where_it_belongs() -> None:
    batch = java_batches()["zstd"]
    header = h.read_header(batch)
    assert h.HEADER_SIZE == 61
    assert header[h.BASE_OFFSET] == 0
    assert header[h.BATCH_LENGTH] == len(batch) - h.LENGTH_END
    assert header[h.LEADER_EPOCH] == 5
    assert header[h.MAGIC] == h.MAGIC_V2
    assert header[h.ATTRIBUTES] & h.CODEC_MASK == 4
    assert header[h.LAST_OFFSET_DELTA] == 2
    assert header[h.BASE_TIMESTAMP] == 1_700_000_000_000
    assert header[h.MAX_TIMESTAMP] == 1_700_000_000_100
    assert header[h.PRODUCER_ID : h.BASE_SEQUENCE + 1] == (77, 3, 41)
    assert header[h.RECORD_COUNT] == 3


def test_a_header_is_read_anywhere_in_a_buffer() -> None:
    batch = java_batches()["none"]
    assert h.read_header(memoryview(b"xx" + batch), 2) == h.read_header(batch)


def test_the_positions_agree_with_the_struct() -> None:
    batch = bytearray(java_batches()["none"])
    header = h.read_header(batch)
    for position, size, place in (
        (h.MAGIC_POSITION, 1, h.MAGIC),
        (h.CRC_POSITION, 4, h.CRC),
        (h.ATTRIBUTES_POSITION, 2, h.ATTRIBUTES),
        (h.MAX_TIMESTAMP_POSITION, 8, h.MAX_TIMESTAMP),
        (h.RECORD_COUNT_POSITION, 4, h.RECORD_COUNT),
    ):
        assert int.from_bytes(batch[position : position + size], "big") == header[place]
