"""Lines of input into records to send: plain `value`, `key<separator>value`, or JSON.

Pure. One line is one record without its line feed; every other byte belongs to the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ottla.cli.model import Headers, RecordToSend
from ottla.cli.record_json import parse_record_line
from ottla.cli.words import check_unicode

ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\"}

LineReader = Callable[[bytes], RecordToSend]


@dataclass(slots=True)
class LineRules:
    """What holds for every line: headers come before its own, `partition` in place of its own."""

    key_separator: bytes | None = None
    null_marker: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    as_json: bool = False


def line_reader(rules: LineRules) -> LineReader:
    return _json_reader(rules) if rules.as_json else _text_reader(rules)


def _text_reader(rules: LineRules) -> LineReader:
    separator, null_marker = rules.key_separator, rules.null_marker
    headers, partition = rules.headers, rules.partition

    def read(line: bytes) -> RecordToSend:
        text = line.removesuffix(b"\n")
        key: bytes | None = None
        value: bytes | None = text
        if separator is not None and separator in text:
            key, _, value = text.partition(separator)
        if null_marker is not None:
            key = None if key == null_marker else key
            value = None if value == null_marker else value
        return RecordToSend(key, value, headers, partition)

    return read


def _json_reader(rules: LineRules) -> LineReader:
    def read(line: bytes) -> RecordToSend:
        record = parse_record_line(line)
        if rules.headers:
            record.headers = [*rules.headers, *record.headers]
        if rules.partition is not None:
            record.partition = rules.partition
        return record

    return read


def parse_header(text: str) -> tuple[str, bytes | None]:
    """`name=value`; `name` alone is a header without a value. Raises ValueError."""
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} has no name: it should look like name=value")
    check_unicode(name)
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def unescape(text: str) -> bytes:
    r"""Bytes of an option's text, where \t, \n, \r, \\ and \xNN mean what they do elsewhere."""

    def meant(escape: re.Match[bytes]) -> bytes:
        code = escape[1]
        if code in ESCAPES:
            return ESCAPES[code]
        if code.startswith(b"x") and len(code) == 3:
            return bytes.fromhex(code[1:].decode())
        raise ValueError(f"{escape[0].decode(errors='replace')!r} is no escape")

    return ESCAPE.sub(meant, text.encode("utf-8", "surrogateescape"))
