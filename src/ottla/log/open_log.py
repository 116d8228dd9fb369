"""Opens the log of a partition from its directory, or makes a new one.

After a clean stop it looks at names, sizes, the end of the newest segment and one snapshot, and
trusts the rest; otherwise `recovery` goes over what was not flushed. It may run in a pool thread:
it shares nothing, and leaves no file open. Idempotent: to open a log and to open it again comes to
the same (F16).
"""

from __future__ import annotations

import uuid
from bisect import bisect_right

from ottla.base.ports import Clock, Files
from ottla.log import epoch_cache, file_names, leftovers
from ottla.log.batch_scan import next_offset, scan_headers
from ottla.log.durability import Durability
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_cache import FileCache
from ottla.log.load_report import LoadReport
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.partition_metadata import write_partition_metadata
from ottla.log.producer_restore import load_snapshot, replay_segments
from ottla.log.producer_state import ProducerStates
from ottla.log.recovery import Recovery
from ottla.log.segment import Segment, new_segment
from ottla.log.segment_list import SegmentList
from ottla.log.storage_errors import storing
from ottla.records.batch_header import BASE_OFFSET, LEADER_EPOCH

__all__ = ["LoadReport", "open_log"]


def open_log(
    files: Files,
    directory: str,
    topic: str,
    partition: int,
    *,
    config: LogConfig,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    clock: Clock,
    producer_id_expiration_ms: int,
    topic_id: uuid.UUID | None = None,
    file_cache: FileCache | None = None,
    power_lost: bool = True,
) -> tuple[PartitionLog, LoadReport]:
    """`clean`: the log dir has its clean-shutdown marker, and `recovery_point` is from the
    checkpoint of that stop; a log that does not end there is checked all the same.
    `power_lost` False (see `LogDir`): every write that was made is there, and pages that read as
    zeros are corruption. `topic_id` goes into the `partition.metadata` of a new directory.
    """
    with storing(directory, "open"):
        loading = _Loading(files, directory, config, clock, clean)
        loading.topic_id = topic_id
        loading.producers = ProducerStates(producer_id_expiration_ms, log_start_offset)
        loading.find_segments(log_start_offset)
        loading.load_epochs(recovery_point)
        loading.load(recovery_point, log_start_offset, power_lost)
        log = loading.finish(topic, partition, file_cache or FileCache())
    return log, loading.report


class _Loading:
    """The steps of one load, in order, and what they have found so far."""

    def __init__(
        self, files: Files, directory: str, config: LogConfig, clock: Clock, clean: bool
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.clock = clock
        self.clean = clean
        self.now_ms = clock.wall_ms()
        self.report = LoadReport(directory, clean)
        # Of its own: the shared one belongs to the loop's thread.
        self.cache = FileCache()
        self.segments: list[Segment] = []
        self.snapshots: list[int] = []
        self.epochs = EpochCache()
        self.epochs_on_disk: list[tuple[int, int]] | None = None
        self.producers = ProducerStates(0)
        self.made_directory = False
        self.recovered = False
        self.topic_id: uuid.UUID | None = None
        self.has_epochs_file = False
        self.changed_directory = False
        self.snapshots_due: dict[int, bytes] = {}
        self.unsynced_from = 0
        """Segments before this one in the list are flushed, indexes and all."""
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.recovery_point = 0

    # -- what is there ------------------------------------------------------------------------

    def find_segments(self, log_start_offset: int) -> None:
        try:
            names = self.files.list_dir(self.directory)
        except FileNotFoundError:
            self.files.make_dir(self.directory)
            self.made_directory = True
            names = []
            if self.topic_id is not None:
                write_partition_metadata(self.files, self.directory, self.topic_id)
        names = leftovers.tidy(self.files, self.directory, names)
        self.has_epochs_file = file_names.LEADER_EPOCHS in names
        present = set(self._without_deleted(names, log_start_offset))
        for name in sorted(present):
            offset = file_names.offset_of(name)
            if offset is None:
                continue
            suffix = file_names.suffix_of(name)
            if suffix == file_names.LOG:
                self._add_segment(offset, name, present)
            elif suffix == file_names.SNAPSHOT:
                self.snapshots.append(offset)
            elif suffix in file_names.SEGMENT_SUFFIXES:
                self._remove_orphan(offset, name, present)
        if not self.segments:
            self._make_first_segment(log_start_offset)

    def _without_deleted(self, names: list[str], log_start_offset: int) -> list[str]:
        """Segments wholly below the log start were deleted; a power cut has brought them back, and
        maybe not all of them. They go before anybody looks into them."""
        bases = sorted(
            offset
            for name in names
            if file_names.suffix_of(name) == file_names.LOG
            and (offset := file_names.offset_of(name)) is not None
        )
        gone = set(bases[: max(0, bisect_right(bases, log_start_offset) - 1)])
        for offset in sorted(gone):
            self.report.deleted_paths += self._segment(offset, 0).mark_deleted()
            self.changed_directory = True
        doomed = {f"{offset:020d}{one}" for offset in gone for one in file_names.SEGMENT_SUFFIXES}
        return [name for name in names if name not in doomed]

    def _add_segment(self, offset: int, name: str, present: set[str]) -> None:
        size = self.files.size(f"{self.directory}/{name}")
        segment = self._segment(offset, size)
        self.segments.append(segment)
        stem = name.removesuffix(file_names.LOG)
        if stem + file_names.TXN_INDEX not in present:
            segment.txn_index.start_empty()
        if stem + file_names.OFFSET_INDEX in present and stem + file_names.TIME_INDEX in present:
            return
        segment.rebuild_indexes(segment.open_log_only())
        self.report.indexes_rebuilt += 1

    def _remove_orphan(self, offset: int, name: str, present: set[str]) -> None:
        if f"{offset:020d}{file_names.LOG}" not in present:
            self.files.remove(f"{self.directory}/{name}")
            self.report.notes.append(f"removed {name}, which has no log beside it")

    def _make_first_segment(self, offset: int) -> None:
        segment = self._segment(offset, 0)
        segment.create()
        self.segments.append(segment)
        self.changed_directory = True

    def _segment(self, offset: int, size: int) -> Segment:
        return new_segment(
            self.files,
            self.cache,
            self.directory,
            offset,
            self.config,
            size=size,
            created_ms=self.now_ms,
        )

    def load_epochs(self, recovery_point: int) -> None:
        if self.has_epochs_file:
            path = f"{self.directory}/{file_names.LEADER_EPOCHS}"
            self.epochs_on_disk = epoch_cache.decode(self.files.read(path))
        if self.epochs_on_disk is not None:
            self.epochs = EpochCache(self.epochs_on_disk)
            return
        # Not there, or not readable: the batches know it too.
        for segment in self.segments:
            if segment.size and (self.clean or segment.base_offset < recovery_point):
                file = segment.open_log_only()
                for _, header in scan_headers(file, 0, segment.size, segment.base_offset):
                    self.epochs.assign(header[LEADER_EPOCH], header[BASE_OFFSET])

    # -- where it ends ------------------------------------------------------------------------

    def load(self, recovery_point: int, log_start_offset: int, power_lost: bool) -> None:
        end = self.segments[-1].end_offset() if self.clean else None
        if end is None or (end != recovery_point and not self._is_empty_at(end)):
            if self.clean:
                self.report.notes.append(
                    f"the clean stop was at offset {recovery_point}, but the log ends at {end}"
                )
            self._recover(recovery_point, log_start_offset, power_lost)
        else:
            self.log_end_offset = end
            self.recovery_point = end
            self.unsynced_from = len(self.segments)
            self._restore_producers(end, log_start_offset)
        if self.report.corrupt is not None:
            self.log_start_offset = min(log_start_offset, self.log_end_offset)
            return
        if self.log_end_offset < log_start_offset:
            self._start_anew(log_start_offset)
        self.log_start_offset = max(log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        self._cover_start()
        replay_segments(self.segments, self.producers, self.log_end_offset, self.now_ms)
        self._remove_stray_snapshots()

    def _cover_start(self) -> None:
        """The epochs of records that were deleted are written with the next flush, the log start
        with its checkpoint. With a crash in between the records are back; the batches know their
        epochs."""
        known = self.epochs.entries()
        start, until = self.log_start_offset, known[0][1] if known else self.log_end_offset
        if start >= until:
            return
        found = EpochCache()
        for segment in SegmentList(self.segments).from_offset(start):
            if segment.base_offset >= until:
                break
            file = segment.open_log_only()
            for _, header in scan_headers(file, 0, segment.size, segment.base_offset):
                if start < next_offset(header) and header[BASE_OFFSET] < until:
                    found.assign(header[LEADER_EPOCH], max(header[BASE_OFFSET], start))
        self.epochs = EpochCache([*found.entries(), *known])

    def _is_empty_at(self, end: int) -> bool:
        """A log that was made but never written to has no entry in the checkpoint."""
        return len(self.segments) == 1 and self.segments[0].base_offset == end

    def _recover(self, recovery_point: int, log_start_offset: int, power_lost: bool) -> None:
        self.recovered = True
        bases = [segment.base_offset for segment in self.segments]
        # A segment that ends just at the recovery point may have been flushed while it was active,
        # without its indexes. Without a power cut they are there all the same.
        self.unsynced_from = max(0, bisect_right(bases, recovery_point - 1) - 1)
        doubtful = self.unsynced_from
        if not power_lost:
            doubtful = max(0, bisect_right(bases, recovery_point) - 1)
        first = self.segments[doubtful]
        self._restore_producers(first.base_offset, log_start_offset)
        recovery = Recovery(
            self.files,
            self.directory,
            recovery_point=recovery_point,
            power_lost=power_lost,
            gaps_allowed="compact" in self.config.cleanup_policy,
            index_interval_bytes=self.config.index_interval_bytes,
            epochs=self.epochs,
            producers=self.producers,
            report=self.report,
            now_ms=self.now_ms,
        )
        recovery.run(self.segments[doubtful:])
        self.log_end_offset = recovery.next_offset
        if self.report.corrupt is not None:
            self.recovery_point = min(recovery_point, self.log_end_offset)
            return
        self.segments = self.segments[:doubtful] + recovery.kept
        # Behind this one a snapshot may be from before a truncation, of a log that is no more.
        self._forget_snapshots_above(first.base_offset)
        self.snapshots_due = recovery.snapshots_due
        if self.log_end_offset < recovery_point and log_start_offset < recovery_point:
            self.report.flushed_lost = recovery_point - self.log_end_offset
        self.recovery_point = min(recovery_point, self.log_end_offset)

    def _restore_producers(self, until: int, log_start_offset: int) -> None:
        first_offset = max(log_start_offset, self.segments[0].base_offset)
        load_snapshot(
            self.files,
            self.directory,
            self.snapshots,
            self.producers,
            log_start_offset=first_offset,
            at_most=until,
            now_ms=self.now_ms,
        )
        replay_segments(self.segments, self.producers, until, self.now_ms)

    def _start_anew(self, log_start_offset: int) -> None:
        """All that is left lies below the log start: it was deleted before it was lost."""
        for segment in reversed(self.segments):
            self.report.deleted_paths += segment.mark_deleted()
        self.segments = []
        self._forget_snapshots_above(-1)
        self._make_first_segment(log_start_offset)
        self.files.sync_dir(self.directory)
        self.epochs.clear()
        self.producers.clear(log_start_offset)
        self.log_end_offset = self.recovery_point = log_start_offset
        self.unsynced_from = 0

    def _forget_snapshots_above(self, offset: int) -> None:
        for snapshot in [at for at in self.snapshots if at > offset]:
            self._remove_snapshot(snapshot)

    def _remove_stray_snapshots(self) -> None:
        """Kept: one for the base of each segment, and the newest, which a clean stop has left."""
        self._forget_snapshots_above(self.log_end_offset)
        bases = {segment.base_offset for segment in self.segments}
        for snapshot in self.snapshots[:-1]:
            if snapshot not in bases:
                self._remove_snapshot(snapshot)

    def _remove_snapshot(self, offset: int) -> None:
        path = file_names.segment_path(self.directory, offset, file_names.SNAPSHOT)
        self.files.remove(path)
        self.changed_directory = True
        self.snapshots = [at for at in self.snapshots if at != offset]

    # -- hand over ----------------------------------------------------------------------------

    def finish(self, topic: str, partition: int, cache: FileCache) -> PartitionLog:
        for segment in self.segments:
            segment.use_cache(cache)
        durability = Durability(self.files, self.directory, self.epochs, self.snapshots)
        if self.epochs.entries() == (self.epochs_on_disk or []):
            durability.epochs_are_saved()
        if self.recovered or self.made_directory:
            # Who was killed may have made files, or the directory itself, without a sync.
            durability.directory_made()
        if self.recovered or self.changed_directory:
            durability.directory_changed()
        durability.snapshots_due(self.snapshots_due)
        for segment in self.segments[self.unsynced_from : -1]:
            durability.segment_sealed(segment)
        self.report.segments = len(self.segments)
        self.report.log_start_offset = self.log_start_offset
        self.report.log_end_offset = self.log_end_offset
        log = PartitionLog(
            self.files,
            cache,
            self.clock,
            self.directory,
            topic,
            partition,
            config=self.config,
            segments=self.segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            recovery_point=self.recovery_point,
            leader_epochs=self.epochs,
            producers=self.producers,
            durability=durability,
        )
        log.corrupt = self.report.corrupt
        return log
