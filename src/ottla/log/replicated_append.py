"""Appends what a leader sent: whole batches, offsets and epochs as they are, in as few writes as
there are segments.

Every batch is checked before it is written (L1, L2): its place in the order of offsets, its length,
its CRC. Leaders cut their answers by bytes, so one that is cut off at the end is left out; anything
else that is not whole is refused, after what stands before it has been stored.

No CRC covers the base offset. Where it does not follow on the last one, either the log was cleaned
once, or the offset has rotted at the leader; which of them, the caller has to find out.
"""

from __future__ import annotations

from typing import Protocol

from ottla.base.errors import ProtocolError
from ottla.base.ports import Buffer
from ottla.log.appended import Appended
from ottla.log.batch_scan import batch_size, crc_holds, is_sound
from ottla.log.log_config import LogConfig
from ottla.log.segment import Segment
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.batch_header import (
    BASE_OFFSET,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    Header,
    read_header,
)

Run = list[tuple[Header, memoryview]]


class OffsetsMissing(ProtocolError):
    """A batch is whole, but does not follow on what is there."""


class ReplicatedLog(Protocol):
    """What the log lets this module do."""

    config: LogConfig
    log_end_offset: int
    log_start_offset: int

    def segment_for_replicated(self, header: Header, size: int, now_ms: int) -> Segment: ...
    def on_replicated(self, segment: Segment, run: Run, size: int, now_ms: int) -> None:
        """The run is written: everything that follows from its batches."""
        ...


def append_replicated(
    log: ReplicatedLog, batches: Buffer, now_ms: int, *, gaps_allowed: bool = True
) -> Appended | None:
    """None if there was no whole batch."""
    view = memoryview(batches)
    first_offset, timestamp = -1, -1
    position = 0
    while True:
        run, size, segment, refusal = _next_run(log, view, position, now_ms, gaps_allowed)
        if segment is not None:
            segment.append_all([view[position : position + size]])
            log.on_replicated(segment, run, size, now_ms)
            if first_offset < 0:
                first_offset = run[0][0][BASE_OFFSET]
            timestamp = max(timestamp, *(header[MAX_TIMESTAMP] for header, _ in run), -1)
            position += size
        if refusal is not None:
            raise refusal
        if segment is None:
            break
    if first_offset < 0:
        return None
    return Appended(first_offset, log.log_end_offset - 1, log.log_start_offset, False, timestamp)


def _next_run(
    log: ReplicatedLog, view: memoryview, start: int, now_ms: int, gaps_allowed: bool
) -> tuple[Run, int, Segment | None, ProtocolError | None]:
    """The batches from `start` on that go into one segment, their size and that segment, and why
    the one behind them is refused, if it is."""
    run: Run = []
    segment: Segment | None = None
    position, end = start, len(view)
    expected = log.log_end_offset
    while end - position >= HEADER_SIZE:
        header = read_header(view, position)
        size = batch_size(header)
        batch = view[position : position + size]
        if size > len(batch) and header[BASE_OFFSET] >= expected:
            break
        if not is_sound(header, expected, len(batch)) or not crc_holds(batch, header):
            reason = (
                f"the leader sent a broken batch where {expected} is next; it is not stored, "
                "and it is asked for again until it is whole"
            )
            return run, position - start, segment, ProtocolError(CORRUPT_MESSAGE, reason)
        if header[BASE_OFFSET] != expected and not gaps_allowed:
            reason = f"after {expected} the leader sent {header[BASE_OFFSET]}; it is asked again"
            return run, position - start, segment, OffsetsMissing(CORRUPT_MESSAGE, reason)
        if segment is None:
            segment = log.segment_for_replicated(header, size, now_ms)
        elif not _fits(log.config, segment, run, header, position - start + size, now_ms):
            break
        run.append((header, batch))
        position += size
        expected = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    return run, position - start, segment, None


def _fits(
    config: LogConfig, segment: Segment, run: Run, header: Header, run_size: int, now_ms: int
) -> bool:
    """Whether one more batch may be written with the run. The first of a segment is written alone:
    it decides how old the segment is."""
    last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
    return (
        segment.has_room_for(len(run) + 1)
        and segment.size + run_size <= config.segment_bytes
        and not segment.must_roll(
            run_size, last_offset, header[MAX_TIMESTAMP], now_ms, config.roll_ms()
        )
    )
