"""Checks what was not flushed when a log was not closed, cuts its torn end, rebuilds what follows
from the batches: indexes, aborted transactions, leader epochs, producer state.

Of the segment that holds the recovery point and of those behind it, every header is read, and the
CRC of every batch at or above the recovery point. Below it nothing is looked at. Nothing is changed
before a segment was judged, later segments go before the torn end is cut, and nothing that is
written here has to be there for the next recovery to come to the same end: it may be killed at any
moment and started again (F16).

The one thing it never does is to cut where good batches follow: see `damage`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.ports import File, Files
from ottla.log import damage, producer_snapshot, txn_index
from ottla.log.batch_scan import (
    batch_size,
    next_offset,
    read_batch,
    scan_batches,
    scan_headers,
)
from ottla.log.epoch_cache import EpochCache
from ottla.log.index_build import IndexBuilder, replace_content
from ottla.log.load_report import LoadReport
from ottla.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.log.producer_restore import replay_batch
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment
from ottla.log.txn_index import AbortedTransaction
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_MASK,
    LEADER_EPOCH,
    Header,
)


class Recovery:
    """Goes over the doubtful segments once, in order."""

    __slots__ = (
        "_directory",
        "_epochs",
        "_files",
        "_gaps_allowed",
        "_index_interval_bytes",
        "_now_ms",
        "_power_lost",
        "_producers",
        "_recovery_point",
        "_report",
        "kept",
        "next_offset",
        "snapshots_due",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        recovery_point: int,
        power_lost: bool,
        gaps_allowed: bool,
        index_interval_bytes: int,
        epochs: EpochCache,
        producers: ProducerStates,
        report: LoadReport,
        now_ms: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._recovery_point = recovery_point
        self._power_lost = power_lost
        self._gaps_allowed = gaps_allowed
        self._index_interval_bytes = index_interval_bytes
        self._epochs = epochs
        self._producers = producers
        self._report = report
        self._now_ms = now_ms
        self.kept: list[Segment] = []
        """The segments that are left, in order."""
        self.next_offset = recovery_point
        """Where the log ends now, or where the damage begins."""
        self.snapshots_due: dict[int, bytes] = {}

    def run(self, segments: list[Segment]) -> None:
        """`segments` are those to be checked; their first holds the recovery point."""
        self._epochs.truncate_from_end(self._recovery_point)
        for number, segment in enumerate(segments):
            later = segments[number + 1 :]
            if number > 0:
                self._note_snapshot(segment.base_offset)
            scan = SegmentScan(segment, self._index_interval_bytes)
            self._scan(scan)
            self.kept.append(segment)
            self.next_offset = scan.next_offset
            self._report.segments_recovered += 1
            reason = self._broken_because(scan, later)
            if reason is None:
                self._apply(scan)
                continue
            verdict = self._verdict(scan, later, reason)
            if verdict is not None:
                self._report.corrupt = verdict
                return
            self._drop(later)
            self._apply(scan)
            return

    def _note_snapshot(self, offset: int) -> None:
        """As a roll does; without it the next recovery would replay these segments again."""
        content = producer_snapshot.encode(self._producers.snapshot())
        self.snapshots_due = dict([*list(self.snapshots_due.items())[-1:], (offset, content)])

    # -- look ---------------------------------------------------------------------------------

    def _scan(self, scan: SegmentScan) -> None:
        for position, header, batch in self._batches(scan):
            gap = header[BASE_OFFSET] != scan.next_offset and not self._gaps_allowed
            if gap and header[BASE_OFFSET] >= self._recovery_point:
                return
            if next_offset(header) - 1 - scan.segment.base_offset > RELATIVE_OFFSET_MAX:
                return
            scan.take(position, header)
            if next_offset(header) > self._recovery_point:
                self._epochs.assign(header[LEADER_EPOCH], header[BASE_OFFSET])
            completed = replay_batch(self._producers, header, batch, self._now_ms)
            if completed is not None and completed.aborted:
                scan.aborted.append(completed.as_entry())

    def _batches(self, scan: SegmentScan) -> Iterator[tuple[int, Header, memoryview]]:
        """Headers only below the recovery point, the whole batches from there on."""
        file, size = scan.file, scan.segment.size
        for position, header in scan_headers(file, 0, size, scan.next_offset):
            if next_offset(header) > self._recovery_point:
                break
            batch = b""
            if header[ATTRIBUTES] & CONTROL_MASK:
                batch = read_batch(file, position, header)
            yield position, header, memoryview(batch)
        yield from scan_batches(file, scan.valid_bytes, size, scan.next_offset)

    # -- judge --------------------------------------------------------------------------------

    def _broken_because(self, scan: SegmentScan, later: list[Segment]) -> str | None:
        if scan.valid_bytes < scan.segment.size:
            return "a batch is broken"
        if later and scan.next_offset < later[0].base_offset:
            if not self._is_compacted_away(later[0].base_offset):
                return f"offsets up to {later[0].base_offset} are missing"
        return None

    def _is_compacted_away(self, offset: int) -> bool:
        """Kafka's cleaner may take the last batch of a segment, ours does not. What was flushed, or
        written and not lost to a power cut, can only be missing because of that."""
        return self._gaps_allowed and (offset <= self._recovery_point or not self._power_lost)

    def _verdict(self, scan: SegmentScan, later: list[Segment], reason: str) -> str | None:
        """None if it is the torn end of the log; else the sentence for the operator."""
        segment, file = scan.segment, scan.file
        position, offset = scan.valid_bytes, scan.next_offset
        place = (
            f"{segment.path('.log')}: {reason} at position {position} (offset {offset}), "
            f"recovery point {self._recovery_point}"
        )
        if offset < self._recovery_point:
            return f"{place}; it was flushed before"
        if self._power_lost and damage.is_missing_page(file, position, segment.size, offset):
            return None
        if damage.is_whole_batch(file, position, segment.size):
            return f"{place}; the batch there is whole but has the wrong offset"
        behind = damage.find_batch_behind(file, position, segment.size, offset)
        if behind is not None:
            return f"{place}; a good batch follows at position {behind}, so it is no torn write"
        if not any(follower.size for follower in later):
            return None
        # With the power lost, the file may be shorter than it was: its size was never stored.
        if self._power_lost and damage.is_cut_off(file, position, segment.size - position):
            return None
        return f"{place}; good batches follow in the next segment, so it is no torn write"

    # -- mend ---------------------------------------------------------------------------------

    def _drop(self, later: list[Segment]) -> None:
        """Newest first, so that what is left is one piece whenever this is interrupted."""
        for segment in reversed(later):
            self._report.bytes_cut += segment.size
            self._report.deleted_paths += segment.mark_deleted()
        if later:
            self._files.sync_dir(self._directory)

    def _apply(self, scan: SegmentScan) -> None:
        segment = scan.segment
        if scan.valid_bytes < segment.size:
            self._report.bytes_cut += segment.size - scan.valid_bytes
            self._report.cut_segment = segment.base_offset
            self._report.cut_offset = scan.next_offset
            scan.file.truncate(scan.valid_bytes)
            # Synced: what is appended next must not stand among the remains after another crash.
            scan.file.sync()
            segment.size = scan.valid_bytes
        offsets, times = scan.builder.finish()
        changed = replace_content(self._files, segment.offset_index.mapped.path, offsets)
        changed |= replace_content(self._files, segment.time_index.mapped.path, times)
        if scan.aborted or segment.txn_index.exists():
            content = txn_index.build(scan.aborted)
            changed |= replace_content(self._files, segment.txn_index.path, content)
            segment.txn_index.appeared()
        segment.indexes_replaced()
        self._report.indexes_rebuilt += changed


class SegmentScan:
    """What was found in one segment, up to `valid_bytes`."""

    __slots__ = ("aborted", "builder", "file", "next_offset", "segment", "valid_bytes")

    def __init__(self, segment: Segment, index_interval_bytes: int) -> None:
        self.segment = segment
        self.file: File = segment.open_log_only()
        self.builder = IndexBuilder(segment.base_offset, index_interval_bytes)
        self.aborted: list[AbortedTransaction] = []
        self.valid_bytes = 0
        self.next_offset = segment.base_offset

    def take(self, position: int, header: Header) -> None:
        self.builder.add(position, header)
        self.valid_bytes = position + batch_size(header)
        self.next_offset = next_offset(header)
