"""What a message looks like, as plain values: kio's schema of one version, in our terms.

kio's dataclasses are the single truth about Kafka's messages; this module is the only one that
reads them, and it imports a message only when it is asked for (2 to 4 ms each). What it makes of
them differs from kio in three ways: durations and dates are milliseconds under Kafka's own `_ms`
names, error codes are ints, and the null uuid is a uuid. kio's own reader and writer are never
used: the one trusts declared counts, the other is slow.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from ottla.base.errors import check
from ottla.protocol.primitives import NULL_UUID

STRING = "string"
BYTES = "bytes"
UUID = "uuid"
STRUCT = "struct"

# How struct.Struct spells the types of a fixed size.
_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_SIZES = {"?": 1, "b": 1, "h": 2, "i": 4, "q": 8, "B": 1, "H": 2, "I": 4, "Q": 8, "d": 8}
_IMPLICIT = {"?": False, "d": 0.0, STRING: "", BYTES: b"", UUID: NULL_UUID}


@dataclasses.dataclass(slots=True)
class FieldLayout:
    name: str
    kind: str  # a format character of a fixed size, or STRING, BYTES, UUID, STRUCT
    is_array: bool
    is_nullable: bool
    tag: int | None
    has_default: bool
    default: Any  # of an array: () or None; of a struct: a mapping or None
    struct: StructLayout | None

    def implicit_default(self) -> Any:
        """What Kafka means by a field of which the schema says no default."""
        if self.has_default:
            return self.default
        if self.is_array:
            return ()
        if self.struct is not None:
            return {field.name: field.implicit_default() for field in self.struct.all_fields()}
        return _IMPLICIT.get(self.kind, 0)


@dataclasses.dataclass(slots=True)
class StructLayout:
    name: str
    is_flexible: bool
    fields: list[FieldLayout]
    tagged: list[FieldLayout]  # by ascending tag

    def all_fields(self) -> list[FieldLayout]:
        return self.fields + self.tagged


# Tagged fields of our own, which a broker of another kind skips. Their numbers are far above those
# that Kafka may come to use. Every version of the request that has tags has them.
OWN_TAGS = {
    26: (  # EndTxn: this transactional id will not be used again
        FieldLayout("forget_transactional_id", "?", False, False, 10_000, True, False, None),
    ),
}


@cache
def _prepare_kio() -> None:
    """kio imports hypothesis where that is installed: 170 ms and 15 MB for nothing of ours.

    Its one module that asks is imported here, once, while hypothesis cannot be found. Where it is
    loaded already there is nothing to save, and other threads of a test may be using it.
    """
    if "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("kio.static._phantom")
    finally:
        del sys.modules["hypothesis"]


def supported_versions(api_key: int) -> tuple[int, int] | None:
    """The lowest and the highest version that the schemas have; None for an unknown key."""
    from kio.schema.index import api_key_map, schema_name_map  # noqa: PLC0415 (2 ms, once)

    name = api_key_map.get(api_key)
    if name is None:
        return None
    return min(schema_name_map[name]), max(schema_name_map[name])


def load_layout(api_key: int, version: int, *, is_request: bool) -> StructLayout | None:
    """The layout of a message, or None if there is no such key or version."""
    _prepare_kio()
    from kio.index import KioIndexError, load_request_schema, load_response_schema  # noqa: PLC0415

    load = load_request_schema if is_request else load_response_schema
    try:
        schema = load(api_key, version)
    except KioIndexError:
        return None
    found = _struct_layout(schema)
    if is_request and found.is_flexible:
        found.tagged.extend(OWN_TAGS.get(api_key, ()))
    return found


def _struct_layout(schema: Any) -> StructLayout:
    fields = [_field_layout(field) for field in dataclasses.fields(schema)]
    tagged = [field for field in fields if field.tag is not None]
    check(schema.__flexible__ or not tagged, "only flexible versions have tagged fields")
    return StructLayout(
        name=schema.__name__,
        is_flexible=schema.__flexible__,
        fields=[field for field in fields if field.tag is None],
        tagged=sorted(tagged, key=lambda field: field.tag or 0),
    )


def _field_layout(field: dataclasses.Field[Any]) -> FieldLayout:
    annotation, is_nullable = _without_none(field.type)
    is_array = get_origin(annotation) is tuple
    if is_array:
        annotation, _ = _without_none(get_args(annotation)[0])
    struct = _struct_layout(annotation) if dataclasses.is_dataclass(annotation) else None
    kafka_type = field.metadata.get("kafka_type", STRUCT)
    kind = _kind_of(kafka_type)
    has_default = field.default is not dataclasses.MISSING
    default = _plain(field.default) if has_default else None
    name = field.name
    if kafka_type.startswith(("timedelta", "datetime")):
        name += "_ms"
        if default is None:
            default = -1  # kio's "no date"; a field without a default never shows it
    elif kind == UUID and not is_array:
        default = NULL_UUID if default is None else default
    if name == "throttle_time_ms" and not has_default:
        # Kafka's schemas give it no default, but every answer has it and nearly none is throttled.
        has_default, default = True, 0
    # A uuid or a date of a fixed size cannot be null on the wire, whatever kio makes of it.
    is_nullable = is_nullable and (is_array or kind in (STRING, BYTES, STRUCT))
    tag = field.metadata.get("tag")
    check(
        tag is None or struct is None or is_array or not is_nullable,
        "no schema has a tagged struct that may be null: whether it has a marker is not known",
    )
    return FieldLayout(name, kind, is_array, is_nullable, tag, has_default, default, struct)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is UnionType:
        (inner,) = (part for part in get_args(annotation) if part is not NoneType)
        return inner, True
    return annotation, False


def _kind_of(kafka_type: str) -> str:
    if kafka_type in _FORMATS:
        return _FORMATS[kafka_type]
    if kafka_type == "records":
        return BYTES
    check(kafka_type in (STRING, BYTES, UUID, STRUCT), f"a type that is known, not {kafka_type}")
    return kafka_type


def _plain(default: Any) -> Any:
    """kio's default as the value that our codecs have for it."""
    if isinstance(default, timedelta):
        return default // timedelta(milliseconds=1)
    if dataclasses.is_dataclass(default):
        layouts = {field.name: _field_layout(field) for field in dataclasses.fields(default)}
        return {layout.name: _plain(getattr(default, name)) for name, layout in layouts.items()}
    value = getattr(default, "value", default)  # an ErrorCode is its number
    check(not isinstance(value, tuple) or not value, "the default of an array is empty")
    return value


def size_min(layout: FieldLayout | StructLayout) -> int:
    """The fewest bytes that it can take on the wire, by which a declared count is judged."""
    if isinstance(layout, StructLayout):
        own = sum(_field_size_min(field, layout.is_flexible) for field in layout.fields)
        return own + (1 if layout.is_flexible else 0)
    return _SIZES[layout.kind]


def element_size_min(field: FieldLayout, is_flexible: bool) -> int:
    """The fewest bytes of one element of an array."""
    if field.struct is not None:
        return size_min(field.struct)
    if field.kind == UUID:
        return 16
    if field.kind == STRING:
        return 1 if is_flexible else 2
    if field.kind == BYTES:
        return 1 if is_flexible else 4
    return _SIZES[field.kind]


def _field_size_min(field: FieldLayout, is_flexible: bool) -> int:
    if field.is_array:
        return 1 if is_flexible else 4
    if field.struct is not None and field.is_nullable:
        return 1
    return element_size_min(field, is_flexible)


def format_size(kind: str) -> int:
    return _SIZES[kind]
