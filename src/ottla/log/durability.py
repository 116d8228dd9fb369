"""What of a log is not on the disk yet, and how it gets there.

Keeps the rule behind the recovery point: before it moves to an offset, the batches below it are
synced, and the indexes of the segments that end below it, the leader epochs, the snapshots taken,
and the directory entries of all these files. The index of the segment that holds the recovery point
is not: it is made anew after a crash, so that a flush for an acknowledgement costs one sync.

After a failed sync nothing is ever flushed again: the log is dead until it is opened anew.
"""

from __future__ import annotations

from ottla.base.errors import StorageError, check
from ottla.base.ports import Files
from ottla.log import epoch_cache, file_names, producer_snapshot
from ottla.log.epoch_cache import EpochCache
from ottla.log.flush import FlushJob
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment

PENDING_SNAPSHOTS_MAX = 2
"""Kept in memory until a flush writes them; a recovery has no use for older ones."""


class Durability:
    __slots__ = (
        "_directory",
        "_directory_unsynced",
        "_epochs",
        "_epochs_saved",
        "_failed",
        "_files",
        "_is_abandoned",
        "_is_renamed",
        "_job",
        "_parent_unsynced",
        "_pending_snapshots",
        "_unsynced",
        "generation",
        "snapshots",
    )

    def __init__(
        self, files: Files, directory: str, epochs: EpochCache, snapshots: list[int]
    ) -> None:
        self._files = files
        self._directory = directory
        self._epochs = epochs
        self._epochs_saved = -1
        self.snapshots = snapshots
        """Offsets of the snapshots on the disk, ascending."""
        self._pending_snapshots: dict[int, bytes] = {}
        self._unsynced: list[Segment] = []
        self._directory_unsynced = False
        self._parent_unsynced = False
        self.generation = 0
        """How often the log was cut."""
        self._job: FlushJob | None = None
        self._failed = False
        self._is_abandoned = False
        self._is_renamed = False
        """The name of the directory itself is not on the disk yet; until then another counts."""

    # -- what happened ------------------------------------------------------------------------

    def epochs_are_saved(self) -> None:
        self._epochs_saved = self._epochs.version

    def directory_made(self) -> None:
        self._parent_unsynced = True

    def directory_changed(self) -> None:
        """A file was made, renamed or removed."""
        self._directory_unsynced = True

    def segment_sealed(self, segment: Segment) -> None:
        self._unsynced.append(segment)

    def segment_replaced(self, segment: Segment) -> None:
        """Its files were renamed, and one that is on the disk takes its place."""
        self._directory_unsynced = True
        self._unsynced = [other for other in self._unsynced if other is not segment]

    def segment_deleted(self, segment: Segment) -> list[str]:
        """Its files were renamed; its snapshot follows. Returns the snapshot's new path."""
        self.segment_replaced(segment)
        self._pending_snapshots.pop(segment.base_offset, None)
        if segment.base_offset not in self.snapshots:
            return []
        self.snapshots.remove(segment.base_offset)
        path = self._snapshot_path(segment.base_offset)
        self._files.rename(path, path + file_names.DELETED)
        return [path + file_names.DELETED]

    def snapshot_due(self, offset: int, producers: ProducerStates) -> None:
        """Remembers the producers at `offset`; the next flush writes them."""
        self.snapshots_due({offset: producer_snapshot.encode(producers.snapshot())})

    def snapshots_due(self, contents: dict[int, bytes]) -> None:
        for offset, content in contents.items():
            if offset not in self.snapshots:
                self._pending_snapshots[offset] = content
        while len(self._pending_snapshots) > PENDING_SNAPSHOTS_MAX:
            del self._pending_snapshots[next(iter(self._pending_snapshots))]

    def truncated(self, end_offset: int, remaining: list[Segment]) -> None:
        """The log ends at `end_offset` now; what was known of later offsets must not come back."""
        self.generation += 1
        if self._is_renamed:
            self._files.sync_dir(self._parent())
            self._is_renamed = False
        self._unsynced = [segment for segment in self._unsynced if segment in remaining[:-1]]
        self._pending_snapshots = {
            at: content for at, content in self._pending_snapshots.items() if at <= end_offset
        }
        self._remove_snapshots([at for at in self.snapshots if at > end_offset])

    def _remove_snapshots(self, offsets: list[int]) -> None:
        for at in offsets:
            self._files.remove(self._snapshot_path(at))
            self.snapshots.remove(at)
        if offsets:
            self._files.sync_dir(self._directory)

    # -- flush --------------------------------------------------------------------------------

    def is_behind(self) -> bool:
        """Whether something besides the batches is waiting for a flush."""
        return bool(
            self._unsynced
            or self._pending_snapshots
            or self._directory_unsynced
            or self._parent_unsynced
            or self._epochs.version != self._epochs_saved
        )

    def is_needed(self, *, is_ahead: bool) -> bool:
        """Whether there is something to flush, `is_ahead` that there are batches. Nothing ever is
        in a log that was let go of: its directory may be elsewhere, or another log's."""
        return not self._is_abandoned and (is_ahead or self.is_behind())

    def make_job(self, offset: int, active: Segment | None) -> FlushJob:
        """`active` is synced too, without its indexes; None to sync sealed segments only."""
        if self._failed:
            raise StorageError(self._directory, "flush after a failed one")
        check(self._job is None, "one flush of a log at a time")
        job = FlushJob(self._files, self._directory, offset, self.generation, self._has_failed)
        for segment in self._unsynced:
            self._add_log(job, segment)
            job.paths += [segment.offset_index.mapped.path, segment.time_index.mapped.path]
            if segment.txn_index.exists():
                job.paths.append(segment.txn_index.path)
            job.sealed.append(segment.base_offset)
        if active is not None:
            self._add_log(job, active)
        for at, content in self._pending_snapshots.items():
            if at <= offset:
                job.documents.append((self._snapshot_path(at), content))
                job.snapshots.append(at)
        if self._epochs.version != self._epochs_saved:
            path = f"{self._directory}/{file_names.LEADER_EPOCHS}"
            job.documents.append((path, epoch_cache.encode(self._epochs.entries())))
        job.epochs_version = self._epochs.version
        if self._directory_unsynced:
            job.sync_directory_too(self._directory)
        if self._parent_unsynced:
            job.sync_directory_too(self._parent())
            # Whose records these are has to be known for as long as they are.
            job.paths.append(f"{self._directory}/{file_names.PARTITION_METADATA}")
        self._job = job
        # What happens from here on is not covered by the job any more.
        self._directory_unsynced = False
        self._parent_unsynced = False
        return job

    def job_done(self, job: FlushJob) -> bool:
        """Whether the recovery point may move to `job.offset`."""
        self._job = None
        self._is_renamed = False
        self.snapshots = sorted({*self.snapshots, *job.snapshots})
        if job.generation != self.generation:
            # The log was cut meanwhile: what the job wrote may speak of offsets that are gone.
            self._remove_snapshots(list(job.snapshots))
            return False
        for at in job.snapshots:
            self._pending_snapshots.pop(at, None)
        self._unsynced = [
            segment for segment in self._unsynced if segment.base_offset not in job.sealed
        ]
        self._epochs_saved = job.epochs_version
        return True

    def abandon(self) -> None:
        """The log is let go of: a flush under way has nothing to tell any more."""
        self._is_abandoned = True
        if self._job is not None:
            self._job.is_void = True

    def moved_to(self, directory: str, unsynced: list[Segment]) -> Durability:
        """For the same log in another directory, which has its own files of these segments, not
        synced, and all snapshots. That it has that name is not on the disk yet."""
        check(self._job is None and not self._failed, "a log moves between two flushes")
        moved = Durability(self._files, directory, self._epochs, self.snapshots)
        moved._pending_snapshots = self._pending_snapshots
        moved._unsynced = unsynced
        moved.generation = self.generation
        moved.directory_made()
        moved.directory_changed()
        moved._is_renamed = True
        return moved

    def save_snapshot(self, offset: int, producers: ProducerStates) -> None:
        """Writes a snapshot now, unless the newest one is as new."""
        if not self.snapshots or self.snapshots[-1] < offset:
            self._pending_snapshots.pop(offset, None)
            content = producer_snapshot.encode(producers.snapshot())
            self._files.write_atomic(self._snapshot_path(offset), content)
            self.snapshots.append(offset)

    def _add_log(self, job: FlushJob, segment: Segment) -> None:
        if segment.file is not None:
            job.open_files.append(segment.file)
        else:
            job.paths.append(segment.path(file_names.LOG))

    def _has_failed(self) -> None:
        self._failed = True

    def _parent(self) -> str:
        return self._directory.rpartition("/")[0]

    def _snapshot_path(self, offset: int) -> str:
        return file_names.segment_path(self._directory, offset, file_names.SNAPSHOT)
