"""Goal: a line becomes the record that its rules say, and no byte is lost.
Method: directed cases for each rule, random lines for the plain one.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.model import RecordToSend
from ottla.cli.record_lines import LineRules, line_reader, parse_header, unescape


@pytest.mark.parametrize(
    ("rules", "line", "key", "value"),
    [
        (LineRules(), b"hello\n", None, b"hello"),
        (LineRules(), b"no line feed", None, b"no line feed"),
        (LineRules(), b"dos\r\n", None, b"dos\r"),
        (LineRules(), b"\n", None, b""),
        (LineRules(key_separator=b":"), b"k:v:w\n", b"k", b"v:w"),
        (LineRules(key_separator=b":"), b":v\n", b"", b"v"),
        (LineRules(key_separator=b":"), b"k:\n", b"k", b""),
        (LineRules(key_separator=b":"), b"no key\n", None, b"no key"),
        (LineRules(key_separator=b"--"), b"k--v\n", b"k", b"v"),
        (LineRules(key_separator=b":", null_marker=b"NULL"), b"k:NULL\n", b"k", None),
        (LineRules(key_separator=b":", null_marker=b"NULL"), b"NULL:v\n", None, b"v"),
        (LineRules(key_separator=b":", null_marker=b""), b"k:\n", b"k", None),
        (LineRules(null_marker=b"NULL"), b"NULL\n", None, None),
    ],
)
def test_text_lines(rules: LineRules, line: bytes, key: bytes | None, value: bytes | None) -> None:
    assert line_reader(rules)(line) == RecordToSend(key, value)


def test_headers_and_partition_hold_for_every_line() -> None:
    read = line_reader(LineRules(headers=[("h", b"1")], partition=3))
    assert read(b"x\n") == RecordToSend(None, b"x", [("h", b"1")], 3)


def test_json_lines_keep_their_own() -> None:
    line = b'{"value": "x", "partition": 1, "timestamp": 9, "headers": {"own": "2"}}\n'
    plain = line_reader(LineRules(as_json=True))(line)
    assert plain == RecordToSend(None, b"x", [("own", b"2")], 1, 9)
    ruled = line_reader(LineRules(as_json=True, headers=[("h", b"1")], partition=3))(line)
    assert ruled == RecordToSend(None, b"x", [("h", b"1"), ("own", b"2")], 3, 9)


@given(st.binary().filter(lambda line: b"\n" not in line))
def test_no_byte_is_lost(line: bytes) -> None:
    assert line_reader(LineRules())(line + b"\n").value == line


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("a=1", ("a", b"1")),
        ("a=", ("a", b"")),
        ("a", ("a", None)),
        ("a=b=c", ("a", b"b=c")),
        ("é=ü", ("é", "ü".encode())),
    ],
)
def test_headers(text: str, header: tuple[str, bytes | None]) -> None:
    assert parse_header(text) == header


def test_a_header_needs_a_name() -> None:
    with pytest.raises(ValueError, match="has no name"):
        parse_header("=1")


def test_unescape() -> None:
    assert unescape(r"a\t\n\r\\\x00\xffé") == b"a\t\n\r\\\x00\xff\xc3\xa9"
    for mistake in (r"\q", "\\", r"\x1"):
        with pytest.raises(ValueError, match="is no escape"):
            unescape(mistake)
