"""Goal: the columns say of every record what the plain reader says, by each way of finding where
records begin; broken bytes are refused, and no number in them becomes memory.
Method: batches of all kinds against `records_of`; then changed bytes, and lengths that lead back.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from ottla.base.errors import ProtocolError
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records import columns as columns_module
from ottla.records.batch_builder import RecordHeader, RecordToWrite, build_batch
from ottla.records.batch_header import (
    BASE_OFFSET,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    RECORD_COUNT,
    read_header,
)
from ottla.records.batch_view import RecordView, records_of
from ottla.records.columns import FieldColumn, RecordColumns, Region
from tests.seeds import seed_for

SIZES = (None, 0, 1, 63, 64, 200, 8191, 8192)
SMALL = (None, 0, 1, 5)
HEADERS: list[RecordHeader] = [("name", None), ("", b"value"), ("x" * 70, b"")]


def some_records(
    chance: random.Random, count: int, sizes: tuple[int | None, ...] = SIZES
) -> list[RecordToWrite]:
    def field() -> bytes | None:
        size = chance.choice(sizes)
        return None if size is None else chance.randbytes(size)

    return [
        RecordToWrite(chance.choice((0, 5, -70, 10**6, 2**40)), field(), field(), HEADERS[:number])
        for number in (chance.choice((0, 0, 0, 1, 2, 3)) for _ in range(count))
    ]


def columns_of(data: bytes) -> RecordColumns:
    regions: list[Region] = []
    headers = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        end = position + header[1] + 12
        regions.append(Region(len(regions), position + HEADER_SIZE, end, header[RECORD_COUNT]))
        headers.append(header)
        position = end
    bases = np.array([header[BASE_OFFSET] for header in headers], np.int64)
    lasts = np.array([header[LAST_OFFSET_DELTA] for header in headers], np.int64)
    return RecordColumns(data, regions, bases, lasts)


def fields_of(data: bytes, column: FieldColumn) -> list[bytes | None]:
    return [
        None if length < 0 else data[start : start + length]
        for start, length in zip(column.starts.tolist(), column.lengths.tolist(), strict=True)
    ]


def views_of(data: bytes) -> list[RecordView]:
    """What the columns of batches with a base time of 0 say."""
    columns = columns_of(data)
    values = columns.values()
    headers = columns.headers(values)
    rows = len(columns.starts)
    of_rows: list[tuple[tuple[str, bytes | None], ...]] = [()] * rows
    if headers is not None:
        names = [(name or b"").decode() for name in fields_of(data, headers.names)]
        pairs = list(zip(names, fields_of(data, headers.values), strict=True))
        firsts = headers.firsts.tolist()
        of_rows = [tuple(pairs[firsts[row] : firsts[row + 1]]) for row in range(rows)]
    return [
        RecordView(*fields)
        for fields in zip(
            columns.offsets.tolist(),
            columns.time_deltas.tolist(),
            fields_of(data, columns.keys()),
            fields_of(data, values),
            of_rows,
            strict=True,
        )
    ]


def plain_views(batches: list[bytes]) -> list[RecordView]:
    views = []
    for batch in batches:
        base_timestamp = read_header(batch)[7]
        for view in records_of(batch, 1 << 24):
            view.timestamp -= base_timestamp
            views.append(view)
    return views


def batches_of(records: list[list[RecordToWrite]]) -> list[bytes]:
    offset = 0
    batches = []
    for batch in records:
        batches.append(build_batch(batch, base_offset=offset))
        offset += len(batch) + 3
    return batches


@pytest.mark.parametrize("sizes", [SIZES, SMALL])
def test_columns_say_what_the_plain_reader_says(sizes: tuple[int | None, ...]) -> None:
    chance = random.Random(seed_for("columns"))
    for _ in range(20):
        batches = batches_of(
            [
                some_records(chance, chance.randint(1, 40), sizes)
                for _ in range(chance.randint(1, 6))
            ]
        )
        assert views_of(b"".join(batches)) == plain_views(batches)


def test_many_batches_are_walked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed_for("side by side"))
    monkeypatch.setattr(columns_module, "_SIDE_BY_SIDE_MIN", 2)
    monkeypatch.setattr(columns_module, "_Walk", None)
    for _ in range(10):
        batches = batches_of(
            [some_records(chance, count) for count in (9, chance.randint(4, 10), 10, 1)]
        )
        assert views_of(b"".join(batches)) == plain_views(batches)


def test_records_of_one_size_are_found_in_runs() -> None:
    same = [RecordToWrite(0, b"%04d" % number, b"v" * 300) for number in range(200)]
    short = [RecordToWrite(0, None, b"v" * 20) for number in range(200)]
    longer, shorter = (RecordToWrite(0, b"kkkk", b"v" * size) for size in (301, 299))
    mixed = [*same[:29], longer, shorter, *same[31:], *short, *same[:7], *short[:8]]
    for records in (same, short, mixed, same[:7], same[:8]):
        batch = build_batch(records)
        assert views_of(batch) == plain_views([batch])


def test_long_records_in_runs_and_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_SIDE_BY_SIDE_MIN", 2)
    batches = batches_of([[RecordToWrite(0, None, bytes(9_000))] * 3 for _ in range(4)])
    assert views_of(b"".join(batches)) == plain_views(batches)


@pytest.mark.parametrize("side_by_side", [1, 128])
def test_changed_bytes_are_refused_or_lead_nowhere_else(
    side_by_side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_module, "_SIDE_BY_SIDE_MIN", side_by_side)
    chance = random.Random(seed_for("changed bytes"))
    refused = 0
    for _ in range(1500):
        data = bytearray(build_batch(some_records(chance, 4, SMALL)))
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(HEADER_SIZE, len(data))] = chance.choice(
                (0, 1, 127, 128, 255, chance.randrange(256))
            )
        try:
            views = views_of(bytes(data))
        except ProtocolError as refusal:
            assert refusal.code == CORRUPT_MESSAGE
            refused += 1
        except UnicodeDecodeError:
            continue
        else:
            assert [view.offset for view in views] == [
                view.offset for view in records_of(bytes(data), 1 << 20)
            ]
    assert refused > 500


@pytest.mark.parametrize(
    ("records", "count"),
    [
        (b"\xff\xff\xff\xff\x0f", 5),  # -2^31: back to before the start
        (b"\x89\x80\x80\x00" + bytes(6), 10),  # -5: back to itself, again and again
        (bytes(6), 7),  # more records than bytes
        (bytes(6), 0),
        (bytes(6), -1),
        (b"\xff" * 12, 1),  # a number that does not end
    ],
)
@pytest.mark.parametrize("side_by_side", [1, 128])
def test_lengths_that_lead_back_or_count_too_much_end(
    records: bytes, count: int, side_by_side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_module, "_SIDE_BY_SIDE_MIN", side_by_side)
    region = Region(0, 0, len(records), count)
    with pytest.raises(ProtocolError):
        RecordColumns(records, [region], np.zeros(1, np.int64), np.full(1, 100, np.int64))


def test_a_length_that_no_sum_can_hold_is_refused() -> None:
    # A key of 2^63 - 1 bytes, added to its position, would be a small number again.
    length = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    body = b"\x00\x00\x00" + length + b"\x01\x00"
    records = bytes((len(body) * 2,)) + body
    region = Region(0, 0, len(records), 1)
    with pytest.raises(ProtocolError):
        RecordColumns(records, [region], np.zeros(1, np.int64), np.zeros(1, np.int64))


def test_an_offset_behind_the_last_of_its_batch_is_refused() -> None:
    batch = bytearray(build_batch([RecordToWrite(0, b"k", b"v")] * 2))
    batch[23:27] = (0).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="offset 1"):
        columns_of(bytes(batch))


def test_flags_are_counted_by_batch() -> None:
    record = RecordToWrite(0, b"k", b"")
    batches = [build_batch([record] * count, base_offset=base) for base, count in ((0, 2), (2, 1))]
    columns = columns_of(b"".join(batches))
    assert columns.per_region(columns.offsets >= 1) == [1, 1]
    assert columns.has_values().all()
