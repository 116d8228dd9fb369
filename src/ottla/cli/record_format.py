"""The format string of `ottla consume`: kcat's letters, and names for those who forget letters.

    %t topic   %p partition      %o offset    %e leader epoch    %T timestamp in milliseconds
    %k key     %v or %s value    %h headers   %K, %S bytes of key and value, -1 if null
    %R bytes of the value as four bytes, big-endian              %% a per cent sign
    %{topic} %{partition} %{offset} %{epoch} %{timestamp} %{time} (ISO, UTC) %{key} %{value}
    %{headers} %{header:NAME} %{key_size} %{value_size}          \\n \\t \\r \\\\ \\xNN

A format is read once into a list of pieces; keys, values and headers come out as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ottla.cli.model import ReceivedRecord
from ottla.cli.words import time_of

Piece = Callable[[ReceivedRecord], bytes]
RecordFormat = Callable[[ReceivedRecord], bytes]

TOKEN = re.compile(
    r"%\{(?P<name>[^}]*)\}|%(?P<letter>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)"
    r"|(?P<text>[^%\\]+)|(?P<dangling>[%\\]$)",
    re.DOTALL,
)
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}
NAMES_BY_LETTER = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "e": "epoch",
    "T": "timestamp",
    "k": "key",
    "v": "value",
    "s": "value",
    "h": "headers",
    "K": "key_size",
    "S": "value_size",
    "R": "value_size_binary",
}


def compile_format(text: str, null_marker: str = "") -> RecordFormat:
    """Raises ValueError with a message for people."""
    null = null_marker.encode("utf-8", "surrogateescape")
    pieces = [_piece(token, null) for token in TOKEN.finditer(text)]

    def write(record: ReceivedRecord) -> bytes:
        return b"".join([piece(record) for piece in pieces])

    return write


def _piece(token: re.Match[str], null: bytes) -> Piece:
    match token.lastgroup:
        case "text":
            return _constant(token["text"].encode("utf-8", "surrogateescape"))
        case "hex":
            return _constant(bytes.fromhex(token["hex"]))
        case "escape" if token["escape"] in ESCAPES:
            return _constant(ESCAPES[token["escape"]])
        case "letter" if token["letter"] == "%":
            return _constant(b"%")
        case "letter" if token["letter"] in NAMES_BY_LETTER:
            return _field(NAMES_BY_LETTER[token["letter"]], null)
        case "name":
            return _field(token["name"], null)
        case _:
            raise ValueError(f"{token[0]!r} at position {token.start()} is no field and no escape")


def _constant(value: bytes) -> Piece:
    return lambda record: value


def _field(name: str, null: bytes) -> Piece:
    if name.startswith("header:"):
        return _header_field(name.removeprefix("header:"), null)
    if name == "key":
        return lambda record: null if record.key is None else record.key
    if name == "value":
        return lambda record: null if record.value is None else record.value
    if name == "headers":
        return lambda record: _headers_text(record, null)
    if name == "value_size_binary":
        return lambda record: _size(record.value).to_bytes(4, "big", signed=True)
    if name not in TEXT_FIELDS:
        known = ", ".join(["key", "value", "headers", "header:NAME", *TEXT_FIELDS])
        raise ValueError(f"%{{{name}}} is no field of a record; there are {known}")
    text_of = TEXT_FIELDS[name]
    return lambda record: text_of(record).encode()


def _header_field(key: str, null: bytes) -> Piece:
    def last(record: ReceivedRecord) -> bytes:
        for name, value in reversed(record.headers):
            if name == key:
                return null if value is None else value
        return null

    return last


def _headers_text(record: ReceivedRecord, null: bytes) -> bytes:
    return b",".join(
        [
            name.encode("utf-8", "surrogateescape") + b"=" + (null if value is None else value)
            for name, value in record.headers
        ]
    )


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _time_text(record: ReceivedRecord) -> str:
    return "" if record.timestamp_ms < 0 else time_of(record.timestamp_ms)


TEXT_FIELDS: dict[str, Callable[[ReceivedRecord], str]] = {
    "topic": lambda record: record.topic,
    "partition": lambda record: str(record.partition),
    "offset": lambda record: str(record.offset),
    "epoch": lambda record: str(-1 if record.leader_epoch is None else record.leader_epoch),
    "timestamp": lambda record: str(record.timestamp_ms),
    "time": _time_text,
    "key_size": lambda record: str(_size(record.key)),
    "value_size": lambda record: str(_size(record.value)),
}
