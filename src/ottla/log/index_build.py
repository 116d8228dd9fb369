"""Makes the sparse entries of both indexes from the batches, by the rule that appends follow too.

So an index that is lost or doubted can be made anew and comes out equal (L4).
"""

from __future__ import annotations

from ottla.base.ids import NO_TIMESTAMP
from ottla.base.ports import File, Files
from ottla.log import offset_index, time_index
from ottla.log.batch_scan import next_offset, scan_headers
from ottla.records.batch_header import MAX_TIMESTAMP, Header


class IndexBuilder:
    """Takes the batches of a segment in order, from its start."""

    __slots__ = (
        "_interval",
        "base_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "times",
    )

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self._interval = interval_bytes
        self.offsets: list[tuple[int, int]] = []
        self.times: list[tuple[int, int]] = []
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset

    def add(self, position: int, header: Header) -> None:
        last_offset = next_offset(header) - 1
        if header[MAX_TIMESTAMP] > self.max_timestamp:
            self.max_timestamp = header[MAX_TIMESTAMP]
            self.max_timestamp_offset = last_offset
        if position - (self.offsets[-1][1] if self.offsets else 0) > self._interval:
            self.offsets.append((last_offset, position))
            self._add_time()

    def finish(self) -> tuple[bytes, bytes]:
        """The contents of `.index` and `.timeindex`, with the last entry that a close writes."""
        self._add_time()
        return (
            offset_index.build(self.offsets, self.base_offset),
            time_index.build(self.times, self.base_offset),
        )

    def _add_time(self) -> None:
        if self.max_timestamp > (self.times[-1][0] if self.times else NO_TIMESTAMP):
            self.times.append((self.max_timestamp, self.max_timestamp_offset))


def build_from_log(file: File, size: int, base_offset: int, interval_bytes: int) -> IndexBuilder:
    """Reads the headers only: for a segment whose batches are trusted."""
    builder = IndexBuilder(base_offset, interval_bytes)
    for position, header in scan_headers(file, 0, size, base_offset):
        builder.add(position, header)
    return builder


def replace_content(files: Files, path: str, content: bytes) -> bool:
    """Makes `content` what is in the file, space behind it cut; whether something was written.

    Without a sync: the index of a segment that holds the recovery point is never trusted after a
    crash, and a flush syncs the others before the recovery point passes them.
    """
    if files.exists(path):
        file = files.open(path)
        if file.read_at(0, len(content)) != content:
            file.truncate(0)
            file.append([content])
        elif file.size() == len(content):
            file.close()
            return False
        file.truncate(len(content))
    else:
        file = files.open(path, create=True)
        file.append([content])
    file.close()
    return True
