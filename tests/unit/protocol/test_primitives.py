"""Goal: varints, tags, strings and uuids, each at its borders."""

from __future__ import annotations

import uuid

import pytest

from ottla.base.errors import InvariantError, MalformedRequest
from ottla.protocol import primitives


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "80 01"),
        (16_383, "ff 7f"),
        (16_384, "80 80 01"),
        ((1 << 31) - 1, "ff ff ff ff 07"),
        ((1 << 32) - 1, "ff ff ff ff 0f"),
    ],
)
def test_varints(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert primitives.uvarint(value) == data
    assert primitives.read_uvarint(b"x" + data + b"x", 1) == (value, 1 + len(data))


@pytest.mark.parametrize("encoded", ["80 80 80 80 10", "ff ff ff ff 7f", "80 80 80 80 80 00"])
def test_a_varint_has_at_most_32_bits(encoded: str) -> None:
    with pytest.raises(MalformedRequest):
        primitives.read_uvarint(bytes.fromhex(encoded), 0)


def test_a_varint_that_goes_on_past_the_end() -> None:
    with pytest.raises(primitives.MALFORMED):
        primitives.read_uvarint(b"\x80", 0)


def test_tags_are_skipped_within_bounds() -> None:
    data = b"\2\0\3abc\x05\0rest"
    assert primitives.skip_tags(data, 0, len(data), 2) == (8, 2)
    with pytest.raises(MalformedRequest, match="2 tagged fields"):
        primitives.skip_tags(data, 0, len(data), 1)
    with pytest.raises(MalformedRequest, match="declares 3 bytes"):
        primitives.skip_tags(data, 0, 5, 2)


def test_compact_strings() -> None:
    assert primitives.read_compact_string(b"\0", 0, 1) == (None, 1)
    assert primitives.read_compact_string(b"\1", 0, 1) == ("", 1)
    assert primitives.read_compact_string(b"\3ab", 0, 3) == ("ab", 3)
    for text in (None, "", "ab", "ż" * 100):
        data = primitives.compact_string(text)
        assert primitives.read_compact_string(data, 0, len(data)) == (text, len(data))
    with pytest.raises(MalformedRequest):
        primitives.read_compact_string(b"\4ab", 0, 3)


def test_strings_end_at_32767_bytes() -> None:
    longest = "x" * primitives.STRING_BYTES_MAX
    data = primitives.compact_string(longest)
    assert primitives.read_compact_string(data, 0, len(data)) == (longest, len(data))
    assert primitives.legacy_string(longest)[:2] == b"\x7f\xff"
    too_long = b"\x81\x80\2" + b"x" * (primitives.STRING_BYTES_MAX + 1)
    with pytest.raises(MalformedRequest):
        primitives.read_compact_string(too_long, 0, len(too_long))
    for encode in (primitives.compact_string, primitives.legacy_string):
        with pytest.raises(InvariantError):
            encode(longest + "x")


def test_legacy_strings() -> None:
    assert primitives.legacy_string(None) == b"\xff\xff"
    assert primitives.legacy_string("") == b"\0\0"
    assert primitives.legacy_string("ab") == b"\0\2ab"


def test_uuids() -> None:
    one = uuid.UUID(int=7)
    assert primitives.uuid_bytes(None) == bytes(16) == primitives.uuid_bytes(primitives.NULL_UUID)
    assert primitives.uuid_of(primitives.uuid_bytes(one)) == one


def test_a_tagged_field() -> None:
    assert primitives.tagged_field(200, b"abc") == b"\xc8\x01\x03abc"
