"""What a fetch brought of one partition, batch by batch: whole, sound and meant for this reader.

Owns the reading of batch headers on the consumer's side: what is cut off at the end is left for the
next fetch, a wrong checksum is refused, control batches and (for read_committed) aborted ones are
passed over, packed ones are unpacked within bounds. Never looks at a record: `fetch_records` and
`columns` do, many batches at a time.

Always holds: `position` is the offset of the next record that may be handed out, and moves forward
only; what was passed over moves it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.base.limits import CLIENT_DECOMPRESSED_BYTES_MAX
from ottla.base.ports import Buffer
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.batch_header import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_OFFSET,
    BATCH_LENGTH,
    CODEC_MASK,
    CONTROL_MASK,
    CRC,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH_END,
    MAGIC,
    MAGIC_V2,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL_MASK,
    Header,
    read_header,
)
from ottla.records.compression import NONE, decompress
from ottla.records.crc32c import crc32c
from ottla.records.varints import read_varint, read_varlong

_CONTROL_KEY = Struct(">hh")
_ABORT = 0

AbortedTransactions = Sequence[tuple[int, int]]
"""Producer id and first offset of each; None where all is read."""


class RecordBlock(NamedTuple):
    """The records of one batch, unpacked, at [start, end) of `data`."""

    header: Header
    data: Buffer
    start: int
    end: int

    def next_offset(self) -> int:
        return self.header[BASE_OFFSET] + self.header[LAST_OFFSET_DELTA] + 1


class FetchedBatches:
    """The bytes at [start, end) of `frame`, read from `position` on."""

    __slots__ = (
        "_aborted_now",
        "_at",
        "_check_crcs",
        "_coming",
        "_end",
        "_frame",
        "_pending",
        "last_epoch",
        "position",
    )

    def __init__(
        self,
        frame: Buffer,
        start: int,
        end: int,
        position: int,
        *,
        aborted: AbortedTransactions | None = None,
        check_crcs: bool = True,
    ) -> None:
        self._frame = frame
        self._at = start
        self._end = end
        self.position = position
        self.last_epoch = -1
        """The leader epoch of the last batch that was handed out or passed over."""
        self._check_crcs = check_crcs
        self._pending: RecordBlock | None = None
        # The latest first, so that the next one is taken off the end.
        self._coming = (
            None if aborted is None else sorted(aborted, key=lambda one: one[1], reverse=True)
        )
        self._aborted_now: set[int] = set()

    def next_block(self) -> RecordBlock | None:
        """The next batch that has records for this reader, until it is `advance`d behind; None if
        there is none left. Its first records may stand before `position`."""
        while self._pending is None:
            header = self._next_header()
            if header is None:
                return None
            start = self._at
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            if next_offset <= self.position:
                # The broker answers with whole batches, whose first may be read already; only the
                # end of a transaction must not be missed.
                self._is_passed_over(header, start)
            elif self._is_passed_over(header, start):
                self.position = next_offset
            else:
                self._pending = self._unpacked(header, start)
            # Not before: one that cannot be unpacked stays where it is, and is told again.
            self._at = start + header[BATCH_LENGTH] + LENGTH_END
            self.last_epoch = header[LEADER_EPOCH]
        return self._pending

    def advance(self, position: int) -> None:
        """All before `position` has been handed out."""
        self.position = position
        if self._pending is not None and position >= self._pending.next_offset():
            self._pending = None

    def _next_header(self) -> Header | None:
        left = self._end - self._at
        if left < HEADER_SIZE:
            return None
        header = read_header(self._frame, self._at)
        size = header[BATCH_LENGTH] + LENGTH_END
        if header[MAGIC] != MAGIC_V2:
            raise self._damaged(f"magic {header[MAGIC]} cannot be read")
        if size < HEADER_SIZE or header[RECORD_COUNT] < 0 or header[LAST_OFFSET_DELTA] < 0:
            raise self._damaged("the header of a batch is wrong")
        if size > left:
            return None
        if self._check_crcs:
            covered = memoryview(self._frame)[self._at + ATTRIBUTES_POSITION : self._at + size]
            if crc32c(covered) != header[CRC]:
                raise self._damaged("the checksum of a batch is wrong")
        return header

    def _is_passed_over(self, header: Header, start: int) -> bool:
        attributes = header[ATTRIBUTES]
        if self._coming is not None and header[PRODUCER_ID] >= 0:
            last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            while self._coming and self._coming[-1][1] <= last_offset:
                self._aborted_now.add(self._coming.pop()[0])
            if attributes & CONTROL_MASK:
                if self._is_abort(header, start):
                    self._aborted_now.discard(header[PRODUCER_ID])
            elif attributes & TRANSACTIONAL_MASK and header[PRODUCER_ID] in self._aborted_now:
                return True
        return bool(attributes & CONTROL_MASK) or header[RECORD_COUNT] == 0

    def _is_abort(self, header: Header, start: int) -> bool:
        if header[RECORD_COUNT] == 0:
            return False  # the cleaner has been here
        block = self._unpacked(header, start)
        try:
            _, at = read_varint(block.data, block.start)
            _, at = read_varlong(block.data, at + 1)
            _, at = read_varint(block.data, at)
            length, at = read_varint(block.data, at)
            if length < _CONTROL_KEY.size or at + length > block.end:
                raise self._damaged("the key of a control record is wrong")
            return bool(_CONTROL_KEY.unpack_from(block.data, at)[1] == _ABORT)
        except IndexError as cause:
            raise self._damaged("a control record is cut off") from cause

    def _unpacked(self, header: Header, start: int) -> RecordBlock:
        end = start + header[BATCH_LENGTH] + LENGTH_END
        codec = header[ATTRIBUTES] & CODEC_MASK
        if codec == NONE:
            return RecordBlock(header, self._frame, start + HEADER_SIZE, end)
        packed = memoryview(self._frame)[start + HEADER_SIZE : end]
        unpacked = decompress(codec, packed, CLIENT_DECOMPRESSED_BYTES_MAX)
        return RecordBlock(header, unpacked, 0, len(unpacked))

    def _damaged(self, what: str) -> ProtocolError:
        return ProtocolError(CORRUPT_MESSAGE, f"{what}, at or behind offset {self.position}")
