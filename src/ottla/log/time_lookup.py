"""Offsets by time: the time index finds the segment and the place, the records tell the rest.

In two steps. The first looks into the indexes, which are in memory, on the loop. The second reads
the log from there on, may have to wait for the disk and to unpack batches, and touches nothing that
the loop changes: it runs in the pool. Answers are (timestamp, offset, leader epoch), as ListOffsets
wants them.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from ottla.base.limits import DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX
from ottla.base.ports import File
from ottla.log.batch_scan import batch_size, next_offset, read_batch, scan_headers
from ottla.log.segment import Segment
from ottla.log.storage_errors import storing
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


# The first segment that is late enough may have nothing but deleted records to show for it; the
# next one that is late enough is above the log start.
PLACES_MAX = 2


class Place(NamedTuple):
    """Where to read: a part of a segment, whose file stays open with it."""

    file: File
    position: int
    end: int


class TimeSearch:
    """The second step."""

    __slots__ = ("_directory", "_first_offset", "_places", "_timestamp", "_upper_bound")

    def __init__(
        self,
        directory: str,
        places: list[Place],
        timestamp: int,
        first_offset: int,
        upper_bound: int,
    ) -> None:
        self._directory = directory
        self._places = places
        self._timestamp = timestamp
        self._first_offset = first_offset
        self._upper_bound = upper_bound

    def run(self) -> Found | None:
        with storing(self._directory, "read"):
            for place in self._places:
                found = _first_in(place, self._timestamp, self._first_offset)
                if found is not None:
                    return found if found[1] < self._upper_bound else None
        return None


class TimeLookup:
    """The first step, in a log as it is now."""

    __slots__ = ("_directory", "_first_offset", "_segments")

    def __init__(self, directory: str, segments: list[Segment], first_offset: int) -> None:
        self._directory = directory
        self._segments = segments
        self._first_offset = first_offset

    def first_since(self, timestamp: int, upper_bound: int) -> TimeSearch:
        """For the first record below `upper_bound` that is not older than `timestamp`."""
        places: list[Place] = []
        with storing(self._directory, "read"):
            for segment in self._held():
                if segment.base_offset >= upper_bound or len(places) == PLACES_MAX:
                    break
                segment.load_times(segment.open_file())
                if segment.max_timestamp >= timestamp:
                    segment.time_index.open()
                    start = segment.time_index.offset_before(timestamp)
                    places.append(_place(segment, max(start, self._first_offset)))
        return TimeSearch(self._directory, places, timestamp, self._first_offset, upper_bound)

    def latest(self, upper_bound: int) -> TimeSearch:
        """For the first record with the largest timestamp of all; none if that is not below
        `upper_bound`.

        As with Kafka it may be below the log start, for as long as its segment is there, and of
        records without a time it is the first one: none would say that the log is empty."""
        latest: Segment | None = None
        with storing(self._directory, "read"):
            for segment in self._segments:
                segment.load_times(segment.open_file())
                if latest is None or segment.max_timestamp > latest.max_timestamp:
                    latest = segment
            if latest is None:
                return TimeSearch(self._directory, [], 0, 0, upper_bound)
            place = _place(latest, latest.max_timestamp_offset)
        return TimeSearch(self._directory, [place], latest.max_timestamp, 0, upper_bound)

    def _held(self) -> list[Segment]:
        """Those that are not below the log start as a whole."""
        behind = bisect_right(
            self._segments, self._first_offset, key=lambda segment: segment.base_offset
        )
        return self._segments[max(behind - 1, 0) :]


def _place(segment: Segment, start_offset: int) -> Place:
    """From the last entry of the index on that is not behind `start_offset`."""
    file = segment.open_file()
    return Place(file, segment.offset_index.position_for_offset(start_offset), segment.size)


def _first_in(place: Place, timestamp: int, first_offset: int) -> Found | None:
    """The first record as late as `timestamp`."""
    for at, header in scan_headers(place.file, place.position, place.end, 0):
        if header[MAX_TIMESTAMP] >= timestamp and next_offset(header) > first_offset:
            found = _first_record(place.file, at, header, timestamp, first_offset)
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
