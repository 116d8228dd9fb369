"""A record as one line of JSON, written by `ottla consume` and read by `ottla produce --json`.

    {"topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"}

Bytes that are no UTF-8 text stand in base64 under `key_base64` and `value_base64`, and the plain
name is left out; so what was consumed can be produced again, byte for byte. Headers are a list of
{"key", "value"}, because a header may come twice and their order counts.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from ottla.cli.model import ReceivedRecord, RecordToSend
from ottla.cli.words import check_unicode

KNOWN_NAMES = frozenset(
    ("topic", "partition", "offset", "timestamp", "timestamp_type", "leader_epoch", "headers")
) | {"key", "key_base64", "value", "value_base64"}
PARTITION_MAX = 2**31 - 1
TIMESTAMP_MAX = 2**63 - 1


def record_line(record: ReceivedRecord) -> bytes:
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [{"key": name, **json_bytes("value", value)} for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def parse_record_line(line: bytes) -> RecordToSend:
    """Raises ValueError with a message for people."""
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as cause:  # its own text speaks of line 1, always
        raise ValueError(f"no JSON: {cause.msg} at column {cause.colno}") from cause
    except (UnicodeDecodeError, RecursionError) as cause:
        raise ValueError(f"no JSON: {cause}") from cause
    match fields:
        case {}:
            return _record_of(fields)
        case _:
            raise ValueError('no JSON object: a line should look like {"key": "k", "value": "v"}')


def _record_of(fields: dict[str, Any]) -> RecordToSend:
    unknown = sorted(fields.keys() - KNOWN_NAMES)
    if unknown:
        raise ValueError(f"unknown name {unknown[0]!r}; there are {', '.join(sorted(KNOWN_NAMES))}")
    return RecordToSend(
        key=_bytes_of(fields, "key"),
        value=_bytes_of(fields, "value"),
        headers=_headers_of(fields.get("headers")),
        partition=_number_of(fields, "partition", PARTITION_MAX),
        timestamp_ms=_number_of(fields, "timestamp", TIMESTAMP_MAX),
    )


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError) as cause:
            raise ValueError(f"{name}_base64 is no base64") from cause
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    # An object or a number as the value is what people have in their files; they mean its JSON.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _headers_of(value: Any) -> list[tuple[str, bytes | None]]:
    if value is None:
        return []
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list):
        headers = [_header_of(item) for item in value]
        for name, _ in headers:
            check_unicode(name)
        return headers
    raise ValueError('headers should be {"name": "value"} or [{"key": "name", "value": "value"}]')


def _header_of(item: Any) -> tuple[str, bytes | None]:
    match item:
        case {"key": str(name)}:
            return name, _bytes_of(item, "value")
        case [str(name), value]:
            return name, _bytes_of({"value": value}, "value")
        case _:
            raise ValueError('a header should be {"key": "name", "value": "value"}')


def _number_of(fields: dict[str, Any], name: str, maximum: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise ValueError(f"{name} should be a whole number from 0 to {maximum}")
    return value
