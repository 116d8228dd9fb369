"""Is a broken batch the torn end of a log, or a hole in the middle of it?

A torn end is what an interrupted write leaves, and is cut. A hole is corruption: whoever cuts there
throws away good records behind it, so the log is not opened (reliability.md F9). Kafka cuts in
both cases. Reads only, decides only.

What tells them apart: a hole has a good batch behind it. After a power cut, though, an unsynced
page can be missing while a later one was written; such a page reads as zeros. So with the power
lost, a broken batch that has zeros where a disk sector ends is the torn end even if something good
lies behind it; what lies there was never flushed, let alone promised.
"""

from __future__ import annotations

import re

from ottla.base.ports import File
from ottla.log.batch_scan import batch_size, crc_holds, is_sound
from ottla.records.batch_header import (
    BASE_OFFSET,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MAGIC_V2,
    read_header,
)

SECTOR_BYTES = 512
SEARCH_CHUNK_BYTES = 1024 * 1024


def find_batch_behind(file: File, position: int, end: int, offset: int) -> int | None:
    """Where a whole batch with a good CRC stands behind `position`; None if nowhere."""
    pattern = _batch_start_pattern(offset)
    start = position + 1
    while start + HEADER_SIZE <= end:
        chunk = file.read_at(start, min(SEARCH_CHUNK_BYTES, end - start))
        for match in pattern.finditer(chunk):
            at = start + match.start()
            if _stands_at(file, at, end, offset):
                return at
        if start + len(chunk) >= end:
            return None
        start += len(chunk) - HEADER_SIZE
    return None


def is_whole_batch(file: File, position: int, end: int) -> bool:
    """Whether the bytes are a batch with a good CRC, whatever its offset."""
    return _stands_at(file, position, end, 0)


def is_cut_off(file: File, position: int, bytes_left: int) -> bool:
    """Whether the batch at `position` goes on past the end of the file, or is not there at all."""
    head = file.read_at(position, min(HEADER_SIZE, bytes_left))
    if len(head) < HEADER_SIZE:
        return True
    header = read_header(head)
    return header[MAGIC] == MAGIC_V2 and batch_size(header) > bytes_left


def is_missing_page(file: File, position: int, end: int, expected_offset: int) -> bool:
    """Whether a sector that the batch at `position` lies in reads as zeros from where the batch,
    or the sector, starts."""
    limit = end
    head = file.read_at(position, HEADER_SIZE)
    if len(head) == HEADER_SIZE:
        header = read_header(head)
        if is_sound(header, 0, end - position):
            limit = position + batch_size(header)
    start = position
    while start < limit:
        sector_end = start - start % SECTOR_BYTES + SECTOR_BYTES
        content = file.read_at(start, min(sector_end, end) - start)
        if not any(content) and not _could_be_zeros(start == position, content, expected_offset):
            return True
        start = sector_end
    return False


def _could_be_zeros(at_start: bool, content: bytes, expected_offset: int) -> bool:
    """The first bytes of a whole batch are zeros too, where its offset is small."""
    if not at_start or len(content) >= LENGTH_END:
        return False
    return not any(expected_offset.to_bytes(8, "big")[: len(content)])


def _batch_start_pattern(offset: int) -> re.Pattern[bytes]:
    """Finds every place where magic and the upper half of the offset are right; overlapping."""
    upper = offset >> 32
    halves = b"|".join(re.escape(half.to_bytes(4, "big")) for half in (upper, upper + 1))
    return re.compile(rb"(?=(?:" + halves + rb").{4}[\x00-\x7f].{7}\x02.{4}\x00)", re.DOTALL)


def _stands_at(file: File, position: int, end: int, offset: int) -> bool:
    head = file.read_at(position, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return False
    header = read_header(head)
    if not is_sound(header, 0, end - position) or header[BASE_OFFSET] < offset:
        return False
    return crc_holds(memoryview(file.read_at(position, batch_size(header))), header)
