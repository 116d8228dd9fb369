"""Goal: zig-zag varints as Kafka has them; too many bits are refused, missing bytes noticed.
Method: known encodings, the borders of each width, and one wrong thing at a time."""

from __future__ import annotations

import pytest

from ottla.protocol.error_codes import INVALID_RECORD
from ottla.records.varints import read_varint, read_varlong, varint
from tests.unit.records.batches import refusal, zig_zag

INT32_BORDERS = [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31)]
INT64_BORDERS = [*INT32_BORDERS, 2**31, 2**55, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (300, "d804"), (-300, "d704")]
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


@pytest.mark.parametrize("value", INT64_BORDERS)
def test_written_and_read_again(value: int) -> None:
    encoded = varint(value)
    assert encoded == zig_zag(value)
    assert read_varlong(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    if value in INT32_BORDERS:
        assert read_varint(encoded, 0) == (value, len(encoded))


def test_a_longer_form_than_needed_is_read_as_kafka_reads_it() -> None:
    assert read_varint(b"\x8e\x00", 0) == (7, 2)


@pytest.mark.parametrize(
    "encoded", [varint(2**31), b"\xff" * 4 + b"\x1f", b"\x80" * 5 + b"\x00", b"\xff" * 1000]
)
def test_more_bits_than_an_int_has(encoded: bytes) -> None:
    assert refusal(read_varint, encoded, 0).code == INVALID_RECORD


@pytest.mark.parametrize("encoded", [varint(2**63), b"\x80" * 10 + b"\x00", b"\xff" * 1000])
def test_more_bits_than_a_long_has(encoded: bytes) -> None:
    assert refusal(read_varlong, encoded, 0).code == INVALID_RECORD


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff\xff"])
def test_the_bytes_end_too_soon(encoded: bytes) -> None:
    for read in (read_varint, read_varlong):
        with pytest.raises(IndexError):
            read(encoded, 0)
