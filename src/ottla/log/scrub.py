"""Walks over stored batches that nobody has asked for, and finds those that have rotted (L2, F9).

A `Scrub` is one pass over the flushed part of a log, in pieces. It lives on the loop, where it sees
what becomes of the log meanwhile; a `Piece` is what runs in the pool: it has a path and numbers,
opens the file itself and touches nothing that the loop changes.

What a piece finds is a suspicion. Segments are deleted, cut and replaced by cleaned ones while it
reads, so damage counts only if the segment is still the same one, uncut (`stands`), and a second
look, past the page cache, finds it again.

Of each batch the length, the CRC and the place among the offsets are checked. Gaps are not damage:
a cleaned log has them, and so has one that was cleaned once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.log import file_names
from ottla.log.batch_scan import batch_size, is_sound, next_offset
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.log.storage_errors import storing
from ottla.records.batch_header import (
    ATTRIBUTES_POSITION,
    CRC,
    HEADER_SIZE,
    Header,
    read_header,
)
from ottla.records.crc32c import crc32c, crc32c_extended

CHUNK_BYTES = 256 * 1024
CHUNK_BYTES_MIN = 4096

# Python code in another thread keeps the loop waiting: this many batches take one or two ms.
PIECE_BATCHES_MAX = 500

BROKEN = "a batch is broken"


class ScrubFile(Protocol):
    """What a piece reads from; errors are OSError."""

    def read_at(self, position: int, size: int) -> bytes: ...
    def forget(self, position: int, size: int) -> None:
        """The next read is to come from the disk, if that can be had."""
        ...

    def close(self) -> None: ...


OpenScrubFile = Callable[[str], ScrubFile]


class Walked(NamedTuple):
    """How far a piece came: the next batch stands at `position`, its offset is `offset` or above.
    `damage` says what is wrong with it; None if it was not looked at."""

    position: int
    offset: int
    bytes_read: int
    damage: str | None = None


class Piece:
    """Some batches of one segment, from `position` on. Made on the loop, run in the pool."""

    __slots__ = (
        "bound",
        "cuts",
        "end",
        "end_offset",
        "is_second",
        "offset",
        "position",
        "segment",
        "sought",
    )

    def __init__(
        self,
        segment: Segment,
        position: int,
        offset: int,
        *,
        bound: int,
        end_offset: int,
        is_second: bool = False,
        sought: int | None = None,
    ) -> None:
        self.segment = segment
        self.cuts = segment.cuts
        self.position = position
        self.offset = offset
        """Of the batch at `position`, or below it."""
        self.end = segment.size
        self.bound = bound
        """No batch is looked at that begins at this offset or above."""
        self.end_offset = end_offset
        """Where the segment ends: no batch in it may reach farther."""
        self.is_second = is_second
        self.sought = sought
        """The one offset that this is about; where it begins only the index knows."""

    def path(self) -> str:
        return self.segment.path(file_names.LOG)

    def second_look(self, walked: Walked) -> Piece:
        """At where the first one found damage; made at once, before anything can be cut."""
        return Piece(
            self.segment,
            walked.position,
            walked.offset,
            bound=self.bound,
            end_offset=self.end_offset,
            is_second=True,
            sought=self.sought,
        )

    def stands(self, log: PartitionLog) -> bool:
        """Whether what was read is what the log still has there."""
        same = any(segment is self.segment for segment in log.all_segments())
        return same and self.segment.cuts == self.cuts

    def run(self, open_file: OpenScrubFile, budget_bytes: int) -> Walked:
        """In the pool. An error of the disk is damage too: these batches can not be had."""
        walk = _Walk(self, budget_bytes)
        try:
            file = open_file(self.path())
        except OSError as failure:
            return walk.so_far(f"the file can not be opened ({failure})")
        try:
            if self.is_second:
                file.forget(self.position, max(budget_bytes, CHUNK_BYTES))
            return walk.run(file)
        except OSError as failure:
            return walk.so_far(f"the file can not be read ({failure})")
        finally:
            # Here and not on the loop: the last one to close a deleted file frees its blocks.
            file.close()


class _Walk:
    """One run over a piece."""

    __slots__ = (
        "_budget_bytes",
        "_bytes_read",
        "_chunk",
        "_chunk_start",
        "_offset",
        "_piece",
        "_position",
    )

    def __init__(self, piece: Piece, budget_bytes: int) -> None:
        self._piece = piece
        self._budget_bytes = budget_bytes
        self._position = piece.position
        self._offset = piece.offset
        self._bytes_read = 0
        self._chunk = b""
        self._chunk_start = piece.position

    def so_far(self, damage: str | None = None) -> Walked:
        return Walked(self._position, self._offset, self._bytes_read, damage)

    def run(self, file: ScrubFile) -> Walked:
        piece = self._piece
        stop = piece.position + self._budget_bytes
        for _ in range(PIECE_BATCHES_MAX):
            if self._position >= min(stop, piece.end) or self._offset >= piece.bound:
                break
            header = self._header(file)
            if header is None or not self._fits(header) or not self._crc_holds(file, header):
                return self.so_far(BROKEN)
            self._position += batch_size(header)
            self._offset = next_offset(header)
        return self.so_far()

    def _header(self, file: ScrubFile) -> Header | None:
        """None if the file ends before it does."""
        at = self._position - self._chunk_start
        if at + HEADER_SIZE > len(self._chunk):
            wanted = min(max(self._budget_bytes, CHUNK_BYTES_MIN), CHUNK_BYTES)
            self._chunk = self._read(file, self._position, wanted)
            self._chunk_start, at = self._position, 0
            if len(self._chunk) < HEADER_SIZE:
                return None
        return read_header(self._chunk, at)

    def _fits(self, header: Header) -> bool:
        piece = self._piece
        bytes_left = piece.end - self._position
        return (
            is_sound(header, self._offset, bytes_left) and next_offset(header) <= piece.end_offset
        )

    def _crc_holds(self, file: ScrubFile, header: Header) -> bool:
        """A large batch, or a length that has rotted, is never in memory as a whole."""
        start = self._position - self._chunk_start
        end = self._position + batch_size(header)
        batch = memoryview(self._chunk)[start : start + batch_size(header)]
        checksum = crc32c(batch[ATTRIBUTES_POSITION:])
        position = self._position + len(batch)
        while position < end:
            content = self._read(file, position, min(CHUNK_BYTES, end - position))
            if not content:
                return False
            checksum = crc32c_extended(checksum, content)
            position += len(content)
        return checksum == header[CRC]

    def _read(self, file: ScrubFile, position: int, size: int) -> bytes:
        content = file.read_at(position, min(size, self._piece.end - position))
        self._bytes_read += len(content)
        return content


class Scrub:
    """One pass over the flushed part of a log, oldest first. On the loop."""

    __slots__ = ("_cuts", "_offset", "_position", "_segment", "log")

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self._segment: Segment | None = None
        self._cuts = 0
        self._position = 0
        self._offset = -1
        """Everything below has been looked at."""

    def next_piece(self) -> Piece | None:
        """None at the end of the pass. StorageError if an index can't be opened."""
        log = self.log
        segments = log.all_segments()
        ends = [*(segment.base_offset for segment in segments[1:]), log.log_end_offset]
        for segment, end_offset in zip(segments, ends, strict=True):
            if end_offset <= self._offset or segment.size == 0:
                continue
            if segment is not self._segment or segment.cuts != self._cuts:
                # Also one that took the place of a segment that was half done: all of it is new.
                self._segment, self._cuts = segment, segment.cuts
                self._position, self._offset = self._start_of(segment), segment.base_offset
            if self._offset >= log.recovery_point:
                return None
            if self._position < segment.size:
                return Piece(
                    segment,
                    self._position,
                    self._offset,
                    bound=log.recovery_point,
                    end_offset=end_offset,
                )
            self._offset = end_offset
        return None

    def passed(self, piece: Piece, walked: Walked) -> None:
        """No damage up to there."""
        if piece.segment is self._segment:
            self._position, self._offset = walked.position, walked.offset

    def _start_of(self, segment: Segment) -> int:
        """What lies far below the log start is deleted, and of no interest to anybody."""
        log_start = self.log.log_start_offset
        return _entry_before(self.log, segment, log_start) if segment.base_offset < log_start else 0


def piece_at(log: PartitionLog, offset: int) -> Piece | None:
    """The batch that holds `offset`, whether flushed or not, with those between it and the index
    entry before it, and behind it as far as one piece goes: that an offset has grown shows only at
    the next one. None if there is no such offset. StorageError if there is no index to be had."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return None
    segments = log.all_segments()
    ends = [*(segment.base_offset for segment in segments[1:]), log.log_end_offset]
    for segment, end_offset in zip(segments, ends, strict=True):
        if offset < end_offset:
            position = _entry_before(log, segment, offset)
            return Piece(
                segment,
                position,
                segment.base_offset,
                bound=log.log_end_offset,
                end_offset=end_offset,
                sought=offset,
            )
    return None


def _entry_before(log: PartitionLog, segment: Segment, offset: int) -> int:
    """Where the index says that a batch begins, the one with `offset` or one shortly before it."""
    with storing(log.directory, "read"):
        segment.open_file()
        return segment.offset_index.position_for_offset(offset)


def verdict(piece: Piece, walked: Walked, recovery_point: int) -> str:
    """The sentence for the operator, as recovery says it."""
    offset = walked.offset if piece.sought is None else piece.sought
    return (
        f"{piece.path()}: {walked.damage} at position {walked.position} (offset {offset}), "
        f"recovery point {recovery_point}; it was whole when it was written"
    )
