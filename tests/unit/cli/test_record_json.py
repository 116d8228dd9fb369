"""Goal: a consumed line of JSON can be produced again, byte for byte; mistakes are told in words.
Method: round trips over any bytes, the forms that people write, a table of mistakes.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.record_json import parse_record_line, record_line
from tests.unit.cli.records import a_record

maybe_bytes = st.none() | st.binary()
header_names = st.text(st.characters(exclude_categories=["Cs"]))


def test_the_keys_are_stable() -> None:
    assert json.loads(record_line(a_record(b"\xff", headers=[("a", b"1"), ("b", b"\xfe")]))) == {
        "topic": "orders",
        "partition": 2,
        "offset": 41,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value_base64": "/w==",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value_base64": "/g=="}],
    }


def test_one_record_is_one_line() -> None:
    line = record_line(a_record(b"two\nlines", key=None))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line)["key"] is None


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(header_names, maybe_bytes)))
def test_round_trip(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    sent = parse_record_line(record_line(a_record(value, key=key, headers=headers)))
    assert (sent.key, sent.value, list(sent.headers)) == (key, value, headers)
    assert (sent.partition, sent.timestamp_ms) == (2, 1_700_000_000_123)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (b"{}", None, None),
        (b'{"value": "x"}', None, b"x"),
        (b'{"key": "", "value": null}', b"", None),
        ('{"value": "é"}'.encode(), None, "é".encode()),
        (b'{"value": {"a": [1, 2.5, null]}}', None, b'{"a":[1,2.5,null]}'),
        (b'{"key": 17, "value": true}', b"17", b"true"),
        (b'{"key": "\\ud800", "value": ["\\ud800"]}', b"\xed\xa0\x80", b'["\xed\xa0\x80"]'),
    ],
)
def test_what_people_write(line: bytes, key: bytes | None, value: bytes | None) -> None:
    record = parse_record_line(line)
    assert (record.key, record.value) == (key, value)
    assert (record.partition, record.timestamp_ms) == (None, None)


@pytest.mark.parametrize(
    "headers",
    [
        '{"a": "1", "b": null}',
        '[{"key": "a", "value": "1"}, {"key": "b"}]',
        '[["a","1"],["b",null]]',
    ],
)
def test_headers_in_any_of_their_forms(headers: str) -> None:
    record = parse_record_line(f'{{"value": "v", "headers": {headers}}}'.encode())
    assert record.headers == [("a", b"1"), ("b", None)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello", "no JSON"),
        (b"", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[1]", "no JSON object"),
        (b'"text"', "no JSON object"),
        (b'{"valu": 1}', "unknown name 'valu'"),
        (b'{"key_base64": "?"}', "key_base64 is no base64"),
        (b'{"value_base64": 5}', "value_base64 is no base64"),
        (b'{"partition": -1}', "partition should be"),
        (b'{"partition": true}', "partition should be"),
        (b'{"partition": 4294967296}', "partition should be"),
        (b'{"timestamp": "now"}', "timestamp should be"),
        (b'{"headers": 1}', "headers should be"),
        (b'{"headers": [1]}', "a header should be"),
        (b'{"headers": [{"value": "1"}]}', "a header should be"),
        (b'{"headers": {"\\ud800": "1"}}', r"\\ud800 is no UTF-8"),
    ],
)
def test_a_mistake_is_named(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_record_line(line)


def test_a_deep_line_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="no JSON"):
        parse_record_line(b"[" * 100_000)
