"""Avro values into typed columns: field by field, all rows at once.

Values are single datums in the writer's schema, as in Kafka's messages, with or without the five
bytes that Confluent's registry puts before them. A record's fields follow each other without any
index, so the reader keeps one position per row and moves all of them over one field at a time:
0.05 µs a field. What that cannot do (arrays, maps, decimals) fastavro reads row by row.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.base.errors import ProtocolError
from ottla.client.columns.avro_types import (
    AvroSchema,
    arrow_type,
    is_flat,
    read_schema,
    resolve_names,
)
from ottla.client.columns.errors import ColumnError
from ottla.client.columns.formats import BrokenRows, Format
from ottla.client.columns.table import take_fields
from ottla.records.columns import Bytes, FieldColumn, Flags, Numbers, read_varints

_CONFLUENT_BYTES = 5
_NOT_AVRO = "no Avro of this schema"


class Avro(Format):
    """`schema` is the writer's, as JSON text or Python objects. `confluent`: five bytes with the id
    of a schema come before each value; all must name the same one. `errors`: "raise", or "null" for
    rows that cannot be read."""

    def __init__(
        self, schema: AvroSchema, *, confluent: bool = False, errors: str = "raise"
    ) -> None:
        self._given = read_schema(schema)
        self._schema = resolve_names(self._given)
        super().__init__(arrow_type(self._schema), errors)
        self._confluent = confluent
        self._is_flat = is_flat(self._schema)

    def decode_rows(self, values: pa.Array) -> pa.Array:
        rows = _Rows(values)
        if self._confluent:
            rows.skip_registry_header()
        if not self._is_flat:
            return self._decode_one_by_one(rows)
        try:
            decoded = rows.read(self._schema)
        except (ProtocolError, pa.ArrowInvalid) as cause:
            raise BrokenRows(_NOT_AVRO) from cause
        if (rows.at != rows.ends).any():
            raise BrokenRows(_NOT_AVRO)
        return decoded

    def _decode_one_by_one(self, rows: _Rows) -> pa.Array:
        # An extra of its own: most schemas are read without it.
        from fastavro import parse_schema as fast_schema  # noqa: PLC0415
        from fastavro import schemaless_reader  # noqa: PLC0415

        schema = fast_schema(self._given)
        found: list[Any] = []
        for start, end in zip(rows.at.tolist(), rows.ends.tolist(), strict=True):
            datum = io.BytesIO(rows.data[start:end].tobytes())
            try:
                found.append(schemaless_reader(datum, schema, None))
            # Whatever fastavro makes of garbage, it is this row that is broken.
            except Exception as cause:
                raise BrokenRows(_NOT_AVRO) from cause
            if datum.tell() != end - start:
                raise BrokenRows(_NOT_AVRO)
        try:
            return pa.array(found, self.type)
        except (pa.ArrowException, TypeError, ValueError) as cause:
            raise BrokenRows(_NOT_AVRO) from cause


class _Rows:
    """A position in each of some rows; reading moves them."""

    __slots__ = ("at", "data", "ends")

    def __init__(self, values: pa.Array | None = None) -> None:
        if values is None:
            return
        _, edges_buffer, data_buffer = values.buffers()
        edges = np.frombuffer(edges_buffer, np.int32)[values.offset :].astype(np.int64)
        # One byte more than there is: what reads behind the end must find something to read.
        self.data: Bytes = np.frombuffer(data_buffer or b"\0", np.uint8)
        self.at: Numbers = edges[: len(values)].copy()
        self.ends: Numbers = edges[1 : len(values) + 1]

    def some(self, rows: Numbers) -> _Rows:
        chosen = _Rows()
        chosen.data, chosen.at, chosen.ends = self.data, self.at[rows], self.ends[rows]
        return chosen

    def skip_registry_header(self) -> None:
        self._require(self.ends - self.at >= _CONFLUENT_BYTES)
        heads = self.data[self.at[:, None] + np.arange(_CONFLUENT_BYTES)]
        if heads[:, 0].any():
            raise BrokenRows("not in the registry's format: it does not begin with a zero")
        if (heads != heads[0]).any():
            raise ColumnError("values of several schemas of the registry are in one table")
        self.at += _CONFLUENT_BYTES

    def read(self, schema: AvroSchema) -> pa.Array:
        if isinstance(schema, list):
            return self._read_nullable(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in ("record", "error"):
            return self._read_record(schema)
        if kind == "enum":
            return self._read_enum(schema)
        if kind == "fixed":
            return self._read_fixed(schema)
        if kind == "null":
            return pa.nulls(len(self.at))
        if kind in ("int", "long"):
            return self._read_number(schema, kind)
        if kind == "boolean":
            return self._read_boolean()
        if kind in ("float", "double"):
            return self._read_real(4 if kind == "float" else 8)
        return self._read_bytes(kind)

    def _read_record(self, schema: Any) -> pa.Array:
        fields = [pa.field(one["name"], arrow_type(one["type"])) for one in schema["fields"]]
        columns = [self.read(one["type"]) for one in schema["fields"]]
        if not fields:
            return pa.array([{}] * len(self.at), pa.struct([]))
        return pa.StructArray.from_arrays(columns, fields=fields)

    def _read_nullable(self, schema: list[Any]) -> pa.Array:
        null_branch = schema.index("null")
        branches = self._varints()
        self._require((branches == 0) | (branches == 1))
        present = np.flatnonzero(branches != null_branch)
        other = schema[1 - null_branch]
        kind = arrow_type(other)
        if not len(present):
            return pa.nulls(len(self.at), kind)
        chosen = self.some(present)
        found = chosen.read(other)
        if len(present) == len(self.at):
            self.at = chosen.at
            return found
        self.at[present] = chosen.at
        places = np.zeros(len(self.at), np.int64)
        places[present] = np.arange(len(present))
        return found.take(pa.array(places, mask=branches == null_branch))

    def _read_number(self, schema: AvroSchema, kind: str) -> pa.Array:
        numbers = self._varints()
        if kind == "int":
            self._require((numbers >= -(2**31)) & (numbers < 2**31))
        column = pa.array(numbers if kind == "long" else numbers.astype(np.int32))
        wanted = arrow_type(schema)
        return column if wanted == column.type else column.cast(wanted)

    def _read_boolean(self) -> pa.Array:
        flags = self._fixed_bytes(1)[:, 0]
        self._require(flags <= 1)
        return pa.array(flags.astype(np.bool_))

    def _read_real(self, size: int) -> pa.Array:
        packed = np.ascontiguousarray(self._fixed_bytes(size))
        return pa.array(packed.view("<f4" if size == 4 else "<f8")[:, 0])

    def _read_bytes(self, kind: str) -> pa.Array:
        lengths = self._varints()
        self._require((lengths >= 0) & (lengths <= self.ends - self.at))
        column = take_fields(self.data, FieldColumn(self.at, lengths))
        self.at = self.at + lengths
        return column.cast(pa.string()) if kind == "string" else column

    def _read_fixed(self, schema: Any) -> pa.Array:
        size = schema["size"]
        packed = np.ascontiguousarray(self._fixed_bytes(size)).tobytes()
        buffers = [None, pa.py_buffer(packed)]
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(self.at), buffers)

    def _read_enum(self, schema: Any) -> pa.Array:
        symbols = schema["symbols"]
        numbers = self._varints()
        self._require((numbers >= 0) & (numbers < len(symbols)))
        return pa.array(symbols, pa.string()).take(pa.array(numbers))

    def _varints(self) -> Numbers:
        numbers, self.at = read_varints(self.data, self.at)
        self._require(self.at <= self.ends)
        return numbers

    def _fixed_bytes(self, size: int) -> Bytes:
        start, self.at = self.at, self.at + size
        self._require(self.at <= self.ends)
        chosen: Bytes = self.data[start[:, None] + np.arange(size)]
        return chosen

    def _require(self, fits: Flags) -> None:
        if not fits.all():
            raise BrokenRows(_NOT_AVRO)
