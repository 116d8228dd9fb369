"""Reads a segment for the cleaner: whole checked batches, some at a time, unpacked if need be.

Every batch is held against its CRC before anything of it is copied: a flipped bit on the disk must
not get a fresh checksum. What does not fit raises `CannotClean`, and the log is left as it is.
Reads through its own open files only, never through a `Segment`: it runs in the pool.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.errors import OttlaError, ProtocolError
from ottla.base.limits import DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX
from ottla.base.ports import File
from ottla.log.batch_scan import batch_size, crc_holds, is_sound, next_offset
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    HEADER_SIZE,
    RECORD_COUNT,
    Header,
    read_header,
)
from ottla.records.compression import NONE, decompress


class CannotClean(OttlaError):
    """The log stays as it is: what stands in a segment is not what was written there."""


class FoundBroken(CannotClean):
    """The batch at `offset`, or the first behind it, is not what was written: nobody is to read it
    any more."""

    def __init__(self, path: str, position: int, offset: int) -> None:
        super().__init__(f"{path}: a batch is broken at position {position}")
        self.offset = offset


class BatchRun:
    """Some batches that follow each other: where batch n stands in `chunk`, and its header."""

    __slots__ = ("chunk", "headers", "starts")

    def __init__(self, chunk: bytes) -> None:
        self.chunk = chunk
        self.starts: list[int] = []
        self.headers: list[Header] = []

    def size(self) -> int:
        return self.end(len(self.headers) - 1) - self.starts[0] if self.headers else 0

    def end(self, number: int) -> int:
        return self.starts[number] + batch_size(self.headers[number])

    def is_packed(self, number: int) -> bool:
        return self.headers[number][ATTRIBUTES] & CODEC_MASK != NONE

    def records_of(self, number: int) -> bytes:
        """The bytes of its records, unpacked."""
        packed = memoryview(self.chunk)[self.starts[number] + HEADER_SIZE : self.end(number)]
        if not packed or not self.is_packed(number):
            return bytes(packed)
        header = self.headers[number]
        limit = max(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX * len(packed))
        try:
            return decompress(header[ATTRIBUTES] & CODEC_MASK, packed, limit)
        except ProtocolError as cause:
            raise CannotClean(f"the batch at offset {header[BASE_OFFSET]}: {cause}") from cause


def read_runs(
    file: File, path: str, size: int, base_offset: int, chunk_bytes: int
) -> Iterator[BatchRun]:
    """All batches of a segment, about `chunk_bytes` of them at a time, at least one."""
    position = 0
    expected_offset = base_offset
    while position < size:
        chunk = file.read_at(position, min(chunk_bytes, size - position))
        if len(chunk) >= HEADER_SIZE:
            first = batch_size(read_header(chunk))
            if len(chunk) < first <= size - position:
                chunk = file.read_at(position, first)
        run = _whole_batches(chunk, size - position, expected_offset)
        if not run.headers:
            raise FoundBroken(path, position, expected_offset)
        yield run
        position += run.size()
        expected_offset = next_offset(run.headers[-1])


def _whole_batches(chunk: bytes, bytes_left: int, expected_offset: int) -> BatchRun:
    """The batches at the start of `chunk`, up to the first that is cut off or broken."""
    run = BatchRun(chunk)
    view = memoryview(chunk)
    position = 0
    while len(chunk) - position >= HEADER_SIZE:
        header = read_header(chunk, position)
        end = position + batch_size(header)
        if end > len(chunk) or not is_sound(header, expected_offset, bytes_left - position):
            break
        if header[RECORD_COUNT] < 0 or not crc_holds(view[position:end], header):
            break
        run.starts.append(position)
        run.headers.append(header)
        position = end
        expected_offset = next_offset(header)
    return run
