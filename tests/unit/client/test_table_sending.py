"""Goal: every row of a table becomes one record in the partition it belongs to, in order, in
batches within the limits; what cannot be sent is refused before or where it stands. Method: tables
of all kinds of columns, read back from the encoded batches.
"""

from __future__ import annotations

import datetime
import mmap
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ottla.client.columns import sending
from ottla.client.columns.errors import ColumnError
from ottla.client.columns.sending import (
    NO_PARTITION,
    BatchRules,
    TableColumns,
    TableEncoder,
    as_table,
    rules_of,
)
from ottla.client.columns.table import HEADER_TYPE
from ottla.client.errors import RecordTooLargeError
from ottla.client.murmur2 import partition_of
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import read_settings
from ottla.records import compression
from ottla.records.batch_header import RECORD_COUNT, read_header
from ottla.records.batch_view import RecordView, records_of

NOW_MS = 1_700_000_000_000
RULES = BatchRules(1 << 18, 1 << 20, compression.NONE, None, False, False)


def encoder(table: Any, rules: BatchRules = RULES, **names: str | None) -> TableEncoder:
    columns = {"key": None, "headers": None, "timestamp": None, "partition_by": None, **names}
    return TableEncoder(
        as_table(table), TableColumns(value=columns.pop("value", "value"), **columns), rules, NOW_MS
    )


def sent(
    table: Any, partitions: int = 3, rules: BatchRules = RULES, **names: str | None
) -> dict[int, list[RecordView]]:
    """By partition: the records of its batches, in order."""
    found: dict[int, list[RecordView]] = {}
    for batch in encoder(table, rules, **names).batches(partitions):
        records = list(records_of(bytes(batch.encoded), 1 << 24))
        assert read_header(batch.encoded)[RECORD_COUNT] == batch.record_count == len(records)
        assert [record.offset for record in records] == list(range(len(records)))
        found.setdefault(batch.partition, []).extend(records)
    return found


def values_of(records: list[RecordView]) -> list[bytes | None]:
    return [record.value for record in records]


def test_rows_without_a_key_may_go_anywhere() -> None:
    table = pa.table({"value": [b"a", None, b"c"]})
    found = sent(table)
    assert values_of(found[NO_PARTITION]) == [b"a", None, b"c"]
    assert {record.timestamp for record in found[NO_PARTITION]} == {NOW_MS}
    assert {record.key for record in found[NO_PARTITION]} == {None}


def test_rows_go_where_their_keys_belong_and_stay_in_order() -> None:
    keys = [b"k%d" % (number % 13) for number in range(500)]
    table = pa.table({"k": keys, "value": [b"%d" % number for number in range(500)]})
    found = sent(table, key="k")
    assert sum(map(len, found.values())) == 500
    for partition, records in found.items():
        expected = [n for n in range(500) if partition_of(keys[n], 3) == partition]
        assert values_of(records) == [b"%d" % number for number in expected]


def test_null_keys_may_go_anywhere() -> None:
    table = pa.table({"k": pa.array([b"x", None], pa.binary()), "value": [b"1", b"2"]})
    found = sent(table, key="k")
    assert values_of(found[NO_PARTITION]) == [b"2"]
    assert values_of(found[partition_of(b"x", 3)]) == [b"1"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.string_view(),
        pa.binary_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary(2),
    ],
)
def test_keys_and_values_of_every_kind_of_text_and_bytes(kind: pa.DataType) -> None:
    texts = pa.array(["aa", None, "cc", "dd"])
    column = texts.cast(pa.binary(2) if pa.types.is_fixed_size_binary(kind) else kind)
    chunked = pa.chunked_array([column.slice(0, 1), column.slice(1)])
    found = sent(pa.table({"k": chunked, "value": chunked}), partitions=1, key="k")
    rows = sorted([*found.get(0, []), *found.get(NO_PARTITION, [])], key=lambda one: str(one.key))
    assert [(one.key, one.value) for one in rows] == [
        (None, None),
        (b"aa", b"aa"),
        (b"cc", b"cc"),
        (b"dd", b"dd"),
    ]


def test_headers_and_times_come_along() -> None:
    headers = [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], [], None]
    times = [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), None, None]
    for unit in ("s", "ms", "us", "ns"):
        table = pa.table(
            {
                "value": [b"a", b"b", b"c"],
                "h": pa.array(headers, pa.list_(HEADER_TYPE)),
                "t": pa.array(times, pa.timestamp(unit, tz="UTC")),
            }
        )
        (records,) = sent(table, headers="h", timestamp="t").values()
        assert [record.headers for record in records] == [(("h", b"1"), ("n", None)), (), ()]
        assert [record.timestamp for record in records] == [1_704_067_200_000, NOW_MS, NOW_MS]
    numbers = pa.table({"value": [b"a"], "t": [5]})
    assert sent(numbers, timestamp="t")[NO_PARTITION][0].timestamp == 5


def test_partitions_by_a_column() -> None:
    table = pa.table({"value": [b"a", b"b", b"c"], "p": [2, 0, 2], "name": ["x", "y", "x"]})
    found = sent(table, partition_by="p")
    assert {place: values_of(records) for place, records in found.items()} == {
        0: [b"b"],
        2: [b"a", b"c"],
    }
    hashed = sent(table, partition_by="name")
    assert values_of(hashed[partition_of(b"x", 3)])[:1] == [b"a"]
    assert all(record.key is None for records in hashed.values() for record in records)
    with pytest.raises(ColumnError, match="partitions 0 to 1"):
        sent(table, partitions=2, partition_by="p")
    some = pa.table({"value": [b"a", b"b"], "p": pa.array([1, None])})
    assert set(sent(some, partition_by="p")) == {1, NO_PARTITION}, "null: wherever"
    with pytest.raises(ColumnError, match="not -1 to 1"):
        sent(some.set_column(1, "p", [[1, -1]]), partition_by="p")


def test_partitions_in_turn_and_keys_ignored() -> None:
    table = pa.table({"k": [b"x"] * 6, "value": [b"%d" % n for n in range(6)]})
    found = sent(table, rules=RULES._replace(is_round_robin=True), key="k")
    assert {place: values_of(one) for place, one in found.items()} == {
        0: [b"0", b"3"],
        1: [b"1", b"4"],
        2: [b"2", b"5"],
    }
    assert set(sent(table, rules=RULES._replace(ignores_keys=True), key="k")) == {NO_PARTITION}


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_cut_and_packed(codec: int) -> None:
    table = pa.table({"value": [b"%05d" % number * 20 for number in range(500)]})
    rules = RULES._replace(batch_bytes=2_000, codec=codec)
    batches = list(encoder(table, rules).batches(1))
    assert len(batches) > 20
    if codec == compression.NONE:
        assert max(len(batch.encoded) for batch in batches) <= 2_000
    assert {read_header(batch.encoded)[5] for batch in batches} == {codec}
    found = sent(table, rules=rules)
    assert values_of(found[NO_PARTITION]) == table["value"].to_pylist()


def test_large_tables_go_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "WINDOW_ROWS_MAX", 7)
    table = pa.table(
        {"k": [b"%d" % (n % 5) for n in range(100)], "value": [b"%d" % n for n in range(100)]}
    )
    found = sent(table, key="k")
    for records in found.values():
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers)
    assert sum(map(len, found.values())) == 100
    monkeypatch.setattr(sending, "WINDOW_BYTES_MAX", 100)
    assert sum(map(len, sent(table, key="k").values())) == 100


def test_a_row_that_is_too_large_is_named() -> None:
    table = pa.table({"k": [b"b", b"a", b"c"], "value": [b"1", bytes(3_000), b"2"]})
    with pytest.raises(RecordTooLargeError, match="row 1 of the table"):
        sent(table, rules=RULES._replace(request_bytes=2_000), key="k")


def test_frames_of_pandas_and_polars_are_tables() -> None:
    frame = {"value": ["a", "b"], "k": ["x", "y"]}
    for table in (pd.DataFrame(frame), pl.DataFrame(frame), pa.RecordBatch.from_pydict(frame)):
        found = sent(table, partitions=1, key="k")
        assert [(one.key, one.value) for one in found[0]] == [(b"x", b"a"), (b"y", b"b")]
    with pytest.raises(ColumnError, match="dict is no table"):
        sent(frame)


def test_an_empty_table_is_nothing() -> None:
    assert sent(pa.table({"value": pa.array([], pa.binary())})) == {}
    assert sent(pa.table({"value": pa.chunked_array([], pa.string())})) == {}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"value": "missing"}, "0 columns 'missing'"),
        ({"value": "number"}, "value='number' is of type int64"),
        ({"key": "number"}, "key='number' is of type int64"),
        ({"headers": "value"}, "headers='value' is of type binary"),
        ({"timestamp": "value"}, "timestamp='value' is of type binary"),
        ({"partition_by": "real"}, "partition_by='real' is of type double"),
        ({"headers": "broken"}, "a header has no key"),
    ],
)
def test_columns_that_cannot_be_sent_are_refused(names: dict[str, Any], said: str) -> None:
    table = pa.table(
        {
            "value": [b"a"],
            "number": [1],
            "real": [0.5],
            "broken": pa.array([[{"key": None, "value": b""}]], pa.list_(HEADER_TYPE)),
        }
    )
    with pytest.raises(ColumnError, match=said):
        sent(table, **names)


def test_rules_follow_the_settings() -> None:
    def rules(**settings: Any) -> BatchRules:
        given = {"bootstrap.servers": "host:1", **settings}
        return rules_of(read_settings(ProducerSettings, given, {}), None)

    usual = rules()
    assert usual.batch_bytes == sending.BATCH_BYTES
    assert rules(batch_size=10**6).batch_bytes == 10**6
    assert rules(compression_type="zstd").codec == compression.ZSTD
    assert rules(partitioner_ignore_keys=True).ignores_keys
    with pytest.raises(ColumnError, match="partition_by"):
        rules(partitioner_class=lambda *_: 0)


def test_the_largest_window_stays_within_the_reach_of_arrow() -> None:
    assert sending.WINDOW_BYTES_MAX * 4 < np.iinfo(np.int32).max


# -- types of other libraries ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(["a", None, "b"], dtype=pl.Categorical),
        pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a"])),
        pd.Series(pd.Categorical(["a", None, "b"])),
        pd.Series(["a", None, "b"], dtype="string"),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array(["a", None, "b"], pa.large_string()).dictionary_encode(),
        pa.chunked_array(
            [pa.array(["a", None]).dictionary_encode(), pa.array(["b"]).dictionary_encode()]
        ),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array([b"a", None, b"b"], pa.binary_view()),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3]), pa.array(["a", None, "b"])),
    ],
    ids=lambda column: (
        f"{type(column).__module__.partition('.')[0]}-{getattr(column, 'dtype', '')}"
    ),
)
def test_texts_of_every_kind(column: Any) -> None:
    frame: Any
    if isinstance(column, pl.Series):
        frame = pl.DataFrame({"value": column, "key": column})
    elif isinstance(column, pd.Series):
        frame = pd.DataFrame({"value": column, "key": column})
    else:
        frame = pa.table({"value": column, "key": column})
    found = [record for records in sent(frame, key="key").values() for record in records]
    assert {record.value: record.key for record in found} == {b"a": b"a", None: None, b"b": b"b"}


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        (pd.to_datetime(["2024-01-01T00:00:00.123456789", None]), [1704067200123, NOW_MS]),
        (pd.to_datetime(["2024-01-01T02:00+02:00", None]), [1704067200000, NOW_MS]),
        (pa.array([1_999_999, None], pa.timestamp("us", "Asia/Tokyo")), [1999, NOW_MS]),
        (pa.array([7, None], pa.timestamp("s")), [7000, NOW_MS]),
        (pa.array([1, None], pa.date32()), [86_400_000, NOW_MS]),
        (pa.array([86_400_000, None], pa.date64()), [86_400_000, NOW_MS]),
        (pa.array([5, None], pa.uint64()), [5, NOW_MS]),
    ],
)
def test_times_of_every_kind(times: Any, wanted: list[int]) -> None:
    """Parts of a millisecond are left out, zones have no say."""
    table = pa.table({"value": ["a", "b"], "t": times})
    [records] = sent(table, timestamp="t").values()
    assert [record.timestamp for record in records] == wanted


@pytest.mark.parametrize(
    ("columns", "names", "reason"),
    [
        ({"t": pa.array([5, -1])}, {"timestamp": "t"}, "row 1 is of a time before 1970"),
        ({"t": pa.array([1 << 63, 1], pa.uint64())}, {"timestamp": "t"}, "rows 0 to 1"),
        ({"t": pa.array([1 << 60, 1], pa.timestamp("s"))}, {"timestamp": "t"}, "rows 0 to 1"),
        ({"p": pa.array([1 << 63, 1], pa.uint64())}, {"partition_by": "p"}, "rows 0 to 1"),
        (
            {"h": pa.array([[{"key": b"\xff", "value": b""}], None])},
            {"headers": "h"},
            "rows 0 to 1.*UTF8",
        ),
    ],
)
def test_a_value_that_cannot_be_sent_is_told(
    columns: dict[str, pa.Array], names: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ColumnError, match=reason):
        sent(pa.table({"value": ["a", "b"], **columns}), **names)


def test_frames_that_are_no_tables_are_told() -> None:
    with pytest.raises(ColumnError, match=r"collect\(\) it"):
        as_table(pl.LazyFrame({"value": ["a"]}))
    with pytest.raises(ColumnError, match="no Arrow table can be made of this DataFrame"):
        as_table(pd.DataFrame({"value": ["a", b"b", 3]}))
    assert sent(pd.DataFrame({"value": []})) == {}


def test_values_far_behind_in_a_large_buffer() -> None:
    """Beyond what 32 bits can point at; polars and pandas hand out such columns."""
    space = mmap.mmap(-1, (1 << 31) + 100)  # not a page of it is touched but the last
    space[-6:] = b"abcdef"
    edges = np.array([(1 << 31) + 94, (1 << 31) + 97, (1 << 31) + 100])
    far = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 2, [None, pa.py_buffer(edges), pa.py_buffer(space)]
    )
    [records] = sent(pa.table({"value": far})).values()
    assert values_of(records) == [b"abc", b"def"]


def test_windows_are_short_where_rows_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_WINDOW_BYTES_LIMIT", 1000)
    values = ["x"] * 5000 + ["y" * 400] * 20
    table = pa.table({"value": values})
    one = encoder(table)
    assert one._rows_of_window(0) > 100
    assert one._rows_of_window(5000) == 2
    [records] = sent(table).values()
    assert values_of(records) == [value.encode() for value in values]
