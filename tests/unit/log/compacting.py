"""A partition with keys that is cleaned, and beside it a list of what was written.

The list is the model: `check` holds what can be read after any number of cleanings, restarts and
crashes against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.log.batch_scan import scan_batches
from ottla.log.compaction import LogCleaning
from ottla.log.compaction_plan import (
    Candidate,
    CleanedGroup,
    CleanerLimits,
    CleaningResult,
    find_candidate,
    has_markers,
    make_plan,
)
from ottla.log.compaction_swap import Cleaning
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import CONTROL_MASK, Header, read_header
from ottla.records.batch_view import RecordView, records_of
from tests.unit.log.world import World

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=1200,
    index_interval_bytes=200,
    segment_index_bytes=8 * 1024,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
)
UNPACKED_MAX = 1 << 24
Pair = tuple[bytes | None, bytes | None]


def limits(keys: int = 10_000, chunk_bytes: int = 700) -> CleanerLimits:
    """Room for about so many keys; chunks small enough that a segment has several."""
    return CleanerLimits(
        map_bytes=24 * keys * 2, load_factor=0.5, chunk_bytes=chunk_bytes, secret=b"for tests"
    )


@dataclass(slots=True)
class Written:
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    producer_id: int = -1
    sequence: int = -1
    transactional: bool = False
    transaction: int = -1
    """The producer, as long as it is part of a transaction that has not ended."""
    aborted: bool = False


@dataclass
class CompactingWorld(World):
    config: LogConfig = CONFIG
    written: list[Written] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    cleaned_to: int = -1

    def open(self, **options: Any) -> PartitionLog:
        log = super().open(**options)
        log.cleaned_to = self.cleaned_to
        log.on_high_watermark(log.log_end_offset)
        return log

    def configure(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes)
        self.log.config = self.config

    # -- writing ------------------------------------------------------------------------------

    def put(
        self,
        *pairs: Pair,
        codec: int = 0,
        producer_id: int = -1,
        transactional: bool = False,
        log_append_time: bool = False,
    ) -> int:
        """One batch; returns its first offset."""
        records = [
            RecordToWrite(self.clock.now_ms + number, key, value, (("h", b"x"),))
            for number, (key, value) in enumerate(pairs)
        ]
        sequence = self.sequences.get(producer_id, 0)
        batch = build_batch(
            records,
            codec=codec,
            timestamp_type=int(log_append_time),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
        self.sequences[producer_id] = sequence + len(pairs)
        appended = self.append(batch)
        for number, (key, value) in enumerate(pairs):
            last_ms = records[-1].timestamp_ms
            self.written.append(
                Written(
                    appended.base_offset + number,
                    key,
                    value,
                    last_ms if log_append_time else records[number].timestamp_ms,
                    producer_id,
                    sequence + number,
                    transactional,
                    producer_id if transactional else -1,
                )
            )
        self.log.on_high_watermark(self.log.log_end_offset)
        return appended.base_offset

    def end(self, producer_id: int, *, aborted: bool) -> None:
        """The transaction of a producer."""
        self.end_transaction(producer_id, aborted=aborted)
        for record in self.written:
            if record.transaction == producer_id:
                record.transaction = -1
                record.aborted = aborted
        self.log.on_high_watermark(self.log.log_end_offset)

    def seal(self) -> None:
        """Starts a new segment, and flushes the old ones."""
        self.log.maybe_roll(self.clock.now_ms + 10**13)
        self.flush()

    # -- cleaning -----------------------------------------------------------------------------

    def candidate(self) -> Candidate | None:
        stable = self.log.first_unstable_offset
        end = self.log.log_end_offset if stable is None else stable
        if has_markers(self.log):
            self.flush()
        return find_candidate(self.log, end, self.clock.now_ms)

    def clean(self, within: CleanerLimits | None = None) -> CleaningResult | None:
        """One cleaning from beginning to end, as the driver does it; None if nothing is dirty."""
        candidate = self.candidate()
        if candidate is None:
            return None
        cleaning = Cleaning(self.files)
        self.log.cleaning = cleaning
        plan = make_plan(candidate, self.clock.now_ms)
        job = LogCleaning(self.files, plan, within or limits(), cleaning)
        while True:
            step = job.proceed(1)
            if isinstance(step, CleanedGroup):
                self.swap(cleaning, step)
            elif isinstance(step, CleaningResult):
                break
        self.log.cleaning = None
        self.log.cleaned_to = self.cleaned_to = step.end_offset
        return step

    def swap(self, cleaning: Cleaning, group: CleanedGroup) -> None:
        cleaning.commit(group.cleaned)
        self.files.sync_dir(self.log.directory)
        paths = self.log.put_in_place([one.segment for one in group.sources], group.cleaned)
        cleaning.is_in_place()
        self.files.sync_dir(self.log.directory)
        for path in paths:
            self.files.remove(path)

    def clean_all(self, within: CleanerLimits | None = None) -> int:
        """Until nothing is dirty; returns how many passes that took."""
        passes = 0
        while self.clean(within) is not None:
            passes += 1
        return passes

    # -- reading ------------------------------------------------------------------------------

    def batches(self) -> Iterator[tuple[Header, bytes]]:
        yield from batches_of(self.log)

    def records(self) -> list[RecordView]:
        """All but those of control batches."""
        return [
            record
            for header, batch in self.batches()
            if not header[5] & CONTROL_MASK
            for record in records_of(batch, UNPACKED_MAX)
        ]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def latest(self) -> dict[bytes, bytes]:
        """What a reader that sees committed records holds in the end."""
        aborted = {record.offset for record in self.written if record.aborted}
        return state_of((one.key, one.value) for one in self.records() if one.offset not in aborted)

    def expected(self) -> dict[bytes, bytes]:
        start = self.log.log_start_offset
        return state_of(
            (one.key, one.value) for one in self.written if one.offset >= start and not one.aborted
        )

    def check(self) -> None:
        """Nothing invented, nothing out of order, the right state, everything above the clean part
        as it was."""
        by_offset = {record.offset: record for record in self.written}
        last = -1
        for record in self.records():
            assert record.offset > last, "offsets grow"
            last = record.offset
            original = by_offset[record.offset]
            assert (record.key, record.value) == (original.key, original.value)
            assert record.timestamp == original.timestamp_ms
            assert record.headers == (("h", b"x"),)
        assert self.latest() == self.expected()
        present = set(self.offsets())
        for one in self.written:
            if one.offset >= self.log.cleaned_to and not one.aborted:
                assert one.offset in present, "the dirty part is whole"


def state_of(pairs: Iterable[Pair]) -> dict[bytes, bytes]:
    """The dictionary that the pairs leave, one after the other."""
    state: dict[bytes, bytes] = {}
    for key, value in pairs:
        if key is not None:
            state.pop(key, None)
            if value is not None:
                state[key] = value
    return state


def batches_of(log: PartitionLog) -> Iterator[tuple[Header, bytes]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 20, log.log_end_offset)
        if part is None:
            return
        end = part.position + part.size
        position = part.position
        for at, header, batch in scan_batches(part.file, part.position, end, 0):
            assert at == position, "a broken batch"
            position += len(batch)
            yield header, bytes(batch)
            offset = header[0] + header[6] + 1
        assert position == end, "a broken batch"


def header_at(log: PartitionLog, offset: int) -> Header:
    """Of the batch that holds `offset`."""
    for header, _ in batches_of(log):
        if header[0] <= offset <= header[0] + header[6]:
            return header
    raise AssertionError(f"no batch holds {offset}")


def read(batch: bytes) -> list[RecordView]:
    read_header(batch)
    return list(records_of(batch, UNPACKED_MAX))
