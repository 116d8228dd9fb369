"""Goal: a table says of fetched batches what the plain reader says of their records, and a table
becomes the batches that the builder makes of the same records; broken bytes are a ProtocolError.
Method: random records, codecs, cuts and positions, in both directions; random changes.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ProtocolError
from ottla.client.columns.encode import Encoder, RowColumns, cut_by_size
from ottla.client.columns.table import HEADER_TYPE, SCHEMA, FetchedBlocks, table_of
from ottla.client.fetch_batches import FetchedBatches, RecordBlock
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import (
    BASE_TIMESTAMP,
    HEADER_SIZE,
    LOG_APPEND_TIME_MASK,
    MAX_TIMESTAMP,
    RECORD_COUNT,
    read_header,
)
from ottla.records.batch_view import records_of

NOW_MS = 1_700_000_000_000
LIMIT = 1 << 20

FIELDS = st.none() | st.binary(max_size=10) | st.integers(0, 300).map(bytes)
TIMES = st.integers(0, 3) | st.integers(-100_000, 100_000) | st.just(-NOW_MS - 1)
HEADERS = st.lists(st.tuples(st.text(max_size=20), FIELDS), max_size=3)
RECORDS = st.builds(
    RecordToWrite, TIMES.map(lambda delta: NOW_MS + delta), FIELDS, FIELDS, st.just([]) | HEADERS
)
BATCHES = st.lists(RECORDS, min_size=1, max_size=12) | st.tuples(RECORDS, st.integers(1, 150)).map(
    lambda drawn: [drawn[0]] * drawn[1]
)
CODECS = st.integers(0, 4)


def row_of(topic: str, partition: int, view: Any, timestamp_type: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": view.offset,
        "timestamp": None if view.timestamp == -1 else view.timestamp,
        "timestamp_type": timestamp_type,
        "key": view.key,
        "value": view.value,
        "headers": [{"key": name, "value": value} for name, value in view.headers],
    }


def rows_in(table: pa.Table) -> list[dict[str, Any]]:
    assert table.schema == SCHEMA
    table.validate(full=True)
    in_ms = table.set_column(3, "timestamp", table["timestamp"].cast(pa.int64()))
    rows: list[dict[str, Any]] = in_ms.to_pylist()
    return rows


def blocks_in(data: bytes, position: int, *, check_crcs: bool = True) -> list[RecordBlock]:
    fetched = FetchedBatches(data, 0, len(data), position, check_crcs=check_crcs)
    blocks = []
    while (block := fetched.next_block()) is not None:
        blocks.append(block)
        fetched.advance(block.next_offset())
    return blocks


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(BATCHES, CODECS, st.booleans()), max_size=3),
            st.integers(0, 30),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_table_says_what_the_plain_reader_says(
    parts: list[tuple[list[tuple[list[RecordToWrite], int, bool]], int]],
) -> None:
    fetched, expected = [], []
    for number, (batches, position) in enumerate(parts):
        topic, partition = ("one", "two")[number % 2], number
        data, offset = b"", 0
        for records, codec, by_broker in batches:
            batch = build_batch(
                records, base_offset=offset, codec=codec, timestamp_type=int(by_broker)
            )
            expected += [
                row_of(topic, partition, view, int(by_broker))
                for view in records_of(batch, LIMIT)
                if view.offset >= position
            ]
            data += batch
            offset += len(records) + 2
        fetched.append(FetchedBlocks(topic, partition, position, blocks_in(data, position)))
    assert rows_in(table_of(fetched)) == expected


def arrow_columns(records: list[RecordToWrite]) -> RowColumns:
    headers = [
        None
        if not record.headers and number % 2
        else [{"key": name, "value": value} for name, value in record.headers]
        for number, record in enumerate(records)
    ]
    return RowColumns(
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array(headers, pa.list_(HEADER_TYPE)),
        np.array([record.timestamp_ms for record in records], np.int64),
    )


@given(BATCHES, st.integers(1, 2_000), st.integers(0, 3))
def test_a_table_becomes_what_the_builder_makes(
    records: list[RecordToWrite], limit: int, before: int
) -> None:
    rows = arrow_columns(records[:before] + records)
    if before:  # a slice of something larger
        first = len(records[:before])
        keys, values, headers = (column.slice(first) for column in rows[:3])  # type: ignore[union-attr]
        rows = RowColumns(keys, values, headers, rows.timestamps[first:])
    encoder = Encoder(rows)
    cuts = [*cut_by_size(encoder.sizes_max, 0, len(records), limit), len(records)]
    stretches = list(encoder.encode(cuts))
    assert sum(stretch.record_count for stretch in stretches) == len(records)
    for number, stretch in enumerate(stretches):
        chosen = records[cuts[number] : cuts[number + 1]]
        batch = build_batch(chosen)
        assert bytes(stretch.records) == batch[HEADER_SIZE:]
        header = read_header(batch)
        assert stretch.record_count == header[RECORD_COUNT]
        assert stretch.base_timestamp == header[BASE_TIMESTAMP]
        assert stretch.max_timestamp == header[MAX_TIMESTAMP]
        assert stretch.record_count == 1 or len(stretch.records) <= limit
        assert len(stretch.records) <= encoder.sizes_max[cuts[number] : cuts[number + 1]].sum()


def test_columns_that_are_not_there_are_nulls() -> None:
    records = [RecordToWrite(5, None, None)] * 70
    encoder = Encoder(RowColumns(None, None, None, np.full(70, 5, np.int64)))
    (stretch,) = encoder.encode([0, 70])
    assert bytes(stretch.records) == build_batch(records)[HEADER_SIZE:]


def test_rows_may_be_taken_in_another_order() -> None:
    records = [RecordToWrite(n, b"%d" % n, b"v%d" % n, [("h", b"%d" % n)]) for n in range(5)]
    order = [3, 1, 4]
    rows = arrow_columns(records).take(np.array(order))
    (stretch,) = Encoder(rows).encode([0, 3])
    assert bytes(stretch.records) == build_batch([records[n] for n in order])[HEADER_SIZE:]


@given(BATCHES, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
def test_changed_bytes_are_refused_or_are_rows(
    records: list[RecordToWrite], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(build_batch(records) + build_batch(records, base_offset=len(records)))
    for position, byte in changes:
        data[position % len(data)] = byte
    with contextlib.suppress(ProtocolError):
        blocks = blocks_in(bytes(data), 0, check_crcs=False)
        rows_in(table_of([FetchedBlocks("t", 0, 0, blocks)]))


def test_header_names_that_are_no_text_show_a_mark() -> None:
    batch = build_batch([RecordToWrite(0, None, b"v", [("name", b"x"), ("na", None)])])
    changed = batch.replace(b"name", b"n\xffme")
    (block,) = blocks_in(changed, 0, check_crcs=False)
    headers = table_of([FetchedBlocks("t", 0, 0, [block])])["headers"].to_pylist()
    assert [[pair["key"] for pair in row] for row in headers] == [["n\ufffdme", "na"]]


def test_nothing_is_an_empty_table() -> None:
    table = table_of([])
    assert (table.num_rows, table.schema) == (0, SCHEMA)


@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME_MASK])
def test_a_table_outlives_the_bytes_it_was_read_from(attributes: int) -> None:
    data = bytearray(build_batch([RecordToWrite(0, b"key", b"value")] * 3))
    data[22] |= attributes
    table = table_of([FetchedBlocks("t", 0, 0, blocks_in(bytes(data), 0, check_crcs=False))])
    copied = FetchedBatches(data, 0, len(data), 0, check_crcs=False).next_block()
    assert copied is not None
    changing = table_of([FetchedBlocks("t", 0, 0, [copied])])
    for position in range(len(data)):
        data[position] = 0xFF
    assert changing.equals(table)
