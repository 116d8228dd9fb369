"""Goal: the columns say of every record what the plain reader says, and broken bytes are refused.
Method: batches with numbers of every width, plain and packed, against `records_of`; then bytes that
a checksum does not protect any more, changed one by one.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from ottla.log import compaction_columns
from ottla.log.compaction_batches import BatchRun, CannotClean, read_runs
from ottla.log.compaction_columns import columns_of, has_values
from ottla.records import compression
from ottla.records.batch_builder import RecordHeader, RecordToWrite, build_batch
from ottla.records.batch_header import HEADER_SIZE, RECORD_COUNT_POSITION, read_header
from ottla.records.batch_view import RecordView, records_of
from ottla.records.columns import RecordColumns
from tests.seeds import seed_for
from tests.unit.log.world import file_with

SIZES = (None, 0, 1, 63, 64, 200, 8191, 8192)
CODECS = (compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD)


def some_records(
    chance: random.Random, count: int, sizes: tuple[int | None, ...] = SIZES
) -> list[RecordToWrite]:
    def field() -> bytes | None:
        size = chance.choice(sizes)
        return None if size is None else chance.randbytes(size)

    headers: list[RecordHeader] = [("name", None), ("other", b"value")]
    return [
        RecordToWrite(chance.choice((0, 5, -70, 10**6, 2**40)), field(), field(), headers[:number])
        for number in (chance.randint(0, 2) for _ in range(count))
    ]


def in_order(*batches: bytes) -> list[bytes]:
    """The batches with offsets that follow each other; a checksum does not cover those."""
    offset = 0
    result = []
    for batch in batches:
        result.append(offset.to_bytes(8, "big") + batch[8:])
        offset += read_header(batch)[6] + 1
    return result


def run_of(*batches: bytes) -> BatchRun:
    (run,) = read_runs(file_with(b"".join(batches)), "a log", sum(map(len, batches)), 0, 1 << 24)
    return run


def whole_columns(run: BatchRun) -> list[RecordColumns]:
    return list(columns_of(run, list(range(len(run.headers)))))


def rows_of(run: BatchRun, columns: RecordColumns) -> list[tuple[object, ...]]:
    """Offset, time, key and "has a value" of each row, read through the positions."""
    rows: list[tuple[object, ...]] = []
    owners = columns.spread(np.arange(len(columns.regions)))
    for row, has_value in enumerate(has_values(columns).tolist()):
        start, length = int(columns.key_starts[row]), int(columns.key_lengths[row])
        header = run.headers[columns.regions[int(owners[row])].number]
        rows.append(
            (
                int(columns.offsets[row]),
                header[7] + int(columns.time_deltas[row]),
                None if length < 0 else columns.data[start : start + length],
                has_value,
            )
        )
    return rows


def expected(record: RecordView) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.key, record.value is not None


@pytest.mark.parametrize("codec", CODECS)
def test_columns_say_what_the_plain_reader_says(codec: int) -> None:
    chance = random.Random(seed_for("columns"))
    for _ in range(20):
        offset = 0
        batches = []
        for _ in range(chance.randint(1, 6)):
            records = some_records(chance, chance.randint(1, 30))
            used = codec if chance.random() < 0.7 else compression.NONE
            batches.append(build_batch(records, base_offset=offset, codec=used))
            offset += len(records) + chance.randint(0, 10**6)
        run = run_of(*batches)
        found = [row for columns in whole_columns(run) for row in rows_of(run, columns)]
        wanted = [expected(record) for batch in batches for record in records_of(batch, 1 << 24)]
        assert found == wanted


def test_the_bytes_between_two_records_are_theirs() -> None:
    chance = random.Random(seed_for("ends"))
    last = build_batch([RecordToWrite(0, b"k", b"")])
    run = run_of(*in_order(build_batch(some_records(chance, 20)), last))
    (columns,) = whole_columns(run)
    assert columns.starts.tolist()[1:20] == columns.ends.tolist()[:19]
    assert columns.ends.tolist()[19] == run.end(0)
    assert columns.ends.tolist()[20] == run.end(1)


def test_flags_are_counted_by_batch() -> None:
    record = RecordToWrite(0, b"k", b"")
    run = run_of(*in_order(*(build_batch([record] * count) for count in (2, 1, 3))))
    (columns,) = whole_columns(run)
    assert columns.per_region(columns.key_lengths >= 0) == [2, 1, 3]
    assert columns.per_region(columns.offsets >= 4) == [0, 0, 2]


def test_packed_batches_are_unpacked_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_columns, "UNPACKED_BYTES_MAX", 5_000)
    records = [RecordToWrite(0, b"key", bytes(2_000))]
    run = run_of(*in_order(*(build_batch(records, codec=compression.ZSTD) for _ in range(7))))
    parts = [len(columns.data) for columns in whole_columns(run)]
    assert sum(parts) > 14_000
    assert max(parts) <= 5_000


def test_a_batch_that_unpacks_to_more_than_any_producer_may_send_is_refused() -> None:
    bomb = build_batch([RecordToWrite(0, b"key", bytes(20 << 20))], codec=compression.ZSTD)
    with pytest.raises(CannotClean):
        whole_columns(run_of(bomb))


def test_packed_bytes_that_are_none_are_refused() -> None:
    batch = bytearray(build_batch([RecordToWrite(0, b"key", b"value")], codec=compression.GZIP))
    batch[HEADER_SIZE : HEADER_SIZE + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(CannotClean):
        whole_columns(unchecked_run(bytes(batch)))


def unchecked_run(batch: bytes) -> BatchRun:
    """As if its checksum were right."""
    run = BatchRun(batch)
    run.starts.append(0)
    run.headers.append(read_header(batch))
    return run


def test_changed_bytes_are_refused_or_lead_nowhere_else() -> None:
    chance = random.Random(seed_for("changed bytes"))
    refused = 0
    for _ in range(1500):
        batch = bytearray(build_batch(some_records(chance, 3, (None, 0, 1, 5))))
        position = chance.randrange(RECORD_COUNT_POSITION + 3, len(batch))
        if position >= HEADER_SIZE or batch[position] < 3:
            batch[position] = chance.randrange(256)
        try:
            (columns,) = whole_columns(unchecked_run(bytes(batch)))
            has_values(columns)
        except CannotClean:
            refused += 1
            continue
        assert (columns.key_starts >= HEADER_SIZE).all()
        assert (columns.key_starts + columns.key_lengths <= columns.ends).all()
        assert (columns.ends <= len(batch)).all()
    assert refused > 200


# -- runs -----------------------------------------------------------------------------------------


def test_runs_are_of_about_the_wanted_size_and_whole() -> None:
    batches = [build_batch([RecordToWrite(0, b"k", bytes(100))], base_offset=n) for n in range(20)]
    content = b"".join(batches)
    runs = list(read_runs(file_with(content), "a log", len(content), 0, 500))
    assert len(runs) > 5
    assert [header[0] for run in runs for header in run.headers] == list(range(20))
    assert all(0 < run.size() <= 500 for run in runs)


def test_a_batch_larger_than_a_chunk_is_read_whole() -> None:
    small = build_batch([RecordToWrite(0, b"k", b"v")])
    large = build_batch([RecordToWrite(0, b"k", bytes(5_000))], base_offset=1)
    content = small + large
    runs = list(read_runs(file_with(content), "a log", len(content), 0, 100))
    assert [run.size() for run in runs] == [len(small), len(large)]


@pytest.mark.parametrize("position", [10, 16, 18, 30, 70])
def test_a_flipped_bit_is_found_before_anything_is_copied(position: int) -> None:
    first = build_batch([RecordToWrite(0, b"k", bytes(50))])
    second = bytearray(build_batch([RecordToWrite(0, b"k", bytes(50))], base_offset=1))
    second[position] ^= 1
    content = first + bytes(second)
    runs = read_runs(file_with(content), "a log", len(content), 0, 10_000)
    assert next(runs).size() == len(first)
    with pytest.raises(CannotClean, match=f"a log.*{len(first)}"):
        next(runs)


def test_offsets_that_go_back_are_refused() -> None:
    content = build_batch([RecordToWrite(0, b"k", b"")], base_offset=5) * 2
    with pytest.raises(CannotClean):
        list(read_runs(file_with(content), "a log", len(content), 0, 10_000))


def test_a_segment_that_ends_within_a_batch_is_refused() -> None:
    content = build_batch([RecordToWrite(0, b"k", bytes(50))])
    for size in (len(content) - 1, 40):
        with pytest.raises(CannotClean):
            list(read_runs(file_with(content[:size]), "a log", size, 0, 10_000))
