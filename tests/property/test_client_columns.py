"""Goal: a table says of fetched batches what the plain reader says of their records, and a table
becomes the batches that the builder makes of the same records; broken bytes are a ProtocolError.
Method: random records, codecs, cuts and positions, in both directions; random changes.
"""

from __future__ import annotations

import contextlib
import random
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


def sliced(rows: RowColumns, first: int) -> RowColumns:
    """A slice of something larger."""
    keys, values, headers = (column.slice(first) for column in rows[:3])  # type: ignore[union-attr]
    return RowColumns(keys, values, headers, rows.timestamps[first:])


@given(BATCHES, st.integers(1, 2_000), st.integers(0, 3))
def test_a_table_becomes_what_the_builder_makes(
    records: list[RecordToWrite], limit: int, before: int
) -> None:
    rows = sliced(arrow_columns(records[:before] + records), len(records[:before]))
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


@given(BATCHES, st.randoms(use_true_random=False), st.integers(0, 3))
def test_rows_may_be_taken_in_another_order(
    records: list[RecordToWrite], chance: random.Random, before: int
) -> None:
    order = list(range(len(records)))
    chance.shuffle(order)
    rows = sliced(arrow_columns(records[:before] + records), len(records[:before]))
    encoder = Encoder(rows, np.array(order))
    (stretch,) = encoder.encode([0, len(records)])
    batch = build_batch([records[number] for number in order])
    assert bytes(stretch.records) == batch[HEADER_SIZE:]
    assert stretch.max_timestamp == read_header(batch)[MAX_TIMESTAMP]
    assert encoder.sizes_max.tolist() == Encoder(rows.take(np.array(order))).sizes_max.tolist()


def test_what_stands_behind_a_null_is_not_sent() -> None:
    """Arrow lets a null have bytes: whoever masks a column leaves them there."""
    edges = pa.py_buffer(np.array([0, 20, 22], np.int32))
    hidden = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), edges, pa.py_buffer(b"x" * 22)]
    )
    encoder = Encoder(RowColumns(None, hidden, None, np.full(2, 5, np.int64)), np.array([1, 0]))
    (stretch,) = encoder.encode([0, 2])
    records = [RecordToWrite(5, None, b"xx"), RecordToWrite(5, None, None)]
    assert bytes(stretch.records) == build_batch(records)[HEADER_SIZE:]


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
