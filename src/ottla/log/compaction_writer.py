"""Writes a cleaned segment: `.log.cleaned` and its indexes, synced before anybody hears of it.

A segment of which everything stays is not written at all: nothing is, up to the first batch that
changes; then what came before is copied. So the old part of a log, where little changes, is read
by each cleaning and not written.
"""

from __future__ import annotations

from contextlib import suppress

from ottla.base.ports import File, Files
from ottla.log import file_names, txn_index
from ottla.log.batch_scan import next_offset
from ottla.log.compaction_batches import BatchRun, CannotClean
from ottla.log.compaction_filter import Kept, without_records
from ottla.log.compaction_swap import CleanedFiles
from ottla.log.index_build import IndexBuilder
from ottla.log.txn_index import AbortedTransaction

BUFFERS_PER_WRITE_MAX = 512
"""A single call takes 1,024 at most."""

COPY_BYTES = 512 * 1024

SEGMENT_BYTES_MAX = 2**31 - 1
"""Positions in an index have 31 bits."""


class SegmentWriter:
    __slots__ = (
        "_builder",
        "_cleaned",
        "_file",
        "_files",
        "_next_offset",
        "aborted",
        "written_bytes",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        index_interval_bytes: int,
        *,
        may_stay: bool,
    ) -> None:
        """`may_stay`: it is made from one segment only, which stays if nothing in it changes."""
        self._files = files
        self._next_offset = base_offset
        self._cleaned = CleanedFiles(directory, base_offset, 0, [])
        self._builder = IndexBuilder(base_offset, index_interval_bytes)
        self._file: File | None = None
        self.aborted: list[AbortedTransaction] = []
        self.written_bytes = 0
        if not may_stay:
            self._file = self._create(file_names.LOG)

    def write(self, run: BatchRun, kept: list[Kept], source: File) -> None:
        """What is kept of the batches of a run, which is from `source`."""
        if self._file is None and not _is_all(run, kept):
            self._file = self._create(file_names.LOG)
            self._copy_beginning(source, self._file)
        self._add(kept)

    def keep_end(self, run: BatchRun) -> None:
        """The segment ends with the last batch of `run`; if nothing of that was kept, with its
        header."""
        last = len(run.headers) - 1
        if self._next_offset != next_offset(run.headers[last]):
            self._add([without_records(run, last)])

    def _add(self, kept: list[Kept]) -> None:
        size = self._cleaned.size
        if size + sum(len(batch) for _, batch in kept) > SEGMENT_BYTES_MAX:
            raise CannotClean(f"a segment of {self._cleaned.directory} would be too large")
        for header, batch in kept:
            self._builder.add(size, header)
            size += len(batch)
            self._next_offset = next_offset(header)
        if self._file is not None:
            for start in range(0, len(kept), BUFFERS_PER_WRITE_MAX):
                part = kept[start : start + BUFFERS_PER_WRITE_MAX]
                self._file.append([batch for _, batch in part])
            self.written_bytes += size - self._cleaned.size
        self._cleaned.size = size

    def finish(self, extent: int | None) -> CleanedFiles | None:
        """On the disk when it returns; None if the segment is as it was. `extent`: where the last
        of its sources ends, if there are several."""
        log = self._file
        if log is None:
            return None
        log.sync()
        offsets, times = self._builder.finish()
        self._write_file(file_names.OFFSET_INDEX, offsets)
        self._write_file(file_names.TIME_INDEX, times)
        if self.aborted:
            self._write_file(file_names.TXN_INDEX, txn_index.build(self.aborted))
        if extent is not None:
            self._write_file(file_names.EXTENT, b"%d\n" % extent)
        # All of them are there before the first is renamed: see `compaction_swap`.
        self._files.sync_dir(self._cleaned.directory)
        log.close()
        self._file = None
        return self._cleaned

    def discard(self) -> None:
        """Removes what was written, as far as that is possible: a restart does the rest."""
        for suffix in self._cleaned.suffixes:
            with suppress(OSError):
                self._files.remove(self._cleaned.path(suffix, file_names.CLEANED))
        self._cleaned.suffixes.clear()

    def _create(self, suffix: str) -> File:
        file = self._files.open(self._cleaned.path(suffix, file_names.CLEANED), create=True)
        self._cleaned.suffixes.append(suffix)
        file.truncate(0)
        return file

    def _write_file(self, suffix: str, content: bytes) -> None:
        file = self._create(suffix)
        file.append([content])
        file.sync()
        file.close()

    def _copy_beginning(self, source: File, target: File) -> None:
        """What has been kept so far, which is the source byte for byte."""
        position = 0
        while position < self._cleaned.size:
            part = source.read_at(position, min(COPY_BYTES, self._cleaned.size - position))
            if not part:
                raise CannotClean(f"a segment of {self._cleaned.directory} has become shorter")
            target.append([part])
            position += len(part)
        self.written_bytes += position


def _is_all(run: BatchRun, kept: list[Kept]) -> bool:
    """Whether every batch of the run is kept as it is."""
    return len(kept) == len(run.headers) and all(
        header is original for (header, _), original in zip(kept, run.headers, strict=True)
    )
