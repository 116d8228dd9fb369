"""One segment: a `.log` file of whole batches, its indexes, and where things are in it.

Knows bytes, offsets and positions; nothing of producers, epochs or durability. The file only grows
at its end, or is cut there. Files are opened on first use and may be given up at any time between
two calls (see `file_cache`); what is kept in memory is enough to open them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ProtocolError
from ottla.base.ids import NO_TIMESTAMP
from ottla.base.ports import Buffer, File, Files
from ottla.log import file_names
from ottla.log.batch_scan import batch_size, next_offset, scan_headers
from ottla.log.file_cache import FileCache
from ottla.log.index_build import build_from_log, replace_content
from ottla.log.log_config import LogConfig
from ottla.log.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from ottla.log.time_index import ENTRY_BYTES, TimeIndex
from ottla.log.txn_index import TxnIndex
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.batch_header import (
    BASE_OFFSET,
    HEADER_SIZE,
    MAX_TIMESTAMP,
    Header,
    read_header,
)

UNKNOWN = -2
"""Instead of a timestamp that was not looked up yet."""

POSITIONS_KEPT = 16
PAGE_BYTES = 4096


class RottenLength(ProtocolError):
    """The length of a stored batch can't be true, in `offset` or on the way there."""

    def __init__(self, size: int, offset: int) -> None:
        super().__init__(CORRUPT_MESSAGE, f"a batch says that it is {size} bytes long")
        self.offset = offset


class LogSlice:
    """Bytes to be served: whole batches of one segment. Hold it for as long as they are sent."""

    __slots__ = ("file", "is_cut", "position", "size")

    def __init__(self, file: File, position: int, size: int, is_cut: bool = False) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.is_cut = is_cut
        """There was more than the reader has room for."""

    def bytes_for(self, room: int) -> int:
        """How much it counts for a reader with so much room that waits for some bytes at least. The
        batch that no longer fits counts as far as it would have: Kafka hands that part out."""
        return max(self.size, room) if self.is_cut else self.size


class Segment:
    __slots__ = (
        "_bytes_since_entry",
        "_cache",
        "_directory",
        "_files",
        "_index_interval_bytes",
        "_last_batch_offset",
        "_last_batch_position",
        "_positions",
        "_reserved_bytes",
        "base_offset",
        "created_ms",
        "cuts",
        "file",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "size",
        "time_index",
        "txn_index",
        "used",
    )

    def __init__(
        self,
        files: Files,
        cache: FileCache,
        directory: str,
        base_offset: int,
        *,
        size: int,
        index_interval_bytes: int,
        index_bytes_max: int,
        created_ms: int,
        reserved_bytes: int = 0,
    ) -> None:
        self._files = files
        self._cache = cache
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self._reserved_bytes = reserved_bytes
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.cuts = 0
        """How often it was truncated: who reads beside the loop may have read what is gone."""
        self.file: File | None = None
        self.used = False
        self.offset_index = OffsetIndex(
            files, self.path(file_names.OFFSET_INDEX), base_offset, index_bytes_max
        )
        self.time_index = TimeIndex(
            files, self.path(file_names.TIME_INDEX), base_offset, index_bytes_max
        )
        self.txn_index = TxnIndex(files, self.path(file_names.TXN_INDEX))
        self.first_timestamp = UNKNOWN
        self.max_timestamp = UNKNOWN
        self.max_timestamp_offset = base_offset
        self._bytes_since_entry = 0
        self._last_batch_offset = -1
        self._last_batch_position = 0
        self._positions: dict[int, int] = {}

    # -- files --------------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        return f"{self._directory}/{self.base_offset:020d}{suffix}"

    def create(self) -> None:
        """Makes its files, empty. The directory is not synced here."""
        self.file = self._files.open(self.path(file_names.LOG), create=True)
        if self._reserved_bytes:
            self.file.reserve(self._reserved_bytes)
        self.offset_index.start_empty()
        self.offset_index.trim()
        self.time_index.start_empty()
        self.time_index.trim()
        self.txn_index.start_empty()
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self._cache.opened(self)

    def open_file(self) -> File:
        """The log file, with the offset index ready for lookups."""
        file = self.file
        if file is None:
            file = self._files.open(self.path(file_names.LOG))
            self.file = file
            self._open_index(file)
            self._cache.opened(self)
        self.used = True
        return file

    def aborted_transactions(self) -> TxnIndex:
        """Those whose marker is here. The cache sees to it that not all of them stay in memory."""
        index = self.txn_index
        if index.exists() and not index.is_in_memory():
            self._cache.opened(self)
        self.used = True
        return index

    def open_log_only(self) -> File:
        """The log file alone, for recovery, which does not trust the indexes."""
        if self.file is None:
            self.file = self._files.open(self.path(file_names.LOG))
            self._cache.opened(self)
        return self.file

    def give_up_files(self) -> None:
        """Lets go of what is open; the cache has forgotten about it already."""
        self.file = None
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.give_up()

    def use_cache(self, cache: FileCache) -> None:
        """From now on another cache keeps count; nothing is open at this moment."""
        self.close()
        self._cache = cache

    def close(self) -> None:
        is_open = self.file is not None or self.offset_index.mapped.capacity
        if is_open or self.txn_index.is_in_memory():
            self._cache.forget(self)
        self.give_up_files()

    def _open_index(self, file: File) -> None:
        index = self.offset_index
        seen_before = index.entries >= 0
        index.open()
        if seen_before or index.is_sane(self.size):
            return
        # A wrong entry would send a reader into the middle of a batch.
        index.close()
        self.rebuild_indexes(file)

    def rebuild_indexes(self, file: File) -> None:
        builder = build_from_log(file, self.size, self.base_offset, self._index_interval_bytes)
        offsets, times = builder.finish()
        self.offset_index.close()
        self.time_index.close()
        replace_content(self._files, self.offset_index.mapped.path, offsets)
        replace_content(self._files, self.time_index.mapped.path, times)
        self.indexes_replaced()
        self.offset_index.open()

    def indexes_replaced(self) -> None:
        """Somebody has written the index files: look at them again on next use."""
        self.offset_index.close()
        self.offset_index.entries = -1
        self.time_index.close()
        self.time_index.entries = -1
        self.max_timestamp = UNKNOWN

    # -- append -------------------------------------------------------------------------------

    def prepare_append(self) -> None:
        """Learns what an append has to know; once, before the first one."""
        file = self.open_file()
        self.load_times(file)
        self._bytes_since_entry = self.size - self.offset_index.last_position

    def load_times(self, file: File) -> None:
        if self.max_timestamp == UNKNOWN:
            self.time_index.open()
            # A sealed index has at least the largest timestamp; an empty one was lost.
            lost = self.size > 0 and self.time_index.entries == 0
            if lost or not self.time_index.is_sane():
                self.rebuild_indexes(file)
                self.time_index.open()
            self.max_timestamp = self.time_index.last_timestamp
            self.max_timestamp_offset = self.time_index.last_offset
        if self.first_timestamp == UNKNOWN:
            head = file.read_at(0, HEADER_SIZE)
            whole = len(head) == HEADER_SIZE
            self.first_timestamp = read_header(head)[MAX_TIMESTAMP] if whole else NO_TIMESTAMP

    def must_roll(
        self, size: int, last_offset: int, timestamp: int, now_ms: int, segment_ms: int
    ) -> bool:
        """Whether a batch has to go to a new segment for any reason but the segment's size."""
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        offsets = self.offset_index
        times = self.time_index
        if offsets.entries >= offsets.entries_max or times.entries >= times.entries_max:
            return True
        if self.size == 0:
            return False
        # `age_ms`, spelled out for the sake of every append.
        first = self.first_timestamp
        return (timestamp - first if first >= 0 else now_ms - self.created_ms) > segment_ms

    def has_room_for(self, batches: int) -> bool:
        """Whether as many batches may be written at once, though each may want an entry in both
        indexes. The first of a segment may not: it decides how old the segment is."""
        offsets, times = self.offset_index, self.time_index
        return (
            self.size > 0
            and offsets.entries + batches <= offsets.entries_max
            and times.entries + batches <= times.entries_max
        )

    def age_ms(self, timestamp: int, now_ms: int) -> int:
        """By the records' own time if they have one (KIP-32), else by the clock."""
        if self.first_timestamp >= 0:
            return timestamp - self.first_timestamp
        return now_ms - self.created_ms

    def append(
        self,
        buffers: list[Buffer],
        size: int,
        base_offset: int,
        last_offset: int,
        timestamp: int,
    ) -> None:
        """Writes one batch, in one call, and an index entry where one is due."""
        file = self.file
        if file is None:
            file = self.open_file()
        file.append(buffers)
        self.used = True
        self.note_batch(self.size, size, base_offset, last_offset, timestamp)

    def append_all(self, buffers: Sequence[Buffer]) -> None:
        """Writes several batches at once; `note_batch` is to be called for each."""
        self.open_file().append(buffers)

    def note_batch(
        self, position: int, size: int, base_offset: int, last_offset: int, timestamp: int
    ) -> None:
        self.size = position + size
        self._last_batch_offset = base_offset
        self._last_batch_position = position
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = timestamp
        since = self._bytes_since_entry
        if since > self._index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            since = 0
        self._bytes_since_entry = since + size

    def seal(self) -> None:
        """No more appends: the largest timestamp is noted and the indexes are cut to size."""
        if self._reserved_bytes:
            self.open_file().truncate(self.size)  # the rest of its room is given back
        self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.trim()
        self.time_index.trim()
        self.offset_index.open()

    # -- read ---------------------------------------------------------------------------------

    def position_of(self, offset: int) -> int:
        """Where the batch stands that holds `offset`, or the first behind it; the size if none."""
        if offset == self._last_batch_offset:
            return self._last_batch_position
        known = self._positions.get(offset)
        if known is not None:
            return known
        if offset <= self.base_offset:
            return 0
        file = self.open_file()
        position = self.offset_index.position_for_offset(offset)
        end = self.size
        chunk = b""
        chunk_start = position
        while position + HEADER_SIZE <= end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk = _rest_of_page(file, position)
                chunk_start, at = position, 0
            header = read_header(chunk, at)
            reached = next_offset(header)
            if reached > offset:
                self._remember(header[BASE_OFFSET], position)
                return position
            position += _size_within(header, end - position, offset)
            if reached == offset and position + HEADER_SIZE <= end:
                # It begins right behind, whatever stands there. To look would make the loop wait
                # for the disk: a reader that goes on over old data has not come to this part yet.
                self._remember(offset, position)
                return position
        return end

    def check_length(self, position: int, offset: int) -> None:
        """Whether the batch there can be whole, of which `offset` is wanted. A reader of one that
        can not would wait for its rest for ever, and ask for it again and again. What is only on
        the disk is let pass: when it is asked for again, it is in memory."""
        if position == self._last_batch_position and self._last_batch_offset >= 0:
            return  # this process has written it
        head = self.open_file().read_if_cached(position, HEADER_SIZE)
        if head is not None:
            if len(head) < HEADER_SIZE:
                raise RottenLength(len(head), offset)
            _size_within(read_header(head), self.size - position, offset)

    def slice(self, position: int, end: int, max_bytes: int, at_least_one: bool) -> LogSlice | None:
        """Whole batches from `position` on, at most `max_bytes` unless the first is larger."""
        file = self.file
        if file is None:
            file = self.open_file()
        self.used = True
        size = end - position
        is_cut = size > max_bytes
        if is_cut:
            limit = position + max_bytes
            cut = self.offset_index.position_at_most(limit)
            if cut <= position:
                cut = self._border_before(file, position, limit, at_least_one)
                if cut == position:
                    return None
            # To look at the batch behind the cut, and so spare a sequential reader its next search,
            # would read from a disk that the reader has not come to yet, on the loop.
            size = cut - position
        return LogSlice(file, position, size, is_cut)

    def _border_before(self, file: File, position: int, limit: int, at_least_one: bool) -> int:
        """The last batch border up to `limit`; the end of the first batch if that is farther."""
        first = read_header(file.read_at(position, HEADER_SIZE))
        border = position + _size_within(first, self.size - position, first[BASE_OFFSET])
        if border > limit:
            return border if at_least_one else position
        # The next index entry is past the limit, so there are few batches to look at.
        for start, header in scan_headers(file, border, self.size, 0):
            if start + batch_size(header) > limit:
                return start
        return self.size

    def _remember(self, offset: int, position: int) -> None:
        positions = self._positions
        if len(positions) >= POSITIONS_KEPT:
            del positions[next(iter(positions))]
        positions[offset] = position

    # -- ends ---------------------------------------------------------------------------------

    def end_offset(self) -> int | None:
        """The offset behind the last batch, from the last index entry on; None if the file does
        not end with a whole batch."""
        if self.size == 0:
            return self.base_offset
        file = self.open_file()
        position = self.offset_index.last_position
        end = self.base_offset
        for start, header in scan_headers(file, position, self.size, self.base_offset):
            end = next_offset(header)
            position = start + batch_size(header)
        return end if position == self.size else None

    def truncate(self, offset: int) -> int:
        """Cuts every batch that holds `offset` or lies behind it; returns where it ends now."""
        position = self.position_of(offset)
        file = self.open_file()
        self.load_times(file)
        if position < self.size:
            offset = min(offset, read_header(file.read_at(position, HEADER_SIZE))[BASE_OFFSET])
        self.cuts += 1
        file.truncate(position)
        file.sync()
        self.size = position
        self._positions.clear()
        self._last_batch_offset = -1
        self.offset_index.truncate(position)
        self.time_index.open()
        self.time_index.truncate(offset)
        self.txn_index.truncate(offset)
        self._bytes_since_entry = position - self.offset_index.last_position
        self._find_largest_timestamp(file)
        return offset

    def _find_largest_timestamp(self, file: File) -> None:
        times = self.time_index
        self.max_timestamp, self.max_timestamp_offset = times.last_timestamp, times.last_offset
        start = self.offset_index.position_for_offset(times.last_offset)
        for _, header in scan_headers(file, start, self.size, 0):
            if header[MAX_TIMESTAMP] > self.max_timestamp:
                self.max_timestamp = header[MAX_TIMESTAMP]
                self.max_timestamp_offset = next_offset(header) - 1
        if self.size == 0:
            self.first_timestamp = NO_TIMESTAMP

    def largest_timestamp(self) -> int:
        """For retention: by the records' time, or by the file's if they have none."""
        if self.max_timestamp == UNKNOWN:
            self.load_times(self.open_file())
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._files.modified_ms(self.path(file_names.LOG))

    def mark_deleted(self) -> list[str]:
        """Renames its files, so that a restart does not take them for a segment."""
        self.close()
        renamed = []
        for suffix in file_names.SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if self._files.exists(path):
                self._files.rename(path, path + file_names.DELETED)
                renamed.append(path + file_names.DELETED)
        return renamed


def _size_within(header: Header, bytes_left: int, sought: int) -> int:
    """No checksum covers the length of a batch: one that has rotted would lead nowhere, or round in
    a circle for ever."""
    size = batch_size(header)
    if not HEADER_SIZE <= size <= bytes_left:
        raise RottenLength(size, sought)
    return size


def _rest_of_page(file: File, position: int) -> bytes:
    """A header, and those behind it that cost nothing more. The next page may be on the disk only,
    and the loop would wait for it."""
    return file.read_at(position, max(HEADER_SIZE, PAGE_BYTES - position % PAGE_BYTES))


def new_segment(
    files: Files,
    cache: FileCache,
    directory: str,
    base_offset: int,
    config: LogConfig,
    *,
    size: int = 0,
    created_ms: int,
) -> Segment:
    return Segment(
        files,
        cache,
        directory,
        base_offset,
        size=size,
        index_interval_bytes=config.index_interval_bytes,
        # Less can be set, as in Kafka, where such a partition does not come up.
        index_bytes_max=max(config.segment_index_bytes, ENTRY_BYTES),
        created_ms=created_ms,
        reserved_bytes=config.segment_bytes if config.preallocate else 0,
    )
