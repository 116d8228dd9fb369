"""Goal: a format string gives exactly the bytes it says, for any record.
Method: every field and escape against one record; mistakes; bytes that are no text.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.record_format import compile_format
from tests.unit.cli.records import a_record


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t %p %o %e %T", b"orders 2 41 7 1700000000123"),
        ("%k=%v|%s", b"k=v|v"),
        ("%h", b"a=1,b=NULL,a=2"),
        ("%K %S", b"1 1"),
        ("%R", b"\x00\x00\x00\x01"),
        ("100%%", b"100%"),
        ("%{topic}-%{partition}@%{offset} %{epoch}", b"orders-2@41 7"),
        ("%{timestamp} %{time}", b"1700000000123 2023-11-14T22:13:20.123Z"),
        ("%{key} %{value} %{key_size} %{value_size}", b"k v 1 1"),
        ("%{headers}", b"a=1,b=NULL,a=2"),
        ("%{header:a} %{header:b} %{header:c}", b"2 NULL NULL"),
        (r"\n\t\r\\\x00\xFF", b"\n\t\r\\\x00\xff"),
        ("plain é", "plain é".encode()),
        ("", b""),
    ],
)
def test_every_field(text: str, expected: bytes) -> None:
    assert compile_format(text, "NULL")(a_record()) == expected


def test_null_is_the_marker_and_its_size_is_minus_one() -> None:
    tombstone = a_record(None, key=None)
    assert compile_format("%k|%v|%K|%S|%R", "-")(tombstone) == b"-|-|-1|-1|\xff\xff\xff\xff"


def test_empty_is_not_null() -> None:
    assert compile_format("%k|%v|%S", "NULL")(a_record(b"", key=b"")) == b"||0"


def test_no_timestamp_has_no_time() -> None:
    assert compile_format("%T|%{time}")(a_record(timestamp_ms=-1)) == b"-1|"


def test_a_time_that_no_calendar_has_is_told_as_it_is() -> None:
    assert compile_format("%{time}")(a_record(timestamp_ms=10**17)) == b"100000000000000000"


@pytest.mark.parametrize("text", ["%q", "%", "\\", r"\q", r"\x0", "%{nothing}", "%{}", "a%{topic"])
def test_a_mistake_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no field"):
        compile_format(text)


@given(st.binary(), st.binary())
def test_bytes_come_out_as_they_are(key: bytes, value: bytes) -> None:
    assert compile_format("%k%v")(a_record(value, key=key)) == key + value


@given(st.text(st.characters(exclude_characters="%\\", exclude_categories=["Cs"])))
def test_text_without_fields_is_itself(text: str) -> None:
    assert compile_format(text)(a_record()) == text.encode()
