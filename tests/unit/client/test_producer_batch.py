"""Batches as the producer writes them: byte for byte what the plain builder makes."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.delivery import outcome_of, place_of
from ottla.client.errors import TimedOutError
from ottla.client.lanes import Lane
from ottla.client.producer_batch import ProducerBatch, load_varints
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_view import is_intact, records_of
from ottla.records.compression import CODEC_NAMES

load_varints()

fields = st.none() | st.binary(max_size=200)
records = st.builds(
    RecordToWrite,
    st.integers(-1, 2**45) | st.integers(1_000_000, 1_000_200),
    fields,
    fields | st.sampled_from([bytes(8_191), bytes(8_192), bytes(16_384)]),
    st.lists(st.tuples(st.text(max_size=5), fields), max_size=3),
)


def batch_of(wanted: list[RecordToWrite], bytes_max: int = 1 << 30) -> ProducerBatch:
    batch = ProducerBatch(Lane("t", 0), bytes_max, 0, 1000)
    for index, one in enumerate(wanted):
        assert batch.append(one.timestamp_ms, one.key, one.value, one.headers) == index
    return batch


@settings(max_examples=60)
@given(st.lists(records, min_size=1, max_size=8), st.sampled_from(range(5)))
def test_bytes_are_those_of_the_builder(wanted: list[RecordToWrite], codec: int) -> None:
    batch = batch_of(wanted)
    batch.producer_id, batch.epoch, batch.sequence = 7, 3, 40
    batch.is_transactional = True
    batch.encode(codec, None)
    assert bytes(batch.encoded or b"") == build_batch(
        wanted,
        codec=codec,
        producer_id=7,
        producer_epoch=3,
        base_sequence=40,
        transactional=True,
    )


def test_many_records_need_longer_indexes() -> None:
    wanted = [RecordToWrite(5, None, b"v")] * 20_000
    batch = batch_of(wanted)
    batch.encode(0, None)
    assert bytes(batch.encoded or b"") == build_batch(wanted)


def test_a_full_batch_takes_no_more_but_always_a_first_record() -> None:
    batch = ProducerBatch(Lane("t", 0), 100, 0, 0)
    assert batch.append(1, None, b"x" * 500, None) == 0
    assert batch.append(1, None, b"", None) == -1
    assert batch.count == 1


def test_new_numbers_change_the_header_and_the_checksum_only() -> None:
    batch = batch_of([RecordToWrite(5, b"k", b"v")])
    batch.producer_id, batch.epoch, batch.sequence = 1, 0, 9
    batch.encode(4, None)
    first = bytes(batch.encoded or b"")
    batch.epoch, batch.sequence = 1, 0
    batch.encode(0, None)
    second = bytes(batch.encoded or b"")
    assert second == build_batch(
        [RecordToWrite(5, b"k", b"v")], codec=4, producer_id=1, producer_epoch=1, base_sequence=0
    )
    assert first[61:] == second[61:]


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_an_encoded_batch_is_taken_as_it_is(codec: int) -> None:
    given_batch = build_batch(
        [RecordToWrite(5, b"k", b"v"), RecordToWrite(9, None, b"w")], codec=codec
    )
    batch = ProducerBatch.of_encoded(Lane("t", 0), given_batch, 0, 0)
    assert (batch.count, batch.base_timestamp, batch.max_timestamp) == (2, 5, 9)
    batch.producer_id, batch.epoch, batch.sequence = 1, 2, 3
    batch.encode(0, None)
    assert is_intact(batch.encoded or b"")
    assert [one.value for one in records_of(bytes(batch.encoded or b""), 1000)] == [b"v", b"w"]


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
@pytest.mark.parametrize("count", [2, 3, 10, 101])
def test_a_split_keeps_records_numbers_and_who_waits(codec: int, count: int) -> None:
    wanted = [RecordToWrite(5 + index, None, b"%d" % index) for index in range(count)]
    batch = batch_of(wanted)
    batch.number = (4,)
    batch.producer_id, batch.epoch, batch.sequence = 1, 0, 2**31 - 2
    told: list[int] = []
    batch.call_back(count - 1, 99, lambda metadata, error: told.append(metadata.offset))
    batch.waiters = [(0, functools.partial(told.append, -7))]
    batch.encode(codec, None)
    parts = batch.split(1 << 20)
    assert len(parts) == 2
    assert [part.number for part in parts] == [(4, 0), (4, 1)]
    assert [part.sequence for part in parts] == [
        2**31 - 2,
        (2**31 - 2 + parts[0].count) % 2**31,
    ]
    values = []
    for offset, part in zip((100, 500), parts, strict=True):
        part.encode(codec, None)
        values += [one.value for one in records_of(bytes(part.encoded or b""), 100_000)]
        part.succeed(offset, -1)
        part.run_callbacks()
    assert values == [one.value for one in wanted]
    assert told == [-7, 500 + parts[1].count - 1]
    place, index = place_of(batch, count - 1)
    metadata, error = outcome_of(place, index, 5)
    assert metadata is not None
    assert (metadata.offset, error) == (500 + parts[1].count - 1, None)


def test_parts_of_a_split_are_packed_in_a_new_epoch_too() -> None:
    """Unpacked, a part might be too large where the whole was not."""
    wanted = [RecordToWrite(5, None, bytes(5_000))] * 2
    batch, gzip = batch_of(wanted), CODEC_NAMES.index("gzip")
    lane = batch.lane
    lane.order.append(batch)
    assert lane.number(batch, 1, 0)
    batch.encode(gzip, None)
    parts = batch.split(1 << 20)
    lane.replace(batch, parts)
    parts[0].encode(gzip, None)  # has been sent, and refused
    lane.begin_epoch(1, 1)
    for sequence, part in enumerate(parts):
        assert (part.epoch, part.sequence) == (1, sequence)
        if part.encoded is None:
            part.encode(gzip, None)  # as the sender does for what it sends first
        assert bytes(part.encoded or b"") == build_batch(
            wanted[:1], codec=gzip, producer_id=1, producer_epoch=1, base_sequence=sequence
        )


def test_a_failed_batch_tells_each_record_why() -> None:
    batch = batch_of([RecordToWrite(5, None, b"v")])
    error = TimedOutError("too late")
    batch.fail(error)
    assert outcome_of(batch, 0, 5) == (None, error)
