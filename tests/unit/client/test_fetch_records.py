"""Goal: records come out the same whether they are read one by one or as columns, in whatever
helpings they are taken. Method: random batches, against the reader of the broker's tools.
"""

from __future__ import annotations

import random

import pytest

from ottla.client.fetch_batches import FetchedBatches, RecordBlock
from ottla.client.fetch_records import Record, read_records
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_view import records_of
from tests.seeds import seed_for

FEW, MANY = 5, 400
UNPACKED_MAX = 1 << 24


def some_batches(draw: random.Random, count: int) -> list[bytes]:
    """`count` records in batches of every size, with and without keys, values and headers."""
    batches, base = [], 0
    while base < count:
        size = min(draw.choice((1, 3, 90)), count - base)
        records = [
            RecordToWrite(
                1_000 + draw.randrange(10_000),
                draw.choice((None, b"", b"key")),
                draw.choice((None, b"", draw.randbytes(draw.randrange(300)))),
                draw.choice(((), (("name", None), ("other", b"content")))),
            )
            for _ in range(size)
        ]
        codec, epoch = draw.randrange(5), draw.randrange(3)
        batches.append(
            build_batch(
                records,
                base_offset=base,
                leader_epoch=epoch,
                codec=codec,
                timestamp_type=draw.randrange(2),
            )
        )
        base += size
    return batches


def blocks_of(batches: list[bytes]) -> list[RecordBlock]:
    data = b"".join(batches)
    fetched = FetchedBatches(data, 0, len(data), 0, aborted=None)
    blocks = []
    while (block := fetched.next_block()) is not None:
        fetched.advance(block.next_offset())
        blocks.append(block)
    return blocks


def fields(record: Record) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.key, record.value, record.headers


@pytest.mark.parametrize("count", [FEW, MANY])
def test_records_are_the_same_however_they_are_read(count: int) -> None:
    draw = random.Random(seed_for(f"fetch_records {count}"))
    batches = some_batches(draw, count)
    expected = [
        (one.offset, one.timestamp, one.key, one.value, one.headers)
        for batch in batches
        for one in records_of(batch, UNPACKED_MAX)
    ]
    for position in (0, 1, count // 2, count - 1, count):
        run = read_records(("t", 7), blocks_of(batches), position)
        assert len(run) == count - position
        found: list[Record] = []
        while len(found) < len(run):
            found += run.some(len(found), len(found) + draw.choice((1, 7, 1_000)))
        assert [fields(record) for record in found] == expected[position:]
        assert all((record.topic, record.partition) == ("t", 7) for record in found)


def test_each_record_knows_its_epoch_and_whose_clock_it_has() -> None:
    batches = [
        build_batch(
            [RecordToWrite(1_000, None, b"v")] * 50,
            base_offset=number * 50,
            leader_epoch=number,
            timestamp_type=number,
        )
        for number in range(2)
    ]
    run = read_records(("t", 0), blocks_of(batches), 0)
    found = {(one.leader_epoch, one.timestamp_type) for one in run.some(0, 50)}
    assert found == {(0, 0)}
    found = {(one.leader_epoch, one.timestamp_type) for one in run.some(50, 100)}
    assert found == {(1, 1)}
