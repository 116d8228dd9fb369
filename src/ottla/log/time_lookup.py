"""Offsets by time: the time index finds the segment and the place, the records tell the rest.

Reads only. Answers are (timestamp, offset, leader epoch), as ListOffsets wants them.
"""

from __future__ import annotations

from ottla.base.limits import DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX
from ottla.base.ports import File
from ottla.log.batch_scan import batch_size, next_offset, read_batch, scan_headers
from ottla.log.segment import Segment
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    LEADER_EPOCH,
    LOG_APPEND_TIME_MASK,
    MAX_TIMESTAMP,
    Header,
)
from ottla.records.batch_view import records_of

Found = tuple[int, int, int]


def find_by_time(
    segments: list[Segment], timestamp: int, first_offset: int, upper_bound: int
) -> Found | None:
    """The first record in [first_offset, upper_bound) that is not older than `timestamp`."""
    for segment in segments:
        if segment.base_offset >= upper_bound:
            return None
        segment.load_times(segment.open_file())
        if segment.max_timestamp < timestamp:
            continue
        segment.time_index.open()
        start = max(segment.time_index.offset_before(timestamp), first_offset)
        found = _first_in(segment, start, timestamp, first_offset)
        if found is not None:
            return found if found[1] < upper_bound else None
    return None


def find_latest(segments: list[Segment], first_offset: int, upper_bound: int) -> Found | None:
    """The first record with the largest timestamp of all; None if it is not in the range."""
    latest: Segment | None = None
    for segment in segments:
        if segment.base_offset >= upper_bound:
            break
        segment.load_times(segment.open_file())
        largest_yet = -1 if latest is None else latest.max_timestamp
        if segment.max_timestamp > largest_yet:
            latest = segment
    if latest is None:
        return None
    found = _first_in(latest, latest.max_timestamp_offset, latest.max_timestamp, first_offset)
    return found if found is not None and found[1] < upper_bound else None


def _first_in(
    segment: Segment, start_offset: int, timestamp: int, first_offset: int
) -> Found | None:
    """From the batch that holds `start_offset` on, the first record as late as `timestamp`."""
    file = segment.open_file()
    position = segment.position_of(start_offset)
    for at, header in scan_headers(file, position, segment.size, 0):
        if header[MAX_TIMESTAMP] >= timestamp and next_offset(header) > first_offset:
            found = _first_record(file, at, header, timestamp, first_offset)
            if found is not None:
                return found
    return None


def _first_record(
    file: File, position: int, header: Header, timestamp: int, first_offset: int
) -> Found | None:
    epoch = header[LEADER_EPOCH]
    if header[ATTRIBUTES] & LOG_APPEND_TIME_MASK:
        # All records of the batch have the batch's time.
        return header[MAX_TIMESTAMP], max(header[BASE_OFFSET], first_offset), epoch
    limit = max(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX * batch_size(header))
    for record in records_of(read_batch(file, position, header), limit):
        if record.timestamp >= timestamp and record.offset >= first_offset:
            return record.timestamp, record.offset, epoch
    return None
