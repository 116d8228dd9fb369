"""kio as the judge: random messages of any version, their bytes, and where the counts are in them.

The bytes come from kio's writer, never from the code under test. `positions_of` walks them by kio's
schemas in the plainest way, so that a hostile test knows every place where a count or a length is.
"""

from __future__ import annotations

import dataclasses
import io
import random
import struct
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

RANGES = {
    "int8": 7,
    "int16": 15,
    "int32": 31,
    "int64": 63,
}
UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
LETTERS = "abcXYZ019._-ÄßñЖ中😀\0\n\"'"


def all_versions() -> list[tuple[int, int]]:
    return [
        (api_key, version)
        for api_key, name in api_key_map.items()
        for version in schema_name_map[name]
    ]


@cache
def schema_of(api_key: int, version: int, is_request: bool) -> Any:
    load = load_request_schema if is_request else load_response_schema
    return load(api_key, version)


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read(schema: Any, data: bytes) -> Any:
    entity, size = entity_reader(schema)(data, 0)
    assert size == len(data)
    return entity


# ------------------------------------------------------------------------------ random messages


@dataclasses.dataclass(slots=True)
class Shape:
    """How random messages are filled."""

    items_min: int = 0
    items_max: int = 3
    null_share: float = 0.25
    default_share: float = 0.3
    bytes_max: int = 20_000


FULL = Shape(items_min=1, items_max=2, null_share=0, default_share=0, bytes_max=300)
"""Nothing null, no empty array, no tag left out: every count and length of the schema is there."""


def random_message(schema: Any, rng: random.Random, shape: Shape | None = None) -> Any:
    shape = shape or Shape()
    values = {}
    for field in dataclasses.fields(schema):
        has_default = field.default is not dataclasses.MISSING
        if has_default and rng.random() < shape.default_share:
            values[field.name] = field.default
        else:
            values[field.name] = random_value(field, rng, shape)
    return schema(**values)


def random_value(field: Any, rng: random.Random, shape: Shape) -> Any:
    annotation, nullable = without_none(field.type)
    kafka_type = field.metadata.get("kafka_type", "struct")
    if nullable and rng.random() < shape.null_share and field.metadata.get("tag") is None:
        return None
    if get_origin(annotation) is tuple:
        inner, _ = without_none(get_args(annotation)[0])
        count = rng.randint(shape.items_min, shape.items_max)
        if rng.random() < 0.01 and kafka_type != "struct":
            count = 200
        return tuple(random_plain(kafka_type, inner, rng, shape) for _ in range(count))
    return random_plain(kafka_type, annotation, rng, shape)


def random_plain(kafka_type: str, annotation: Any, rng: random.Random, shape: Shape) -> Any:
    if kafka_type == "struct":
        return random_message(annotation, rng, shape)
    if kafka_type in RANGES:
        bound = 1 << RANGES[kafka_type]
        return rng.choice([0, -1, bound - 1, -bound, rng.randrange(-bound, bound)])
    if kafka_type in UNSIGNED:
        return rng.randrange(1 << UNSIGNED[kafka_type])
    if kafka_type == "string":
        length = 300 if rng.random() < 0.05 else rng.randint(0, 12)
        return "".join(rng.choice(LETTERS) for _ in range(length))
    if kafka_type in ("bytes", "records"):
        length = rng.choice([0, 1, 20, 126, 127, 128, 20_000])
        return rng.randbytes(min(length, shape.bytes_max))
    return random_special(kafka_type, rng)


def random_special(kafka_type: str, rng: random.Random) -> Any:
    match kafka_type:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.uniform(-1e9, 1e9)
        case "uuid":
            return uuid.UUID(int=rng.randrange(1, 1 << 128))
        case "error_code":
            return rng.choice(list(ErrorCode))
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=rng.randrange(-(1 << 31), 1 << 31))
        case "datetime_i64":
            return datetime.fromtimestamp(rng.randrange(0, 4_000_000_000), UTC)
        case _:
            raise AssertionError(f"no random value for {kafka_type}")


def without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is UnionType:
        (inner,) = (part for part in get_args(annotation) if part is not NoneType)
        return inner, True
    return annotation, False


# ------------------------------------------------------------------------- what we should decode


def expected(entity: Any) -> dict[str, Any]:
    """A kio message as nested dicts of the values that our decoder should give."""
    fields = {}
    for field in dataclasses.fields(entity):
        kafka_type = field.metadata.get("kafka_type", "struct")
        name = field.name
        if kafka_type.startswith(("timedelta", "datetime")):
            name += "_ms"
        value = getattr(entity, field.name)
        is_array = get_origin(without_none(field.type)[0]) is tuple
        fields[name] = None if is_array and value is None else expected_value(kafka_type, value)
    return fields


def expected_value(kafka_type: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [expected_value(kafka_type, item) for item in value]
    if dataclasses.is_dataclass(value):
        return expected(value)
    match kafka_type, value:
        case "uuid", None:
            return uuid.UUID(int=0)
        case "datetime_i64", None:
            return -1
        case "datetime_i64", datetime():
            return round(value.timestamp() * 1000)
        case _, timedelta():
            return round(value.total_seconds() * 1000)
        case "error_code", _:
            return value.value
        case _:
            return value


# ------------------------------------------------------------------------------------ positions


@dataclasses.dataclass(slots=True)
class Position:
    """Where a count or a length stands, and how it is written there."""

    path: str
    offset: int
    form: str  # "int16", "int32" or "varint"
    size: int

    def replaced(self, data: bytes, value: int) -> bytes:
        return data[: self.offset] + encoded(self.form, value) + data[self.offset + self.size :]


def encoded(form: str, value: int) -> bytes:
    if form == "int16":
        return struct.pack(">h", max(min(value, (1 << 15) - 1), -2))
    if form == "int32":
        return struct.pack(">i", value)
    value &= 0xFFFFFFFF
    chunks = []
    while value > 127:
        chunks.append(value & 127 | 128)
        value >>= 7
    return bytes([*chunks, value])


def positions_of(schema: Any, data: bytes) -> list[Position]:
    walk = Walk(data)
    walk.struct(schema, schema.__name__)
    assert walk.offset == len(data)
    return walk.found


class Walk:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0
        self.found: list[Position] = []

    def struct(self, schema: Any, path: str) -> None:
        tagged = {}
        for field in dataclasses.fields(schema):
            tag = field.metadata.get("tag")
            if tag is None:
                self.field(field, schema.__flexible__, f"{path}.{field.name}")
            else:
                tagged[tag] = field
        if schema.__flexible__:
            for _ in range(self.number("varint", f"{path} tags")):
                tag = self.number("", "")
                size = self.number("varint", f"{path} tag size")
                end = self.offset + size
                self.field(tagged[tag], True, f"{path}.{tagged[tag].name}")
                assert self.offset == end

    def number(self, form: str, path: str) -> int:
        start = self.offset
        value, shift = 0, 0
        while True:
            byte = self.data[self.offset]
            self.offset += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if form:
            self.found.append(Position(path, start, form, self.offset - start))
        return value

    def length(self, form: str, flexible: bool, path: str) -> int:
        if flexible:
            return self.number("varint", path) - 1
        size = 2 if form == "int16" else 4
        self.found.append(Position(path, self.offset, form, size))
        start, self.offset = self.offset, self.offset + size
        return int.from_bytes(self.data[start : self.offset], "big", signed=True)

    def field(self, field: Any, flexible: bool, path: str) -> None:
        annotation, nullable = without_none(field.type)
        kafka_type = field.metadata.get("kafka_type", "struct")
        if get_origin(annotation) is tuple:
            inner, _ = without_none(get_args(annotation)[0])
            for _ in range(self.length("int32", flexible, path)):
                self.plain(kafka_type, inner, flexible, path)
            return
        if kafka_type == "struct" and nullable and field.metadata.get("tag") is None:
            self.offset += 1
            if self.data[self.offset - 1] == 255:
                return
        self.plain(kafka_type, annotation, flexible, path)

    def plain(self, kafka_type: str, annotation: Any, flexible: bool, path: str) -> None:
        if kafka_type == "struct":
            self.struct(annotation, path)
        elif kafka_type in FIXED_SIZES:
            self.offset += FIXED_SIZES[kafka_type]
        else:
            form = "int16" if kafka_type == "string" else "int32"
            length = self.length(form, flexible, path)
            self.offset += max(length, 0)


HOSTILE_VALUES = ((1 << 31) - 1, (1 << 31) - 2, -2, -(1 << 31))
"""What is put into every count and length; a varint takes the same bits as an unsigned number."""


def hostile_bodies(schema: Any, data: bytes) -> Iterator[tuple[str, bytes, set[str]]]:
    """Where the lie is, the body with it, and the numbers one of which a refusal must name."""
    for position in positions_of(schema, data):
        for value in HOSTILE_VALUES:
            if position.form == "varint":
                told = {str(value & 0xFFFFFFFF), str((value & 0xFFFFFFFF) - 1)}
            else:
                told = {str(int.from_bytes(encoded(position.form, value), "big", signed=True))}
            yield f"{position.path}={value}", position.replaced(data, value), told
