"""Cleans a log: of each key the record with the latest offset stays, in the pool, bit by bit.

First the dirty segments are read into a map from key to latest offset, as far as it has room; then
all segments up to there are written anew without what is older, group by group. Between two chunks
it can be stopped, and whoever runs it decides when it goes on; that is how it is throttled. After
each group it hands over the files and waits until they are in place (`compaction_swap`).

It reads and writes files and touches nothing that the loop works with: a plan, made on the loop,
says what was there. It knows no clock, no threads, and no more of the log than the plan.

Why any interruption is harmless for what a key's latest value is: a group is swapped as a whole,
lower ones first. So when a tombstone goes, all older values of its key have gone before it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np

from ottla.base.ports import File, Files
from ottla.log import file_names, txn_index
from ottla.log.batch_scan import next_offset, scan_headers
from ottla.log.compaction_batches import BatchRun, read_runs
from ottla.log.compaction_columns import columns_of
from ottla.log.compaction_filter import BatchFilter, Newest
from ottla.log.compaction_plan import (
    CleanedGroup,
    CleanerLimits,
    CleaningCancelled,
    CleaningPlan,
    CleaningResult,
    SourceSegment,
    group_sources,
)
from ottla.log.compaction_swap import Cleaning
from ottla.log.compaction_transactions import TransactionWalk
from ottla.log.compaction_writer import SegmentWriter
from ottla.log.key_map import Hashes, KeyHasher, KeyMap, Numbers
from ottla.log.storage_errors import storing
from ottla.log.txn_index import AbortedTransaction
from ottla.records.batch_header import ATTRIBUTES, CONTROL_MASK, PRODUCER_ID, RECORD_COUNT

ROOM_TO_GO_ON = 1024
"""With less room than this the map counts as full: to fill it key by key takes too long."""


class LogCleaning:
    """One cleaning. `proceed` is called until it has its result, never from two threads at once."""

    def __init__(
        self, files: Files, plan: CleaningPlan, limits: CleanerLimits, cleaning: Cleaning
    ) -> None:
        self._files = files
        self._plan = plan
        self._limits = limits
        self._cleaning = cleaning
        self._hasher = KeyHasher(limits.secret)
        keys_max = plan.end_offset - plan.first_dirty
        self._keys = KeyMap(limits.map_bytes, limits.load_factor, keys_max)
        self._mapped_to = plan.first_dirty - 1
        self._aborted: list[AbortedTransaction] = []
        self.result = CleaningResult(plan.first_dirty, 0, 0, 0, 0, 0, 0)
        self._steps = self._run()

    def proceed(self, budget_bytes: int) -> int | CleanedGroup | CleaningResult:
        """Works on about `budget_bytes`. Answers with what was read and written if there is more to
        do, with a group that waits for its swap, or with the result."""
        worked = 0
        with storing(self._plan.directory, "clean"):
            for step in self._steps:
                if isinstance(step, CleanedGroup):
                    return step
                worked += step
                if worked >= budget_bytes:
                    return worked
        return self.result

    def close(self) -> None:
        """Gives up; what was written and not handed over is removed."""
        self._steps.close()

    def _run(self) -> Generator[int | CleanedGroup, None, None]:
        self._remove_remains()
        self._read_aborted()
        yield from self._fill_map()
        end_offset = self._mapped_to + 1
        self.result.end_offset = end_offset
        self.result.keys = self._keys.used
        sources = [one for one in self._plan.sources if one.base_offset < end_offset]
        yield from self._find_producers(sources)
        newest = Newest(self._hasher, self._keys, self._mapped_to)
        walk = TransactionWalk(self._aborted)
        batch_filter = BatchFilter(
            newest,
            walk,
            self._plan.producers,
            now_ms=self._plan.now_ms,
            delete_retention_ms=self._plan.config.delete_retention_ms,
        )
        groups = group_sources(self._files, sources, self._plan.config)
        for group in groups:
            yield from self._clean_group(group, batch_filter, walk, is_last=group is groups[-1])

    def _remove_remains(self) -> None:
        """Of a cleaning that was given up: a `.cleaned` file would make a later swap void."""
        directory = self._plan.directory
        for name in self._files.list_dir(directory):
            if name.endswith(file_names.CLEANED):
                self._files.remove(f"{directory}/{name}")

    def _read_aborted(self) -> None:
        for path in self._plan.txn_index_paths:
            self._aborted += txn_index.parse(self._files.read(path))

    def _find_producers(self, sources: list[SourceSegment]) -> Iterator[int]:
        """Looks from the newest segment back for the last batches that are not known."""
        producers = self._plan.producers
        for source in reversed(sources):
            if not producers.unknown:
                return
            file = self._files.open(source.path(file_names.LOG))
            for _, header in scan_headers(file, 0, source.size, source.base_offset):
                if header[PRODUCER_ID] in producers.unknown:
                    if not header[ATTRIBUTES] & CONTROL_MASK:
                        producers.last_offsets[header[PRODUCER_ID]] = next_offset(header) - 1
            file.close()
            producers.unknown.difference_update(producers.last_offsets)
            yield 0

    # -- reading ------------------------------------------------------------------------------

    def _runs(self, source: SourceSegment, file: File) -> Iterator[BatchRun]:
        path = source.path(file_names.LOG)
        for run in read_runs(file, path, source.size, source.base_offset, self._limits.chunk_bytes):
            if self._cleaning.cancelled:
                raise CleaningCancelled(path)
            yield run

    def _fill_map(self) -> Iterator[int]:
        walk = TransactionWalk(self._aborted)
        for source in self._plan.sources:
            if source.end_offset <= self._plan.first_dirty:
                continue
            file = self._files.open(source.path(file_names.LOG))
            for run in self._runs(source, file):
                if not self._map_run(run, walk):
                    return
                self._mapped_to = next_offset(run.headers[-1]) - 1
                self.result.bytes_mapped += run.size()
                yield run.size()
            file.close()
            # There may be nothing between the last batch and the next segment.
            self._mapped_to = source.end_offset - 1

    def _map_run(self, run: BatchRun, walk: TransactionWalk) -> bool:
        """Notes the keys of a run; False if there is no more room."""
        numbers = []
        for number, header in enumerate(run.headers):
            if header[ATTRIBUTES] & CONTROL_MASK:
                start = run.starts[number]
                walk.on_control_batch(header, memoryview(run.chunk)[start : run.end(number)])
            elif not walk.on_batch(header) and header[RECORD_COUNT] > 0:
                if next_offset(header) > self._plan.first_dirty:
                    numbers.append(number)
        for columns in columns_of(run, numbers):
            rows = np.flatnonzero(
                (columns.key_lengths >= 0) & (columns.offsets >= self._plan.first_dirty)
            )
            hashes = self._hasher.hash_keys(
                columns.packed, columns.key_starts[rows], columns.key_lengths[rows]
            )
            if not self._map_keys(hashes, columns.offsets[rows]):
                return False
        return True

    def _map_keys(self, hashes: Hashes, offsets: Numbers) -> bool:
        keys = self._keys
        needed = min(ROOM_TO_GO_ON, keys.capacity // 16 + 1)
        while len(offsets):
            room = keys.room()
            # The first key always finds room: a cleaning gets on, however small its map is.
            if room < needed and keys.used:
                return False
            keys.put(hashes[:room], offsets[:room])
            self._mapped_to = int(offsets[:room][-1])
            hashes, offsets = hashes[room:], offsets[room:]
        return True

    # -- writing ------------------------------------------------------------------------------

    def _clean_group(
        self,
        group: list[SourceSegment],
        batch_filter: BatchFilter,
        walk: TransactionWalk,
        *,
        is_last: bool,
    ) -> Iterator[int | CleanedGroup]:
        writer = SegmentWriter(
            self._files,
            self._plan.directory,
            group[0].base_offset,
            self._plan.config.index_interval_bytes,
            may_stay=len(group) == 1,
        )
        cleaned = None
        try:
            run = None
            for source in group:
                file = self._files.open(source.path(file_names.LOG))
                for run in self._runs(source, file):
                    yield self._clean_run(run, file, batch_filter, writer)
                file.close()
            if run is not None and is_last:
                writer.keep_end(run)
            writer.aborted += walk.still_needed
            walk.still_needed.clear()
            cleaned = writer.finish(group[-1].end_offset if len(group) > 1 else None)
        finally:
            if cleaned is None:
                writer.discard()
        if cleaned is not None:
            yield CleanedGroup(group, cleaned)

    def _clean_run(
        self, run: BatchRun, file: File, batch_filter: BatchFilter, writer: SegmentWriter
    ) -> int:
        kept = batch_filter.filter_run(run)
        before = writer.written_bytes
        writer.write(run, kept, file)
        written = writer.written_bytes - before
        result = self.result
        result.bytes_read += run.size()
        result.bytes_written += written
        result.records_before += sum(header[RECORD_COUNT] for header in run.headers)
        result.records_after += sum(header[RECORD_COUNT] for header, _ in kept)
        return run.size() + written
