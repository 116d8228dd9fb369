"""JSON objects into typed columns, by Arrow's own reader of lines.

All values of a column are put one below the other and parsed at once. So that no value can borrow
from its neighbour (one that opens a brace, one that closes it), each gets its row's number under a
name that nobody can guess; the numbers must come out as they went in.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from ottla.client.clock import new_id
from ottla.client.columns.errors import ColumnError
from ottla.client.columns.formats import BrokenRows, Format
from ottla.client.columns.table import take_fields
from ottla.records.columns import Bytes, FieldColumn, Numbers

_MARK = f"row {new_id()}"
_OPENING = ord("{")
_CLOSING = ord("}")
_ARROW_BYTES_MAX = 2**31 - 1
_IS_BLANK = np.isin(np.arange(256), list(b" \t\r\n"))


class Json(Format):
    """Values are JSON objects with the fields of a schema; others are left out, missing ones null.

    `errors`: "raise", or "null" for rows that are no such object.
    """

    def __init__(self, schema: pa.Schema | pa.StructType, *, errors: str = "raise") -> None:
        fields = list(schema)
        if not fields:
            raise ColumnError("a schema without fields says nothing about values")
        super().__init__(pa.struct(fields), errors)
        marked = pa.schema([*fields, pa.field(_MARK, pa.int64())])
        self._parse = arrow_json.ParseOptions(
            explicit_schema=marked, unexpected_field_behavior="ignore"
        )

    def decode_rows(self, values: pa.Array) -> pa.Array:
        lines = _marked_lines(values)
        options = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        try:
            table = arrow_json.read_json(
                pa.BufferReader(lines), read_options=options, parse_options=self._parse
            )
        except pa.ArrowException as cause:
            return self._decode_one(values, cause)
        marks = table[_MARK].combine_chunks()
        if marks.null_count or not np.array_equal(marks.to_numpy(), np.arange(len(values))):
            raise BrokenRows("no JSON object")
        columns = [table[field.name].combine_chunks() for field in self.type]
        decoded = pa.StructArray.from_arrays(columns, fields=list(self.type))
        try:
            decoded.validate(full=True)  # the reader takes any bytes for text
        except pa.ArrowInvalid as cause:
            raise BrokenRows("no JSON object (its text is no UTF-8)") from cause
        return decoded

    def _decode_one(self, values: pa.Array, cause: pa.ArrowException) -> pa.Array:
        """An object with nothing but blanks in it is one that the mark breaks."""
        if len(values) == 1 and _is_empty_object(values[0].as_py()):
            return pa.array([{}], self.type)
        raise BrokenRows(f"no JSON object of this schema ({_reason(cause)})") from cause


def _marked_lines(values: pa.Array) -> pa.Buffer:
    """Each value with its row's number as first field, and a line end."""
    data, starts, ends = _trimmed(values)
    lengths = ends - starts
    if int(lengths.min()) < 2 or int(lengths.sum()) > _ARROW_BYTES_MAX // 2:
        raise BrokenRows("no JSON object")
    if (data[starts] != _OPENING).any() or (data[ends - 1] != _CLOSING).any():
        raise BrokenRows("no JSON object")
    commas = pa.array([b"", b","]).take(pa.array((lengths > 2).astype(np.int8)))
    joined = pc.binary_join_element_wise(
        b'{"' + _MARK.encode() + b'":',
        pa.array(np.arange(len(values))).cast(pa.string()).cast(pa.binary()),
        commas,
        take_fields(data, FieldColumn(starts + 1, lengths - 1)),
        b"\n",
        b"",
    )
    _, edges, lines = joined.buffers()
    return lines.slice(0, int(np.frombuffer(edges, np.int32)[len(values)]))


def _trimmed(values: pa.Array) -> tuple[Bytes, Numbers, Numbers]:
    """The bytes of all values, and where each begins and ends, without blanks around it."""
    _, edges_buffer, data_buffer = values.buffers()
    edges = np.frombuffer(edges_buffer, np.int32)[values.offset :].astype(np.int64)
    starts, ends = edges[: len(values)], edges[1 : len(values) + 1].copy()
    data = np.frombuffer(data_buffer or b"\0", np.uint8)
    while len(
        blank := np.flatnonzero((ends > starts) & _IS_BLANK[data.take(ends - 1, mode="clip")])
    ):
        ends[blank] -= 1
    starts = starts.copy()
    while len(blank := np.flatnonzero((ends > starts) & _IS_BLANK[data.take(starts, mode="clip")])):
        starts[blank] += 1
    return data, starts, ends


def _is_empty_object(value: bytes) -> bool:
    try:
        found: Any = json.loads(value)
    except ValueError:
        return False
    return isinstance(found, dict) and not found


def _reason(cause: pa.ArrowException) -> str:
    return str(cause).replace(_MARK, "row").splitlines()[0][:200]
