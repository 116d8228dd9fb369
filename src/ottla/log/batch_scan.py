"""Walks over the batches of a segment file by their headers.

Reads only; what a broken batch means is for `recovery` to judge. The walk stops at the first place
where no sound batch stands, and says where that is.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.ports import File
from ottla.records.batch_header import (
    ATTRIBUTES_POSITION,
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH_END,
    MAGIC,
    MAGIC_V2,
    Header,
    read_header,
)
from ottla.records.crc32c import crc32c

BATCH_LENGTH_MIN = HEADER_SIZE - LENGTH_END

CHUNK_BYTES = 64 * 1024
CHECK_CHUNK_BYTES = 1024 * 1024

# Past this batch size it is cheaper to read header by header than whole chunks.
SPARSE_BATCH_BYTES = 8 * 1024


def is_sound(header: Header, expected_offset: int, bytes_left: int) -> bool:
    """Whether this can be the header of the batch at `expected_offset` or behind it."""
    return (
        header[MAGIC] == MAGIC_V2
        and header[BASE_OFFSET] >= expected_offset
        and BATCH_LENGTH_MIN <= header[BATCH_LENGTH] <= bytes_left - LENGTH_END
        and header[LAST_OFFSET_DELTA] >= 0
    )


def batch_size(header: Header) -> int:
    return LENGTH_END + header[BATCH_LENGTH]


def next_offset(header: Header) -> int:
    return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1


def scan_headers(
    file: File, position: int, end: int, expected_offset: int
) -> Iterator[tuple[int, Header]]:
    """(position, header) of each batch from `position` to `end`, as long as they are sound."""
    chunk = b""
    chunk_start = position
    chunk_bytes = CHUNK_BYTES
    while position + HEADER_SIZE <= end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk = file.read_at(position, min(chunk_bytes, end - position))
            chunk_start = position
            at = 0
            if len(chunk) < HEADER_SIZE:
                return
        header = read_header(chunk, at)
        if not is_sound(header, expected_offset, end - position):
            return
        yield position, header
        size = batch_size(header)
        position += size
        expected_offset = next_offset(header)
        chunk_bytes = HEADER_SIZE if size > SPARSE_BATCH_BYTES else CHUNK_BYTES


def scan_batches(
    file: File, position: int, end: int, expected_offset: int
) -> Iterator[tuple[int, Header, memoryview]]:
    """As `scan_headers`, with the bytes of each batch, whose CRC has been checked too."""
    chunk = memoryview(b"")
    chunk_start = position
    while position + HEADER_SIZE <= end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk = memoryview(file.read_at(position, min(CHECK_CHUNK_BYTES, end - position)))
            chunk_start, at = position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = read_header(chunk, at)
        if not is_sound(header, expected_offset, end - position):
            return
        size = batch_size(header)
        if at + size > len(chunk):
            wanted = max(size, min(CHECK_CHUNK_BYTES, end - position))
            chunk = memoryview(file.read_at(position, wanted))
            chunk_start, at = position, 0
        batch = chunk[at : at + size]
        if not crc_holds(batch, header):
            return
        yield position, header, batch
        position += size
        expected_offset = next_offset(header)


def crc_holds(batch: memoryview, header: Header) -> bool:
    return crc32c(batch[ATTRIBUTES_POSITION:]) == header[CRC]


def read_batch(file: File, position: int, header: Header) -> bytes:
    return file.read_at(position, batch_size(header))
