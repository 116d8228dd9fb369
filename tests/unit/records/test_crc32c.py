"""Goal: it is Castagnoli's CRC, over any buffer. Method: the check value of the standard, and a
batch that the Java client wrote."""

from __future__ import annotations

import pytest

from ottla.base.ports import Buffer
from ottla.records.batch_header import CRC, read_header
from ottla.records.crc32c import crc32c
from tests.unit.records.batches import java_batches


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_check_value_for_any_buffer(kind: type[Buffer]) -> None:
    assert crc32c(kind(b"123456789")) == 0xE3069283


def test_a_slice_of_a_view() -> None:
    assert crc32c(memoryview(bytearray(b"x123456789x"))[1:-1]) == 0xE3069283


def test_the_checksum_of_a_java_batch() -> None:
    batch = java_batches()["gzip"]
    assert crc32c(memoryview(batch)[21:]) == read_header(batch)[CRC]
