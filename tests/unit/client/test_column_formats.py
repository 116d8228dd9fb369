"""Goal: JSON and Avro values become the typed columns that a reader of single values would give; a
value that is none is named or becomes null, and never shifts or breaks its neighbours.
Method: against json and fastavro; broken values among good ones, in all places.
"""

from __future__ import annotations

import datetime
import io
import json
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ottla.client.columns import Avro, ColumnError, Json
from tests.seeds import seed_for

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("ms")),
        ("inner", pa.struct([("x", pa.int32())])),
    ]
)


def column(values: list[bytes | None]) -> pa.ChunkedArray:
    """In two chunks, the second of which is a slice of something larger."""
    half = len(values) // 2
    second = pa.array([b"{}", *values[half:]], pa.binary()).slice(1)
    return pa.chunked_array([pa.array(values[:half], pa.binary()), second], pa.binary())


def test_json_objects_become_columns() -> None:
    rows: list[Any] = [
        {"id": 1, "name": "ä", "price": 0.5, "tags": ["a"], "inner": {"x": 7}, "more": [1, {}]},
        {},
        None,
        {"id": None, "at": "2024-01-01T00:00:00"},
    ]
    values = [None if row is None else json.dumps(row).encode() for row in rows]
    decoded = Json(SCHEMA).decode(column(values))
    assert decoded.type == pa.struct(list(SCHEMA))
    nothing = dict.fromkeys(SCHEMA.names)
    assert decoded.to_pylist() == [
        {**nothing, "id": 1, "name": "ä", "price": 0.5, "tags": ["a"], "inner": {"x": 7}},
        nothing,
        None,
        {**nothing, "at": datetime.datetime(2024, 1, 1)},  # noqa: DTZ001 (it has no zone)
    ]


def test_blanks_around_and_inside_of_objects_do_not_matter() -> None:
    values: list[bytes | None] = [b' {"id":1}\r\n', b"{ }", b'{\n "id" : 2 }', b"\t{}\n\n"]
    decoded = Json(pa.schema([("id", pa.int64())])).decode(column(values))
    assert decoded.to_pylist() == [{"id": 1}, {"id": None}, {"id": 2}, {"id": None}]


BROKEN_JSON = [
    b"",
    b" ",
    b"x",
    b"5",
    b"[]",
    b"null",
    b'{"id":',
    b'{"id":1',
    b'"id":1}',
    b"{}{}",
    b'{"id":1}{"id":2}',
    b'{"id":1}\n{"id":2}',
    b'{"id":"text"}',
    b'{"id":1,}',
    b'{"id":{',
    b"}}",
    b"\xff\xfe",
    b'{"name":"\xff"}',
]


@pytest.mark.parametrize("broken", BROKEN_JSON)
def test_what_is_no_object_is_named_or_null(broken: bytes) -> None:
    chance = random.Random(seed_for(f"json {broken!r}"))
    for rows in (1, 2, 9):
        at = chance.randrange(rows)
        values: list[bytes | None] = [b'{"id":%d}' % number for number in range(rows)]
        values[at] = broken
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        with pytest.raises(ColumnError, match=f"row {at} is no JSON object"):
            Json(schema).decode(column(values))
        found = Json(schema, errors="null").decode(column(values)).to_pylist()
        expected: list[Any] = [{"id": number, "name": None} for number in range(rows)]
        expected[at] = None
        assert found == expected


def test_values_cannot_borrow_from_their_neighbours() -> None:
    """Together these are four objects in four lines, but no single one of them is one."""
    values: list[bytes | None] = [b'{"id":1}{"id":2}', b'{"inner":{', b'"x":1}}', b'{"id":3}']
    with pytest.raises(ColumnError, match="row 0"):
        Json(SCHEMA).decode(column(values))
    found = Json(SCHEMA, errors="null").decode(column(values)).to_pylist()
    assert [row and row["id"] for row in found] == [None, None, None, 3]


def test_formats_are_checked_when_they_are_made() -> None:
    with pytest.raises(ColumnError, match="errors='ignore'"):
        Json(SCHEMA, errors="ignore")
    with pytest.raises(ColumnError, match="without fields"):
        Json(pa.schema([]))
    with pytest.raises(ColumnError, match="no JSON"):
        Avro("{")
    with pytest.raises(ColumnError, match="no type 'unknown'"):
        Avro({"type": "record", "name": "r", "fields": [{"name": "f", "type": "unknown"}]})
    with pytest.raises(ColumnError, match="contains itself"):
        Avro({"type": "record", "name": "r", "fields": [{"name": "f", "type": ["null", "r"]}]})
    with pytest.raises(ColumnError, match="union of 2 types"):
        Avro(["null", "int", "string"])
    with pytest.raises(ColumnError, match="no Avro schema"):
        Avro({"name": "r"})


def test_nothing_is_an_empty_column() -> None:
    empty = pa.chunked_array([], pa.binary())
    for one in (Json(SCHEMA), Avro("long")):
        decoded = one.decode(empty)
        assert (len(decoded), decoded.type) == (0, one.type)


# -- Avro -----------------------------------------------------------------------------------------

INNER = {
    "type": "record",
    "name": "Inner",
    "namespace": "n",
    "fields": [{"name": "x", "type": "int"}, {"name": "s", "type": ["string", "null"]}],
}
FLAT = {
    "type": "record",
    "name": "Order",
    "namespace": "n",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "flag", "type": "boolean"},
        {"name": "real", "type": "double"},
        {"name": "single", "type": ["null", "float"]},
        {"name": "name", "type": "string"},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "first", "type": INNER},
        {"name": "second", "type": ["null", "n.Inner"]},
        {"name": "other", "type": ["null", "Kind"]},
        {"name": "none", "type": "null"},
    ],
}
DEEP = {
    "type": "record",
    "name": "Deep",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "list", "type": {"type": "array", "items": "string"}},
        {"name": "map", "type": {"type": "map", "values": "long"}},
        {
            "name": "money",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ],
}


def encoded(schema: Any, rows: list[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)
    values = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        values.append(out.getvalue())
    return values


def some_orders(count: int) -> list[dict[str, Any]]:
    chance = random.Random(seed_for("orders"))
    wide = (0, 1, -1, 63, 64, -65, 8191, 8192, 2**31 - 1, -(2**31))
    return [
        {
            "id": chance.choice((*wide, 2**63 - 1, -(2**63))),
            "small": chance.choice(wide),
            "flag": chance.random() < 0.5,
            "real": chance.random(),
            "single": chance.choice((None, 0.5, -2.0)),
            "name": chance.choice(("", "x", "ä" * 100)),
            "raw": chance.choice((None, b"", b"\xff" * 70)),
            "kind": chance.choice("ABC"),
            "code": chance.randbytes(3),
            "at": datetime.datetime.fromtimestamp(chance.randrange(2**31), datetime.UTC),
            "day": chance.choice((None, datetime.date(2024, 2, 29))),
            "first": {"x": chance.choice(wide), "s": chance.choice((None, "s"))},
            "second": chance.choice((None, {"x": 5, "s": None})),
            "other": chance.choice((None, "B")),
            "none": None,
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 100])
def test_avro_records_become_columns(count: int) -> None:
    rows = some_orders(count)
    values: list[bytes | None] = [*encoded(FLAT, rows)]
    for schema in (FLAT, json.dumps(FLAT)):
        decoded = Avro(schema).decode(column(values))
        assert decoded.to_pylist() == rows
    values.insert(count // 2, None)
    rows_with_null: list[Any] = [*rows]
    rows_with_null.insert(count // 2, None)
    assert Avro(FLAT).decode(column(values)).to_pylist() == rows_with_null


def test_avro_with_lists_and_maps_is_read_row_by_row() -> None:
    rows = [
        {"id": 1, "list": ["a", "b"], "map": {"k": 5}, "money": Decimal("12.50")},
        {"id": 2, "list": [], "map": {}, "money": Decimal("-0.01")},
    ]
    found = Avro(DEEP).decode(column([*encoded(DEEP, rows)])).to_pylist()
    assert [{**row, "map": dict(row["map"])} for row in found] == rows


def test_single_values_are_columns_too() -> None:
    for schema, values in (
        ("long", [1, -5]),
        ("string", ["a", ""]),
        (["null", "double"], [None, 0.5]),
        ({"type": "record", "name": "Empty", "fields": []}, [{}, {}]),
    ):
        found = Avro(schema).decode(column([*encoded(schema, values)]))
        assert found.to_pylist() == values


def test_the_registrys_header_is_taken_off() -> None:
    rows = some_orders(6)
    head = b"\0\0\0\0\x05"
    values: list[bytes | None] = [head + value for value in encoded(FLAT, rows)]
    assert Avro(FLAT, confluent=True).decode(column(values)).to_pylist() == rows
    mixed = [*values[:-1], b"\0\0\0\0\x06" + (values[-1] or b"")[5:]]
    with pytest.raises(ColumnError, match="several schemas"):
        Avro(FLAT, confluent=True).decode(column(mixed))
    for broken in (b"", b"\0\0\0", b"\1\0\0\0\5\0"):
        with pytest.raises(ColumnError, match="row 3 is"):
            Avro(FLAT, confluent=True).decode(column([*values[:3], broken, *values[4:]]))


@pytest.mark.parametrize("schema", [FLAT, DEEP], ids=["flat", "deep"])
def test_changed_avro_is_named_or_null_and_harms_nobody(schema: dict[str, Any]) -> None:
    chance = random.Random(seed_for("changed avro"))
    rows = (
        some_orders(12)
        if schema is FLAT
        else [{"id": n, "list": ["a"] * n, "map": {"k": n}, "money": Decimal(n)} for n in range(12)]
    )
    whole = encoded(schema, rows)
    broken = 0
    for _ in range(25):
        values: list[bytes | None] = [*whole]
        at = chance.randrange(len(values))
        changed = bytearray(whole[at])
        how = chance.randrange(3)
        if how == 0:
            del changed[chance.randrange(len(changed)) :]
        elif how == 1:
            changed += b"\0"
        else:
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 127, 128, 255))
        values[at] = bytes(changed)
        decoded = Avro(schema, errors="null").decode(column(values)).to_pylist()
        others = [row for number, row in enumerate(decoded) if number != at]
        for row, expected in zip(others, [*rows[:at], *rows[at + 1 :]], strict=True):
            assert row["id"] == expected["id"]
        if decoded[at] is None:
            broken += 1
            with pytest.raises(ColumnError, match=f"row {at} is no Avro"):
                Avro(schema).decode(column(values))
    assert broken > 3
