"""The segments of a log, in order: which one holds an offset, and what can be read from there.

Never empty but while a log is thrown away as a whole. Knows no producers, epochs or flushes.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from ottla.base.errors import check
from ottla.base.ports import Files
from ottla.log.segment import LogSlice, Segment

_OFFSET_BYTES = 8

Aborted = list[tuple[int, int]]
"""Producer id and first offset of aborted transactions."""


class SegmentList:
    """`items` and `bases` belong together; both are replaced or appended to here only."""

    __slots__ = ("bases", "items")

    def __init__(self, segments: list[Segment]) -> None:
        self.items = segments
        self.bases = [segment.base_offset for segment in segments]

    def total_size(self) -> int:
        return sum(segment.size for segment in self.items)

    def holding(self, offset: int) -> Segment | None:
        """The segment that `offset` belongs to; None if it is older than all."""
        slot = bisect_right(self.bases, offset)
        return self.items[slot - 1] if slot else None

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and those behind it; all if it is older."""
        return self.items[max(0, bisect_right(self.bases, offset) - 1) :]

    def add(self, segment: Segment) -> None:
        check(
            not self.bases or segment.base_offset > self.bases[-1], "segments come in offset order"
        )
        self.items.append(segment)
        self.bases.append(segment.base_offset)

    def take_oldest(self) -> Segment:
        oldest = self.items[0]
        self.items = self.items[1:]
        self.bases = self.bases[1:]
        return oldest

    def hold(self, segments: list[Segment]) -> bool:
        """Whether all of these stand in the list, one behind the other."""
        slot = bisect_right(self.bases, segments[0].base_offset) - 1
        return slot >= 0 and self.items[slot : slot + len(segments)] == segments

    def replace(self, segments: list[Segment], replacement: Segment) -> None:
        """One in the place of several. Lists that somebody holds stay as they were."""
        check(self.hold(segments), "only neighbours in the list are replaced")
        slot = bisect_right(self.bases, segments[0].base_offset) - 1
        behind = slot + len(segments)
        self.items = [*self.items[:slot], replacement, *self.items[behind:]]
        self.bases = [*self.bases[:slot], replacement.base_offset, *self.bases[behind:]]

    def remove_above(self, files: Files, directory: str, offset: int) -> None:
        """Removes the segments that start above `offset`, with their files.

        Newest first, and known to the disk before anything else happens: whenever this is
        interrupted, what is left is one piece.
        """
        keep = bisect_right(self.bases, offset)
        gone = self.items[keep:]
        for segment in reversed(gone):
            for path in segment.mark_deleted():
                files.remove(path)
        self.items = self.items[:keep]
        self.bases = self.bases[:keep]
        if gone:
            files.sync_dir(directory)

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, log_end: int, at_least_one: bool
    ) -> LogSlice | None:
        """Batches from the one that holds `offset` on, in one segment, below `upper_bound`."""
        bases = self.bases
        count = len(bases)
        slot = count - 1
        if offset < bases[slot]:
            slot = bisect_right(bases, offset) - 1
        while slot < count:
            segment = self.items[slot]
            slot += 1
            position = segment.position_of(offset)
            segment_end = bases[slot] if slot < count else log_end
            end = segment.size
            if segment_end > upper_bound:
                end = segment.position_of(upper_bound)
            if position < end:
                segment.check_length(position, offset)
                return segment.slice(position, end, max_bytes, at_least_one)
            if segment_end >= upper_bound:
                return None
        return None

    def aborted_transactions(
        self, first: int, upper_bound: int, read: LogSlice | None = None
    ) -> Aborted:
        """By first offset. Later segments matter too: a marker may stand far behind its records.

        If `read` is what was read from `first` on, only those that have to do with it.
        """
        found: list[tuple[int, int]] = []
        for segment in self.from_offset(first):
            if not segment.txn_index.exists():
                continue
            index = segment.aborted_transactions()
            if read is not None and len(index):
                upper_bound = min(upper_bound, self._offset_behind(read, first, upper_bound))
                read = None
            for aborted in index.since(first):
                if aborted.first_offset < upper_bound:
                    found.append((aborted.first_offset, aborted.producer_id))
                if aborted.last_stable_offset >= upper_bound:
                    break
            else:
                continue
            break
        if not found:
            return []
        return [(producer_id, first_offset) for first_offset, producer_id in sorted(found)]

    def _offset_behind(self, read: LogSlice, first: int, otherwise: int) -> int:
        """The offset of the batch behind what was read from `first` on, or a lower one from where
        on nothing was read. A slice ends with a whole batch."""
        start = read.file.read_at(read.position + read.size, _OFFSET_BYTES)
        if len(start) == _OFFSET_BYTES:
            return int.from_bytes(start, "big")
        for segment, following in pairwise(self.from_offset(first)):
            # What is behind `first` in its segment may have been compacted away.
            if segment.position_of(first) < segment.size:
                return following.base_offset
        return otherwise
