"""Avro schemas as Arrow types.

Owns which Avro type becomes which Arrow type, and which schemas can be read column by column
(`is_flat`): records of numbers, texts, bytes, enums and nullable ones of these, however deep.
Arrays, maps, decimals and other unions are read row by row instead.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from ottla.client.columns.errors import ColumnError

AvroSchema = dict[str, Any] | list[Any] | str

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}


def read_schema(given: AvroSchema) -> AvroSchema:
    """JSON text as Python has it."""
    if isinstance(given, str) and given.lstrip()[:1] in ("{", "[", '"'):
        try:
            found: AvroSchema = json.loads(given)
        except ValueError as cause:
            raise ColumnError(f"the Avro schema is no JSON: {cause}") from cause
        return found
    return given


def resolve_names(schema: AvroSchema) -> AvroSchema:
    """With every named type written out where it is used."""
    return _resolve(schema, {}, "", ())


def _resolve(schema: Any, named: dict[str, Any], space: str, inside: tuple[str, ...]) -> AvroSchema:
    if isinstance(schema, list):
        return [_resolve(one, named, space, inside) for one in schema]
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else _look_up(schema, named, space, inside)
    if not isinstance(schema, dict) or "type" not in schema:
        raise ColumnError(f"{schema!r} is no Avro schema")
    kind = schema["type"]
    if kind in ("record", "error", "enum", "fixed"):
        return _resolve_named(schema, named, space, inside)
    if kind == "array":
        return {**schema, "items": _resolve(schema.get("items"), named, space, inside)}
    if kind == "map":
        return {**schema, "values": _resolve(schema.get("values"), named, space, inside)}
    if isinstance(kind, str) and kind in _PRIMITIVES:
        return schema
    return _resolve(kind, named, space, inside)


def _look_up(name: str, named: dict[str, Any], space: str, inside: tuple[str, ...]) -> AvroSchema:
    full = name if "." in name or not space else f"{space}.{name}"
    if full in inside:
        raise ColumnError(f"the Avro type {full} contains itself: no table can hold it")
    if full not in named:
        raise ColumnError(f"the Avro schema has no type {name!r}")
    found: AvroSchema = named[full]
    return found


def _resolve_named(
    schema: dict[str, Any], named: dict[str, Any], space: str, inside: tuple[str, ...]
) -> AvroSchema:
    name = str(schema.get("name", ""))
    space = schema.get("namespace") or (name.rpartition(".")[0] if "." in name else space)
    full = name if "." in name or not space else f"{space}.{name}"
    resolved = dict(schema)
    if "fields" in schema:
        deeper = (*inside, full)
        resolved["fields"] = [
            {**field, "type": _resolve(field.get("type"), named, space, deeper)}
            for field in schema["fields"]
        ]
    named[full] = resolved
    return resolved


def arrow_type(schema: AvroSchema) -> pa.DataType:
    """Of a parsed schema."""
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) == 1:
            return arrow_type(others[0])
        raise ColumnError(f"a union of {len(others)} types is no column: {schema!r}")
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    kind = schema["type"]
    if kind in ("record", "error"):
        fields = [pa.field(one["name"], arrow_type(one["type"])) for one in schema["fields"]]
        return pa.struct(fields)
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary(schema["size"])
    if kind == "array":
        return pa.list_(arrow_type(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"]))
    return _LOGICAL.get((kind, schema.get("logicalType", "")), _PRIMITIVES[kind])


def is_flat(schema: AvroSchema) -> bool:
    """Whether it can be read column by column."""
    if isinstance(schema, str):
        return True
    if isinstance(schema, list):
        return len(schema) == 2 and "null" in schema and all(map(is_flat, schema))
    if schema.get("logicalType") == "decimal":
        return False
    if schema["type"] in ("record", "error"):
        return all(is_flat(field["type"]) for field in schema["fields"])
    return schema["type"] not in ("array", "map")
