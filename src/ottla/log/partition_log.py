"""The log of one partition: append, read, truncate, retain, flush.

Owns the list of segments, the offsets at both ends, the recovery point, and the producer state and
leader epochs that follow from the batches. Knows no clock but the one it is given, no socket, and
no high watermark: who may read or delete how far is told by the caller. Not thread-safe; only a
`FlushJob` may run beside it.

What is promised about the disk: a batch is in the page cache when `append` returns. Everything
below `recovery_point` is on the disk, with the indexes of the segments that end below it, the
epochs that start below it and the snapshots up to it; a flush makes it so before it moves the
point, and nothing else moves it up. The caller writes the recovery-point checkpoint *after*
`flush_done`, and *again right after a truncation, before the next append*, since a truncation
moves the point down.

Invariants: L1 offsets have no gaps but those a leader sent; L3 epochs never decrease and the cache
equals what the batches say; L5 log start <= log end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.errors import ProtocolError, StorageError
from ottla.base.ports import Buffer, Clock, Files
from ottla.log import retention
from ottla.log.appended import PREFIX, Appended
from ottla.log.batch_scan import next_offset
from ottla.log.compaction_swap import CleanedFiles, Cleaning, swap_files
from ottla.log.durability import Durability
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_cache import FileCache
from ottla.log.flush import FlushJob
from ottla.log.log_config import LogConfig
from ottla.log.markers import read_marker
from ottla.log.produced_run import append_run
from ottla.log.producer_restore import load_snapshot, recall_batches, replay_segments
from ottla.log.producer_state import (
    Batch,
    Marker,
    ProducerStates,
)
from ottla.log.replicated_append import Run, append_replicated
from ottla.log.retention import DeletedSegment, LogExtent
from ottla.log.segment import LogSlice, Segment, new_segment
from ottla.log.segment_list import Aborted, SegmentList
from ottla.log.storage_errors import storing
from ottla.log.time_lookup import TimeLookup
from ottla.protocol.error_codes import (
    KAFKA_STORAGE_ERROR,
    OFFSET_OUT_OF_RANGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RECORD_LIST_TOO_LARGE,
)
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL_MASK,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
    Header,
)

__all__ = ["Appended", "DeletedSegment", "FlushJob", "LogSlice", "PartitionLog"]


class PartitionLog:
    __slots__ = (
        "_active",
        "_cache",
        "_clock",
        "_durability",
        "_files",
        "_prepared",
        "_segments",
        "cleaned_to",
        "cleaning",
        "config",
        "corrupt",
        "directory",
        "first_unstable_offset",
        "is_moving",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "on_roll",
        "partition",
        "producers",
        "recovery_point",
        "size",
        "topic",
        "unflushed_messages",
    )

    def __init__(
        self,
        files: Files,
        cache: FileCache,
        clock: Clock,
        directory: str,
        topic: str,
        partition: int,
        *,
        config: LogConfig,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        leader_epochs: EpochCache,
        producers: ProducerStates,
        durability: Durability,
    ) -> None:
        """Use `open_log`. `segments` are all there are, at least one; the last is active."""
        self._files = files
        self._cache = cache
        self._clock = clock
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.corrupt: str | None = None
        """Why this log must not be served; see `LoadReport`."""
        self.cleaning: Cleaning | None = None
        self.cleaned_to = -1
        """Compacted up to here; the cleaner's to set, and in its checkpoint."""
        self.is_moving = False
        """On its way to another directory: it is not cleaned meanwhile. For the caller to set."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.unflushed_messages = log_end_offset - recovery_point
        self.last_flush_ms = clock.monotonic_ms()
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.first_unstable_offset: int | None = producers.first_unstable_offset()
        self.on_roll: Callable[[PartitionLog], None] | None = None
        """Called after a roll: the time to run `flush_job(sealed_only=True)`."""
        self._durability = durability
        self._segments = SegmentList(segments)
        self._active = segments[-1]
        self._prepared = False
        self.size = self._segments.total_size()

    # -- append -------------------------------------------------------------------------------

    def append(
        self,
        batch: Buffer,
        header: Header,
        leader_epoch: int,
        *,
        now_ms: int,
        from_client: bool = True,
    ) -> Appended:
        """Stores one checked batch at the end. `from_client=False` is for coordinators, whose
        batches have no sequences."""
        marker: Marker | None = None
        producer = None
        if header[PRODUCER_ID] >= 0:
            if header[ATTRIBUTES] & CONTROL_MASK:
                marker = self._checked_marker(batch, header)
            else:
                producer = self.producers.expecting(header)
                seen = None if producer is not None else self._seen_before(header, from_client)
                if seen is not None:
                    last = seen[1]
                    return Appended(last - seen[2], last, self.log_start_offset, True, seen[3])
        size = len(batch)
        base_offset = self.log_end_offset
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        timestamp = header[MAX_TIMESTAMP]
        try:
            segment = self._active
            config = self.config
            if (
                not self._prepared
                or segment.size + size > config.segment_bytes
                or config.segment_jitter_ms
                or segment.must_roll(size, last_offset, timestamp, now_ms, config.segment_ms)
            ):
                segment = self._segment_to_write(size, last_offset, timestamp, now_ms)
            if type(batch) is bytes or (type(batch) is memoryview and batch.readonly):
                prefix = PREFIX.pack(base_offset, header[BATCH_LENGTH], leader_epoch)
                buffers: list[Buffer] = [prefix, memoryview(batch)[16:]]
            else:
                PREFIX.pack_into(batch, 0, base_offset, header[BATCH_LENGTH], leader_epoch)
                buffers = [batch]
            segment.append(buffers, size, base_offset, last_offset, timestamp)
        except OSError as cause:
            raise StorageError(self.directory, "append") from cause
        self.size += size
        self.log_end_offset = last_offset + 1
        self.unflushed_messages = last_offset + 1 - self.recovery_point
        if leader_epoch != self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base_offset)
        if producer is not None and not header[ATTRIBUTES] & TRANSACTIONAL_MASK:
            producer.on_next_batch(header[LAST_OFFSET_DELTA], last_offset, timestamp, now_ms)
        elif header[PRODUCER_ID] >= 0:
            self._producer_wrote(header, base_offset, marker, now_ms)
        return Appended(base_offset, last_offset, self.log_start_offset, False, timestamp)

    def append_run(
        self, batches: Sequence[memoryview], headers: Sequence[Header], epoch: int, now_ms: int
    ) -> list[Appended]:
        """As many of a client's checked batches as can be stored in one write: perhaps none."""
        if not self._prepared:
            return []
        with storing(self.directory, "append"):
            return append_run(self, self._active, batches, headers, epoch, now_ms)

    def append_replicated(self, batches: Buffer, gaps_allowed: bool = True) -> Appended | None:
        """Stores what a leader sent; None if there is no whole batch in it."""
        with storing(self.directory, "append"):
            now_ms = self._clock.wall_ms()
            return append_replicated(self, batches, now_ms, gaps_allowed=gaps_allowed)

    def segment_for_replicated(self, header: Header, size: int, now_ms: int) -> Segment:
        """A batch larger than a segment may be gets one of its own: its leader had room for it."""
        if not self._prepared:
            self._prepare()
        if self._active.size and size > self.config.segment_bytes:
            return self._roll(now_ms)
        size = min(size, self.config.segment_bytes)
        return self._segment_to_write(size, next_offset(header) - 1, header[MAX_TIMESTAMP], now_ms)

    def on_replicated(self, segment: Segment, run: Run, size: int, now_ms: int) -> None:
        self.size += size
        epochs = self.leader_epochs
        for header, batch in run:
            base_offset = header[BASE_OFFSET]
            last_offset = base_offset + header[LAST_OFFSET_DELTA]
            segment.note_batch(
                segment.size, len(batch), base_offset, last_offset, header[MAX_TIMESTAMP]
            )
            self.log_end_offset = last_offset + 1
            if header[LEADER_EPOCH] != epochs.latest:
                epochs.assign(header[LEADER_EPOCH], base_offset)
            if header[PRODUCER_ID] >= 0:
                marker = read_marker(batch) if header[ATTRIBUTES] & CONTROL_MASK else None
                self._producer_wrote(header, base_offset, marker, now_ms)
        self.unflushed_messages = self.log_end_offset - self.recovery_point

    def _segment_to_write(
        self, size: int, last_offset: int, timestamp: int, now_ms: int
    ) -> Segment:
        segment = self._active
        if not self._prepared:
            self._prepare()
        config = self.config
        full = segment.size + size > config.segment_bytes
        wait_ms = config.roll_ms() - (self._jitter_ms() if config.segment_jitter_ms else 0)
        if full or segment.must_roll(size, last_offset, timestamp, now_ms, wait_ms):
            if size > config.segment_bytes:
                raise ProtocolError(
                    RECORD_LIST_TOO_LARGE,
                    f"{size} bytes do not fit a segment of {config.segment_bytes}",
                )
            segment = self._roll(now_ms)
        return segment

    def _jitter_ms(self) -> int:
        return self.config.jitter_ms(f"{self.topic}-{self.partition}-{self._active.base_offset}")

    def _prepare(self) -> None:
        if self.corrupt is not None:
            raise ProtocolError(KAFKA_STORAGE_ERROR, self.corrupt)
        self._active.prepare_append()
        self._prepared = True

    # -- producers ----------------------------------------------------------------------------

    def _seen_before(self, header: Header, from_client: bool) -> Batch | None:
        try:
            return self.producers.check(header, from_client)
        except ProtocolError as refused:
            if refused.code != OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
            with storing(self.directory, "read"):
                if not recall_batches(self.producers.entries[header[PRODUCER_ID]], self._segments):
                    raise
        return self.producers.check(header, from_client)

    def _checked_marker(self, batch: Buffer, header: Header) -> Marker | None:
        marker = read_marker(batch)
        if marker is not None:
            self.producers.check_marker(header, marker)
        return marker

    def _producer_wrote(
        self, header: Header, base_offset: int, marker: Marker | None, now_ms: int
    ) -> None:
        if not header[ATTRIBUTES] & CONTROL_MASK:
            self.producers.update(header, base_offset, now_ms)
            if header[ATTRIBUTES] & TRANSACTIONAL_MASK:
                self.first_unstable_offset = self.producers.first_unstable_offset()
        elif marker is not None:
            completed = self.producers.update_marker(header, base_offset, marker, now_ms)
            if completed is not None and completed.aborted:
                with storing(self.directory, "append"):
                    self._active.txn_index.append(completed.as_entry())
            self.first_unstable_offset = self.producers.first_unstable_offset()

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions decided below it become stable. Costs nothing where there are none."""
        if self.first_unstable_offset is not None:
            self.producers.on_high_watermark(high_watermark)
            self.first_unstable_offset = self.producers.first_unstable_offset()

    def expire_producers(self, now_ms: int) -> int:
        """Forgets producers that have been silent for too long; returns how many."""
        return self.producers.expire(now_ms)

    # -- read ---------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
    ) -> LogSlice | None:
        """Whole batches from the one that holds `offset` on, all below `upper_bound`."""
        log_end = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end:
            raise ProtocolError(
                OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in [{self.log_start_offset}, {log_end}]",
            )
        if self.corrupt is not None:
            raise ProtocolError(KAFKA_STORAGE_ERROR, self.corrupt)
        upper_bound = min(upper_bound, log_end)
        if offset >= upper_bound:
            return None
        try:
            return self._segments.read(offset, max_bytes, upper_bound, log_end, at_least_one)
        except OSError as cause:
            raise StorageError(self.directory, "read") from cause

    def times(self) -> TimeLookup:
        """Lookups by time in the log as it is now."""
        return TimeLookup(self.directory, self._segments.items, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch up to `epoch`; (-1, -1) if there is none."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    def aborted_transactions(self, first: int, end: int, read: LogSlice | None = None) -> Aborted:
        """(producer id, first offset) of those with records in the range, or in what was read."""
        with storing(self.directory, "read"):
            return self._segments.aborted_transactions(first, end, read)

    # -- segments -----------------------------------------------------------------------------

    def maybe_roll(self, now_ms: int) -> bool:
        """Rolls a segment whose time has come although nothing is appended."""
        with storing(self.directory, "roll"):
            if self._active.size == 0:
                return False
            if not self._prepared:
                self._prepare()
            waited_ms = self._active.age_ms(now_ms, now_ms)
            if waited_ms <= self.config.roll_ms() - self._jitter_ms():
                return False
            self._roll(now_ms)
            return True

    def _roll(self, now_ms: int) -> Segment:
        sealed = self._active
        base_offset = self.log_end_offset
        if sealed.size == 0 and sealed.base_offset == base_offset:
            return sealed
        sealed.seal()
        self._durability.segment_sealed(sealed)
        self._durability.snapshot_due(base_offset, self.producers)
        segment = self._add_segment(base_offset, now_ms)
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def _add_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = self._new_segment(base_offset, now_ms)
        segment.create()
        segment.prepare_append()
        self._segments.add(segment)
        self._active = segment
        self._prepared = True
        self._durability.directory_changed()
        return segment

    def _new_segment(self, base_offset: int, now_ms: int, size: int = 0) -> Segment:
        return new_segment(
            self._files,
            self._cache,
            self.directory,
            base_offset,
            self.config,
            size=size,
            created_ms=now_ms,
        )

    def advance_log_start(self, offset: int) -> None:
        """Nothing below `offset` may be read any more. The caller writes the checkpoint."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ProtocolError(
                OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in [{self.log_start_offset}, {self.log_end_offset}]",
            )
        # The recovery point stays where it is, unlike Kafka's: what lies between was not flushed,
        # and a point above it would make a lost page look like a flushed one that went bad.
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)

    @property
    def first_segment_offset(self) -> int:
        return self._segments.bases[0]

    def apply_retention(self, now_ms: int, upper_bound: int) -> list[tuple[Segment, str]]:
        """Moves the log start past what has expired, and returns that, with the settings that say
        so; `delete_below` takes it out. Nothing as long as the log is being cleaned, which works
        on the same segments."""
        if self.cleaning is not None:
            return []
        extent = LogExtent(
            self.log_start_offset, self.log_end_offset, self.size, upper_bound, now_ms
        )
        with storing(self.directory, "delete segments"):
            doomed = retention.expired(self._segments.items, self.config, extent)
            if len(doomed) == len(self._segments.items):
                if not self._prepared:
                    self._prepare()
                self._roll(now_ms)
            kept_from = self._segments.bases[len(doomed)]
            self.advance_log_start(max(self.log_start_offset, kept_from))
            return doomed

    def delete_below(self, durable_start: int) -> list[DeletedSegment]:
        """Takes out the segments that end below the log start; the files are renamed and the
        caller's to remove. `durable_start`: what the checkpoint on the disk says. Without, a
        power cut before the directory is synced would show them again."""
        if self.cleaning is not None:
            return []
        start = min(durable_start, self.log_start_offset)
        with storing(self.directory, "delete segments"):
            deleted = retention.delete_below(start, self._segments, self._durability)
        self.size -= sum(segment.size for segment in deleted)
        return deleted

    # -- compaction ---------------------------------------------------------------------------

    def all_segments(self) -> list[Segment]:
        """In order; the last one is active."""
        return list(self._segments.items)

    def put_in_place(self, replaced: list[Segment], cleaned: CleanedFiles) -> list[str]:
        """A committed cleaned segment for those it was made from; returns the paths of their files,
        renamed, which are the caller's to remove."""
        with storing(self.directory, "put a cleaned segment in place"):
            segment = self._new_segment(cleaned.base_offset, 0, cleaned.size)
            paths = swap_files(self._files, replaced, cleaned, self._durability)
            self._segments.replace(replaced, segment)
            self.size = self._segments.total_size()
            return paths

    # -- truncate -----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Cuts everything at `offset` and above, and with it what it held of producers, epochs and
        transactions. On the disk when it returns; the caller writes the recovery point next."""
        if offset >= self.log_end_offset:
            return
        if offset < self._segments.bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        with storing(self.directory, "truncate"):
            self._stop_cleaning()
            self._segments.remove_above(self._files, self.directory, offset)
            self._active = self._segments.items[-1]
            self._prepared = False
            self._prepare()
            end = self._active.truncate(offset)
            self._ends_at(end)
            self.leader_epochs.truncate_from_end(end)
            now_ms = self._clock.wall_ms()
            load_snapshot(
                self._files,
                self.directory,
                self._durability.snapshots,
                self.producers,
                # Not the log start, which may not be on the disk yet: with it a crash brings back
                # transactions that began between the two.
                log_start_offset=self.first_segment_offset,
                at_most=end,
                now_ms=now_ms,
            )
            replay_segments(self._segments.items, self.producers, end, now_ms)
            self.first_unstable_offset = self.producers.first_unstable_offset()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Throws the whole log away and goes on at `offset`, with nothing known of the past."""
        with storing(self.directory, "truncate"):
            self._stop_cleaning()
            self._segments.remove_above(self._files, self.directory, -1)
            self._ends_at(offset)
            self.log_start_offset = offset
            self.recovery_point = offset
            self.unflushed_messages = 0
            self.leader_epochs.clear()
            self.producers.clear(offset)
            self.first_unstable_offset = None
            self._add_segment(offset, self._clock.wall_ms())
            self._files.sync_dir(self.directory)

    def _ends_at(self, offset: int) -> None:
        self.size = self._segments.total_size()
        self.log_end_offset = offset
        self.cleaned_to = min(self.cleaned_to, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.unflushed_messages = offset - self.recovery_point
        self._durability.truncated(offset, self._segments.items)

    def _stop_cleaning(self) -> None:
        if self.cleaning is not None:
            self.cleaning.cancel()

    # -- flush and close ----------------------------------------------------------------------

    def flush_job(self, *, sealed_only: bool = False) -> FlushJob | None:
        """What to run in the pool so that all appended by now is on the disk; None if it is.

        One job of a log at a time: the next is made after `flush_done`. `sealed_only` leaves the
        active segment alone, for the flush after a roll.
        """
        offset = self._active.base_offset if sealed_only else self.log_end_offset
        if not self._durability.is_needed(is_ahead=offset > self.recovery_point):
            return None
        return self._durability.make_job(offset, None if sealed_only else self._active)

    def flush_done(self, job: FlushJob) -> None:
        """The job has run without an error: the recovery point moves. Checkpoint it next."""
        with storing(self.directory, "flush"):
            if self._durability.job_done(job) and job.offset > self.recovery_point:
                self.recovery_point = job.offset
        self.unflushed_messages = self.log_end_offset - self.recovery_point
        self.last_flush_ms = self._clock.monotonic_ms()

    def snapshot_producers(self) -> None:
        """Writes the producer state at the log end, so that a restart need not replay."""
        with storing(self.directory, "write producer snapshot"):
            if self.log_end_offset > self.log_start_offset:
                self._durability.save_snapshot(self.log_end_offset, self.producers)

    def seal_active(self) -> None:
        """Its indexes are as after a clean stop; more may be appended all the same."""
        with storing(self.directory, "close"):
            if not self._prepared:
                self._prepare()
            self._active.seal()

    def snapshots(self) -> tuple[int, list[int]]:
        """Offsets of the producer snapshots on the disk, and how often the log was cut."""
        return self._durability.generation, list(self._durability.snapshots)

    def move_to(self, directory: str, unsynced: set[int]) -> None:
        """All its files are in `directory` too, those of the segments with these base offsets not
        synced: it goes on there. Who reads an old file still holds it."""
        with storing(directory, "open"):
            left, self.directory = self._segments.items, directory
            moved = [self._new_segment(one.base_offset, one.created_ms, one.size) for one in left]
            doubtful = [one for one in moved[:-1] if one.base_offset in unsynced]
            self._durability = self._durability.moved_to(directory, doubtful)
            self._segments, self._active = SegmentList(moved), moved[-1]
            for segment in left:
                segment.close()
            self._prepared = False
            self._prepare()

    def close(self) -> None:
        """Makes a clean end: indexes trimmed, snapshot written, everything synced. A log to which
        nothing was appended since it was opened costs nothing."""
        # Flushed is not closed: a flush leaves the index of the active segment alone.
        touched = self._prepared or self.log_end_offset > self.recovery_point
        if (touched or self._durability.is_behind()) and self.corrupt is None:
            self.seal_active()
            self._durability.segment_sealed(self._active)
            self.snapshot_producers()
            job = self.flush_job()
            if job is not None:
                job.run()
                self.flush_done(job)
        self.abandon()

    def abandon(self) -> None:
        """Lets go of all files and writes nothing: for a log that is deleted, or whose disk has
        failed."""
        self._durability.abandon()
        if self.cleaning is not None:
            self.cleaning.cancelled = True
        for segment in self._segments.items:
            segment.close()
