"""What of a log could be cleaned, how urgent it is, and what a cleaning has to know beforehand.

Decides only, on the loop, without numpy; the work itself is `compaction`, in the pool. A plan holds
plain values of one moment, so that the pool need not look at the log, which goes on meanwhile.

Never cleaned: the active segment, a segment that reaches above the last stable offset (which is
never above the high watermark) or above the recovery point (what is not on the disk yet is
recovered batch by batch, without gaps), and one with records younger than min.compaction.lag.ms,
with all behind it. Everything up to `cleaned_to` of the log has been cleaned before; what follows
is dirty. A log is worth cleaning if the dirty part of what may be cleaned is more than
min.cleanable.dirty.ratio, or if something in it has waited for max.compaction.lag.ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from ottla.base.errors import OttlaError
from ottla.base.ports import Files
from ottla.log import file_names
from ottla.log.compaction_swap import CleanedFiles
from ottla.log.log_config import LONG_MAX, LogConfig
from ottla.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import BATCHES_KEPT
from ottla.log.segment import Segment


@dataclass(slots=True)
class Candidate:
    """A log that may be cleaned from `first_dirty` up to `end_offset`, where a segment begins."""

    log: PartitionLog
    first_dirty: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_it(self) -> bool:
        if self.dirty_bytes == 0:
            return False
        return self.overdue or self.dirty_ratio() > self.log.config.min_cleanable_dirty_ratio


@dataclass(slots=True)
class SourceSegment:
    """A segment to be cleaned; `segment` itself is for the loop only."""

    segment: Segment
    base_offset: int
    end_offset: int
    size: int

    def path(self, suffix: str) -> str:
        return self.segment.path(suffix)


@dataclass(slots=True)
class ProducerEnds:
    """What must stay of the producers that are still known: see `compaction_filter`."""

    last_offsets: dict[int, int] = field(default_factory=dict)
    """By producer, where its last batch ends in what is cleaned."""
    unknown: set[int] = field(default_factory=set)
    """Those of which that has to be looked up: they have written much since."""
    marker_epochs: dict[int, int] = field(default_factory=dict)
    """The epochs of those of which only markers are known."""


@dataclass(slots=True)
class CleaningPlan:
    directory: str
    sources: list[SourceSegment]
    """From the first segment of the log on, up to `end_offset`."""
    first_dirty: int
    end_offset: int
    txn_index_paths: list[str]
    """Of all segments: the marker of a transaction may stand far behind its records."""
    producers: ProducerEnds
    config: LogConfig
    now_ms: int


class CleaningCancelled(OttlaError):
    """The log was cut, closed or deleted meanwhile."""


@dataclass(slots=True)
class CleanerLimits:
    """What a cleaning may take, and the secret of its hashes."""

    map_bytes: int
    load_factor: float
    chunk_bytes: int
    secret: bytes


@dataclass(slots=True)
class CleanedGroup:
    """A cleaned segment, ready to take the place of its sources."""

    sources: list[SourceSegment]
    cleaned: CleanedFiles


@dataclass(slots=True)
class CleaningResult:
    """What a cleaning did; the log is clean up to `end_offset`."""

    end_offset: int
    bytes_mapped: int
    bytes_read: int
    bytes_written: int
    records_before: int
    records_after: int
    keys: int


def has_markers(log: PartitionLog) -> bool:
    """Whether transactions have ended here. Then what a cleaning does rests on markers, which may
    stand above the recovery point: the log is flushed between the moment that its bounds are from
    and the cleaning, so that no marker is lost after it was acted upon."""
    return any(entry.coordinator_epoch >= 0 for entry in log.producers.entries.values())


def find_candidate(log: PartitionLog, last_stable_offset: int, now_ms: int) -> Candidate | None:
    """None if there is nothing to clean. Reads the times of segments only where a lag is set."""
    sources = _sealed(log)
    first_dirty = first_dirty_offset(log)
    if not sources or log.corrupt is not None or sources[-1].end_offset <= first_dirty:
        return None
    dirty = [source for source in sources if source.end_offset > first_dirty]
    cleanable = []
    upper_bound = min(last_stable_offset, log.recovery_point)
    for source in dirty:
        if source.end_offset > upper_bound or _is_too_young(source, log.config, now_ms):
            break
        cleanable.append(source)
    if not cleanable:
        return None
    return Candidate(
        log,
        first_dirty,
        cleanable[-1].end_offset,
        sum(source.size for source in sources if source.end_offset <= first_dirty),
        sum(source.size for source in cleanable),
        _is_overdue(cleanable, log.config, now_ms),
    )


def first_dirty_offset(log: PartitionLog) -> int:
    """A note of an earlier life may be wrong by now: then everything counts as dirty."""
    if log.log_start_offset <= log.cleaned_to <= log.log_end_offset:
        return log.cleaned_to
    return log.log_start_offset


def make_plan(candidate: Candidate, now_ms: int) -> CleaningPlan:
    log = candidate.log
    return CleaningPlan(
        directory=log.directory,
        sources=[one for one in _sealed(log) if one.end_offset <= candidate.end_offset],
        first_dirty=candidate.first_dirty,
        end_offset=candidate.end_offset,
        txn_index_paths=[
            segment.txn_index.path for segment in log.all_segments() if segment.txn_index.exists()
        ],
        producers=_producer_ends(log, candidate.end_offset),
        config=log.config,
        now_ms=now_ms,
    )


def _producer_ends(log: PartitionLog, end_offset: int) -> ProducerEnds:
    ends = ProducerEnds()
    for producer_id, entry in log.producers.entries.items():
        if not entry.batches:
            ends.marker_epochs[producer_id] = entry.epoch
            continue
        cleaned = [batch[1] for batch in entry.batches if batch[1] < end_offset]
        if cleaned:
            ends.last_offsets[producer_id] = cleaned[-1]
        elif not entry.complete or len(entry.batches) == BATCHES_KEPT:
            ends.unknown.add(producer_id)
    return ends


def group_sources(
    files: Files, sources: list[SourceSegment], config: LogConfig
) -> list[list[SourceSegment]]:
    """Neighbours that go into one cleaned segment: as many as fit by the size of the log and of
    both indexes, so that segments which have shrunk do not stay small."""
    groups: list[list[SourceSegment]] = []
    sizes = [0, 0, 0]
    for source in sources:
        added = [
            source.size,
            _size_of(files, source.path(file_names.OFFSET_INDEX)),
            _size_of(files, source.path(file_names.TIME_INDEX)),
        ]
        together = [size + more for size, more in zip(sizes, added, strict=True)]
        if (
            groups
            and together[0] <= config.segment_bytes
            and max(together[1:]) <= config.segment_index_bytes
            and source.end_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            groups[-1].append(source)
            sizes = together
        else:
            groups.append([source])
            sizes = added
    return groups


def _sealed(log: PartitionLog) -> list[SourceSegment]:
    segments = log.all_segments()
    return [
        SourceSegment(segment, segment.base_offset, following.base_offset, segment.size)
        for segment, following in pairwise(segments)
    ]


def _is_too_young(source: SourceSegment, config: LogConfig, now_ms: int) -> bool:
    if config.min_compaction_lag_ms <= 0:
        return False
    return source.segment.largest_timestamp() > now_ms - config.min_compaction_lag_ms


def _is_overdue(sources: list[SourceSegment], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms == LONG_MAX:
        return False
    for source in sources:
        segment = source.segment
        segment.load_times(segment.open_file())
        if 0 < segment.first_timestamp < now_ms - config.max_compaction_lag_ms:
            return True
    return False


def _size_of(files: Files, path: str) -> int:
    try:
        return files.size(path)
    except FileNotFoundError:
        return 0
