"""Copies the log of a partition into a directory of another disk while it is used, and lets it go
on there, so that after a crash at any moment there is one log, and all of it.

A `Relocation` lives on the loop. What is missing over there goes into a `Piece`, which runs in the
pool: it has paths and numbers, and touches nothing that the loop changes. Segments grow, are cut,
deleted and replaced meanwhile; each look at the log finds out again what is missing, and what is
over there and not here any more. Of a segment that was cut nothing is kept.

Step by step:

1. pieces, synced, until little is missing;
2. no flush of the log begins any more, so that its recovery point stays; one more piece, synced,
   with the small files (`settling`). From here on everything below the recovery point is over
   there, and what is checkpointed with the other log dir holds for the copy;
3. pieces that are not synced, until next to nothing is missing;
4. on the loop, in one step: the rest, the directory gets its proper name, the log goes on in it;
5. the log is flushed, and with it the new name; only then the old directory goes.

Before 4 the old directory counts, from there on the new one: see `move_count`.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from dataclasses import dataclass, field

from ottla.base.errors import StorageError, check
from ottla.base.ports import File, Files
from ottla.log import epoch_cache, file_names, move_count, offset_index, time_index, txn_index
from ottla.log.partition_log import PartitionLog
from ottla.log.partition_metadata import encode as encode_topic_id
from ottla.log.segment import Segment
from ottla.log.storage_errors import storing

CHUNK_BYTES = 1024 * 1024


@dataclass(slots=True)
class _Copy:
    """What is over there of a segment."""

    cuts: int
    sizes: dict[str, int] = field(default_factory=dict)
    """By the suffixes of its files."""
    is_whole: bool = False
    """Nothing is missing, and nothing will be, unless it is cut."""
    is_synced: bool = True


@dataclass(slots=True)
class _Range:
    """Bytes of one file to copy; None for all there are."""

    source: str
    target: str
    start: int
    end: int | None
    is_rest: bool = True
    """Behind the end nothing is to follow; else an earlier life may have copied more already."""
    may_be_gone: bool = False


class Piece:
    """Something of a log that is missing in its other directory. Made on the loop, run anywhere."""

    __slots__ = (
        "_files",
        "_removals",
        "_source",
        "_target",
        "bytes_copied",
        "copies",
        "documents",
        "is_synced",
        "is_void",
        "kept",
        "ranges",
        "snapshots",
    )

    def __init__(self, files: Files, source: str, target: str, removals: list[str]) -> None:
        self._files = files
        self._source = source
        self._target = target
        self._removals = removals
        self.ranges: list[_Range] = []
        self.copies: list[tuple[Segment, _Copy, dict[str, int], bool]] = []
        """What will be over there of each segment, and whether that is all."""
        self.snapshots: list[int] = []
        self.documents: list[tuple[str, bytes]] = []
        self.kept: set[str] | None = None
        """The names of all that belongs there; what else there is goes, from a move that an earlier
        life began."""
        self.bytes_copied = 0
        self.is_synced = True
        self.is_void = False
        """Something was deleted or cut while it was read: none of it counts."""

    def run(self) -> None:
        with storing(self._target, "write"):
            for path in self._removals:
                if self._files.exists(path):
                    self._files.remove(path)
            if self.kept is not None:
                for name in set(self._files.list_dir(self._target)) - self.kept:
                    self._files.remove(f"{self._target}/{name}")
            for path, content in self.documents:
                target = self._files.open(path, create=True)
                target.truncate(0)
                target.append([content])
                self._close(target)
        self.is_void = not all(self._copy(each) or each.may_be_gone for each in self.ranges)
        if self.is_synced:
            with storing(self._target, "sync"):
                self._files.sync_dir(self._target)

    def _close(self, target: File) -> None:
        if self.is_synced:
            target.sync()
        target.close()

    def _copy(self, each: _Range) -> bool:
        """Whether all of it was there. What is over there already, of a move that an earlier life
        began, is compared and not written again."""
        with storing(self._source, "read"):
            try:
                source = self._files.open(each.source)
            except FileNotFoundError:
                return False
        with storing(self._target, "write"):
            target = self._files.open(each.target, create=True)
            present = target.size()
        position = each.start
        end = source.size() if each.end is None else each.end
        while position < end:
            with storing(self._source, "read"):
                # To a border of pages: one that is written twice, with the end of a batch the
                # second time, could be found after a power cut as it was in between.
                wanted = min(CHUNK_BYTES - position % CHUNK_BYTES, end - position)
                content = source.read_at(position, wanted)
            if not content:
                break
            with storing(self._target, "write"):
                if present > position:
                    if target.read_at(position, len(content)) == content:
                        position += len(content)
                        continue
                    target.truncate(position)
                    present = position
                target.append([content])
            position += len(content)
            self.bytes_copied += len(content)
        source.close()
        with storing(self._target, "sync"):
            if each.is_rest and present > position:
                target.truncate(position)
            self._close(target)
        return position == end


class Relocation:
    def __init__(
        self, files: Files, log: PartitionLog, topic_id: uuid.UUID, directory: str
    ) -> None:
        """`directory`: where the copy is made; it is there, empty or with what an earlier life has
        left of a move."""
        self._files = files
        self._topic_id = topic_id
        self._copies: dict[Segment, _Copy] = {}
        self._snapshots: set[int] = set()
        self._generation = -1
        self.log = log
        self.directory = directory

    # -- how far it is ------------------------------------------------------------------------

    def bytes_left(self) -> int:
        """Of records; indexes are small beside them."""
        return sum(segment.size - self._copied_of(segment) for segment in self.log.all_segments())

    def size(self) -> int:
        return sum(self._copied_of(segment) for segment in self.log.all_segments())

    def lag(self) -> int:
        """Offsets that are not over there yet; as many as the index can tell."""
        log = self.log
        for segment in log.all_segments():
            copied = self._copied_of(segment)
            if copied < segment.size:
                with storing(log.directory, "read"):
                    return log.log_end_offset - _offset_behind(segment, copied)
        return 0

    def _copied_of(self, segment: Segment) -> int:
        copy = self._copies.get(segment)
        if copy is None or copy.cuts != segment.cuts:
            return 0
        return copy.sizes.get(file_names.LOG, 0)

    # -- copying ------------------------------------------------------------------------------

    def next_piece(self, budget_bytes: int | None = None, *, synced: bool = True) -> Piece:
        """Whole segments in their order, or as much of them as the budget allows."""
        segments = self.log.all_segments()
        piece = Piece(self._files, self.log.directory, self.directory, self._forget_gone(segments))
        piece.is_synced = synced
        left = budget_bytes
        with storing(self.log.directory, "read"):
            for segment in segments:
                if left is not None and left <= 0:
                    break
                copied = self._add(piece, segment, left, is_active=segment is segments[-1])
                left = None if left is None else left - copied
        return piece

    def settling(self, moves: int) -> Piece:
        """All that is missing by now, and the small files."""
        piece = self.next_piece()
        for snapshot in self.log.snapshots()[1]:
            if snapshot not in self._snapshots:
                whole = self._range(snapshot, file_names.SNAPSHOT, 0, None)
                # Without it there is more to be read at the next start, and that is all.
                whole.may_be_gone = True
                piece.ranges.append(whole)
                piece.snapshots.append(snapshot)
        epochs = epoch_cache.encode(self.log.leader_epochs.entries())
        piece.documents = [
            (f"{self.directory}/{file_names.LEADER_EPOCHS}", epochs),
            (f"{self.directory}/{file_names.PARTITION_METADATA}", encode_topic_id(self._topic_id)),
            (f"{self.directory}/{move_count.NAME}", move_count.encode(moves)),
        ]
        known = {segment: set(copy.sizes) for segment, copy in self._copies.items()}
        for segment, _, sizes, _ in piece.copies:
            known[segment] |= set(sizes)
        paths = {path for path, _ in piece.documents}
        paths |= {self._path(at, file_names.SNAPSHOT) for at in self.log.snapshots()[1]}
        paths |= {self._path(one.base_offset, suffix) for one in known for suffix in known[one]}
        piece.kept = {path.rpartition("/")[2] for path in paths}
        return piece

    def copied(self, piece: Piece) -> None:
        """The piece has run without an error. StorageError if a file is missing that nobody has
        deleted."""
        if piece.is_void:
            self._check_changed(piece)
            return
        self._snapshots.update(piece.snapshots)
        for segment, copy, sizes, is_whole in piece.copies:
            # One that was cut meanwhile is begun anew with the next look.
            copy.sizes.update(sizes)
            copy.is_whole = is_whole
            copy.is_synced = piece.is_synced
            check(segment.cuts != copy.cuts or sizes[file_names.LOG] <= segment.size, "a copy")

    def _check_changed(self, piece: Piece) -> None:
        present = set(self.log.all_segments())
        if all(one in present and one.cuts == copy.cuts for one, copy, _, _ in piece.copies):
            raise StorageError(self.log.directory, "read all")

    def _forget_gone(self, segments: list[Segment]) -> list[str]:
        """The paths of what is over there, and here no more."""
        generation, snapshots = self.log.snapshots()
        # The same offset may have another snapshot after a cut.
        kept = self._snapshots & set(snapshots) if generation == self._generation else set()
        removals = [self._path(gone, file_names.SNAPSHOT) for gone in self._snapshots - kept]
        self._snapshots, self._generation = kept, generation
        present = set(segments)
        for segment, copy in list(self._copies.items()):
            if segment not in present or copy.cuts != segment.cuts:
                del self._copies[segment]
                removals += [
                    self._path(segment.base_offset, suffix)
                    for suffix in file_names.SEGMENT_SUFFIXES
                ]
        return removals

    def _add(self, piece: Piece, segment: Segment, budget: int | None, *, is_active: bool) -> int:
        copy = self._copies.setdefault(segment, _Copy(segment.cuts))
        if copy.is_whole and not is_active:
            return 0
        before = copy.sizes.get(file_names.LOG, 0)
        end = segment.size if budget is None else min(segment.size, before + budget)
        sizes = {file_names.LOG: end}
        is_looked_into = segment.offset_index.entries >= 0 and segment.time_index.entries >= 0
        if end == segment.size and (is_looked_into or not is_active):
            # Of one that grows only the used part: what lies behind it will be entries.
            sizes |= self._index_sizes(segment)
        for suffix, size in sizes.items():
            start = copy.sizes.get(suffix, 0)
            is_due = piece.is_synced and not copy.is_synced
            if start < size or suffix not in copy.sizes or is_due:
                rest = self._range(segment.base_offset, suffix, start, size)
                rest.is_rest = suffix != file_names.LOG or end == segment.size
                piece.ranges.append(rest)
        is_whole = end == segment.size and not is_active
        piece.copies.append((segment, copy, sizes, is_whole))
        return end - before

    def _index_sizes(self, segment: Segment) -> dict[str, int]:
        """The used part of an index; of one that nobody has looked into, all of it."""
        offsets, times, aborted = segment.offset_index, segment.time_index, segment.txn_index
        sizes = {
            file_names.OFFSET_INDEX: offsets.entries * offset_index.ENTRY_BYTES,
            file_names.TIME_INDEX: times.entries * time_index.ENTRY_BYTES,
        }
        if offsets.entries < 0:
            sizes[file_names.OFFSET_INDEX] = self._files.size(offsets.mapped.path)
        if times.entries < 0:
            sizes[file_names.TIME_INDEX] = self._files.size(times.mapped.path)
        if aborted.exists():
            whole = self._files.size(aborted.path) // txn_index.ENTRY_BYTES
            sizes[file_names.TXN_INDEX] = whole * txn_index.ENTRY_BYTES
        return sizes

    def _range(self, offset: int, suffix: str, start: int, end: int | None) -> _Range:
        source = file_names.segment_path(self.log.directory, offset, suffix)
        return _Range(source, self._path(offset, suffix), start, end)

    def _path(self, offset: int, suffix: str) -> str:
        return file_names.segment_path(self.directory, offset, suffix)

    # -- the end ------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """The rest, at once; not synced."""
        # As after a clean stop: the index of times has to know the largest one of all.
        self.log.seal_active()
        piece = self.next_piece(synced=False)
        piece.run()
        check(not piece.is_void, "nobody changes a log while the loop looks at it")
        self.copied(piece)
        check(self.bytes_left() == 0, "all of the log is over there")

    def take_name(self, directory: str) -> None:
        """From here on the copy is the one that counts; to be followed by `hand_over` at once."""
        with storing(directory, "rename"):
            self._files.rename(self.directory, directory)
        self.directory = directory

    def hand_over(self) -> None:
        unsynced = {one.base_offset for one, copy in self._copies.items() if not copy.is_synced}
        self.log.move_to(self.directory, unsynced)


def _offset_behind(segment: Segment, position: int) -> int:
    """An offset below which everything lies before `position`, or the base."""
    segment.open_file()
    index = segment.offset_index
    slot = bisect_right(range(index.entries), position, key=lambda at: index.entry(at)[1])
    # Of the last entry up to there only the beginning is known to be.
    return index.entry(slot - 2)[0] + 1 if slot > 1 else segment.base_offset
