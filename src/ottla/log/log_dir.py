"""One directory of `log.dirs`: whose it is, its lock, its checkpoints, and what stands in it.

Directories are named `topic-partition`. One that is being deleted is renamed to
`topic-partition.<32 hex digits>-delete` and removed in the background; a stray one (of a topic that
does not exist) to `...-stray`; `...-future` is a replica on its way between dirs. Anything else is
left alone.

The order of a life: `open` (lock, read what the last one left), `claim` (is it ours?), the logs are
opened, `begin` (from here on it is not clean), the checkpoints now and then, `mark_clean` after the
logs were closed, `release`.

`ottla.boot.id` is the one file that Kafka does not have: the machine's boot id, written by `begin`.
If it is still the same, the machine has not lost power, and every write that was made is there.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ottla.base.errors import ConfigError, StorageError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Files
from ottla.log import checkpoints, clean_shutdown
from ottla.log.meta_properties import (
    MetaProperties,
    check_node,
    check_owner,
    read_meta_properties,
    write_meta_properties,
)
from ottla.log.partition_metadata import read_partition_metadata, uuid_text
from ottla.log.storage_errors import storing

LOCK_NAME = ".lock"
BOOT_ID_NAME = "ottla.boot.id"
DIRECTORY_NAME_MAX = 255
UNIQUE_DIGITS = 32
KRAFT_METADATA_TOPIC = "__cluster_metadata"

_PARTITION = re.compile(r"([A-Za-z0-9._-]+)-(\d+)")
_MARKED = re.compile(r"(.+-\d+)\.[0-9a-f]{32}-(delete|stray|future)")


class DirLock(Protocol):
    def close(self) -> None: ...


class LogDirFiles(Files, Protocol):
    """What a log dir asks of the file system besides; `runtime.posix_files` has it."""

    def lock(self, path: str) -> DirLock | None: ...
    def space(self, path: str) -> tuple[int, int]:
        """Bytes in all, and bytes left to use."""
        ...

    def boot_id(self) -> str:
        """Another one after each start of the machine; "" if it can not be told."""
        ...


@dataclass(slots=True)
class FoundPartition:
    """A partition directory; `topic_id` is None if it does not say."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None
    path: str


class LogDir:
    __slots__ = (
        "_files",
        "_lock",
        "_meta",
        "clean",
        "cleaned_offsets",
        "cluster_id",
        "error",
        "high_watermarks",
        "is_short_of_room",
        "log_start_offsets",
        "path",
        "power_lost",
        "recovery_points",
    )

    def __init__(self, files: LogDirFiles, path: str) -> None:
        """Use `LogDir.open`."""
        self._files = files
        self._lock: DirLock | None = None
        self.path = path
        self.error: str | None = None
        """Why it is offline; for the caller to set."""
        self.is_short_of_room = False
        """Whether less is left than is kept for others than producers; for the caller, too."""
        self._meta: MetaProperties | None = None
        self.cluster_id: str | None = None
        self.clean = False
        self.power_lost = False
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaned_offsets: dict[TopicPartition, int] | None = None
        """None if the file is no checkpoint: then everything counts as dirty."""

    @classmethod
    def open(cls, files: LogDirFiles, path: str) -> LogDir:
        """Makes the dir if it is missing, and locks it. ConfigError if somebody else has it."""
        log_dir = cls(files, path)
        with storing(path, "lock"):
            files.make_dir(path)
            log_dir._lock = files.lock(f"{path}/{LOCK_NAME}")
        if log_dir._lock is None:
            raise ConfigError(
                f"{path} is in use by another broker: it holds the lock on {path}/{LOCK_NAME}"
            )
        try:
            log_dir._read()
        except BaseException:
            log_dir.release()
            raise
        return log_dir

    @classmethod
    def offline(cls, files: LogDirFiles, path: str, error: str) -> LogDir:
        """One that could not be opened: nothing is known of it, and nothing is put there."""
        log_dir = cls(files, path)
        log_dir.error = error
        return log_dir

    def _read(self) -> None:
        """What the last life has left."""
        files, path = self._files, self.path
        self._meta = read_meta_properties(files, path)
        self.cluster_id = None if self._meta is None else self._meta.cluster_id
        self.clean = clean_shutdown.has_marker(files, path)
        self.power_lost = not self.clean and not self._is_same_boot()
        self.recovery_points = checkpoints.read_checkpoint(files, path, checkpoints.RECOVERY_POINTS)
        self.log_start_offsets = checkpoints.read_checkpoint(
            files, path, checkpoints.LOG_START_OFFSETS
        )
        self.high_watermarks = checkpoints.read_checkpoint(files, path, checkpoints.HIGH_WATERMARKS)
        self.cleaned_offsets = self._read_cleaned_offsets()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- whose it is --------------------------------------------------------------------------

    def check_node(self, node_id: int) -> None:
        """ConfigError if the dir belongs to another node; the cluster need not be known yet."""
        if self._meta is not None:
            check_node(self._meta, self.path, node_id)

    def claim(self, *, cluster_id: str, node_id: int) -> None:
        """ConfigError if the dir belongs to another cluster or node; a new dir becomes ours."""
        if self._meta is not None:
            check_owner(self._meta, self.path, cluster_id, node_id)
            return
        directory_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{cluster_id}/{node_id}/{self.path}")
        self._meta = MetaProperties(cluster_id, node_id, uuid_text(directory_id))
        write_meta_properties(self._files, self.path, self._meta)
        self.cluster_id = cluster_id

    # -- clean or not -------------------------------------------------------------------------

    def begin(self, *, keep_boot_id: bool = True) -> None:
        """All logs are open and recovered, and what comes now has to be recovered again."""
        if keep_boot_id:
            self.keep_boot_id()
        clean_shutdown.remove_marker(self._files, self.path)

    def keep_boot_id(self) -> None:
        """What may have been lost before this start of the machine need not be found out again."""
        path = f"{self.path}/{BOOT_ID_NAME}"
        boot_id = self._files.boot_id()
        if boot_id and not self._is_same_boot():
            with storing(path, "write"):
                self._files.write_atomic(path, boot_id.encode())

    def mark_clean(self, broker_epoch: int = clean_shutdown.NO_EPOCH) -> None:
        """The last thing: every log is closed and the checkpoints are written."""
        clean_shutdown.write_marker(self._files, self.path, broker_epoch)

    def _is_same_boot(self) -> bool:
        path = f"{self.path}/{BOOT_ID_NAME}"
        boot_id = self._files.boot_id()
        with storing(path, "read"):
            if not boot_id or not self._files.exists(path):
                return False
            return self._files.read(path).decode("ascii", "replace").strip() == boot_id

    # -- checkpoints --------------------------------------------------------------------------

    def write_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_checkpoint(self._files, self.path, checkpoints.RECOVERY_POINTS, offsets)

    def write_log_start_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_checkpoint(self._files, self.path, checkpoints.LOG_START_OFFSETS, offsets)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_checkpoint(self._files, self.path, checkpoints.HIGH_WATERMARKS, offsets)

    def write_cleaned_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_checkpoint(self._files, self.path, checkpoints.CLEANED_OFFSETS, offsets)

    def write_scrub_times(self, times: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_checkpoint(self._files, self.path, checkpoints.SCRUB_TIMES, times)

    def read_scrub_times(self) -> dict[TopicPartition, int]:
        """Without it everything is looked over anew, which does no harm."""
        try:
            return checkpoints.read_checkpoint(self._files, self.path, checkpoints.SCRUB_TIMES)
        except StorageError:
            return {}

    def _read_cleaned_offsets(self) -> dict[TopicPartition, int] | None:
        try:
            return checkpoints.read_checkpoint(self._files, self.path, checkpoints.CLEANED_OFFSETS)
        except StorageError:
            # A disk that fails is noticed by the other checkpoints.
            return None

    # -- what stands in it --------------------------------------------------------------------

    def partitions(self) -> list[FoundPartition]:
        found = []
        for name in self._names():
            key = partition_of(name)
            if key is not None:
                path = f"{self.path}/{name}"
                topic_id = read_partition_metadata(self._files, path)
                found.append(FoundPartition(key[0], key[1], topic_id, path))
        return found

    def doomed_directories(self) -> list[str]:
        """Directories of deleted partitions that are still there, for the caller to remove."""
        return [f"{self.path}/{name}" for name, _ in self._marked("delete")]

    def futures(self) -> list[FoundPartition]:
        """Replicas that were on their way here; how far they came is not known."""
        found = []
        for name, original in self._marked("future"):
            key = partition_of(original)
            if key is not None:
                path = f"{self.path}/{name}"
                topic_id = read_partition_metadata(self._files, path)
                found.append(FoundPartition(key[0], key[1], topic_id, path))
        return found

    def _marked(self, kind: str) -> list[tuple[str, str]]:
        """The names of set-aside directories, and what they were called before."""
        matches = [_MARKED.fullmatch(name) for name in self._names()]
        return [(one[0], one[1]) for one in matches if one is not None and one[2] == kind]

    def directory_of(self, topic: str, partition: int) -> str:
        return f"{self.path}/{topic}-{partition}"

    def has(self, topic: str, partition: int) -> bool:
        """Whether there is a directory of this partition, whatever is in it."""
        return self._files.exists(self.directory_of(topic, partition))

    def holds(self, path: str) -> bool:
        """Whether this path is the dir or within it: `/disk1` does not hold `/disk10`."""
        return path == self.path or path.startswith(f"{self.path}/")

    def set_aside_for_deletion(self, topic: str, partition: int, unique: str) -> str:
        """Renames a partition's directory; returns the new path, for the caller to remove.

        `unique`: 32 hex digits, or others made from them if there is such a directory already.
        Synced: a topic that was deleted must not come back.
        """
        path = self.directory_of(topic, partition)
        target = self._set_aside(topic, partition, path, unique, "delete")
        self.sync()
        return target

    def set_aside_moved(self, topic: str, partition: int, unique: str) -> str:
        """As before, for a replica that is in another log dir now. Not synced: if it comes back,
        it is known to be the older one."""
        path = self.directory_of(topic, partition)
        return self._set_aside(topic, partition, path, unique, "delete")

    def set_stray(self, found: FoundPartition) -> str:
        """Out of the way, but kept until somebody has looked at it; returns the new path."""
        topic_id = uuid.UUID(int=0) if found.topic_id is None else found.topic_id
        target = self._set_aside(found.topic, found.partition, found.path, topic_id.hex, "stray")
        self.sync()
        return target

    def make_future(self, topic: str, partition: int, unique: str) -> str:
        """An empty directory for a replica that is to move here; returns its path."""
        with storing(self.path, "make a directory"):
            path = self._unused(topic, partition, unique, "future")
            self._files.make_dir(path)
        return path

    def discard_future(self, topic: str, partition: int, path: str) -> str:
        """It does not come after all; returns the new path, for the caller to remove. Not synced:
        the worst that can happen is that the move is begun again."""
        return self._set_aside(topic, partition, path, uuid.UUID(int=0).hex, "delete")

    def sync(self) -> None:
        """What has its name here is on the disk by that name."""
        with storing(self.path, "rename"):
            self._files.sync_dir(self.path)

    def space(self) -> tuple[int, int]:
        """Bytes of the file system, and bytes left; zeros once it can not be asked any more."""
        try:
            return self._files.space(self.path)
        except OSError:
            return 0, 0

    def _names(self) -> list[str]:
        with storing(self.path, "list"):
            return self._files.list_dir(self.path)

    def _set_aside(self, topic: str, partition: int, path: str, unique: str, kind: str) -> str:
        with storing(self.path, "rename"):
            target = self._unused(topic, partition, unique, kind)
            self._files.rename(path, target)
        return target

    def _unused(self, topic: str, partition: int, unique: str, kind: str) -> str:
        while self._files.exists(target := self._aside(topic, partition, unique, kind)):
            unique = uuid.uuid5(uuid.NAMESPACE_URL, unique).hex
        return target

    def _aside(self, topic: str, partition: int, unique: str, kind: str) -> str:
        suffix = f"-{partition}.{unique}-{kind}"
        # A long topic name loses its end; the number makes the name unique.
        return f"{self.path}/{topic[: DIRECTORY_NAME_MAX - len(suffix)]}{suffix}"


def has_room_for_move(topic: str, partition: int) -> bool:
    """Whether the name of a replica on its way is not too long, with which it could not be found
    again."""
    return len(f"{topic}-{partition}.{'0' * UNIQUE_DIGITS}-future") <= DIRECTORY_NAME_MAX


def partition_of(name: str) -> TopicPartition | None:
    """The topic and partition that a directory is named after; None for any other name."""
    match = _PARTITION.fullmatch(name)
    if match is None or match[1] == KRAFT_METADATA_TOPIC or _MARKED.fullmatch(name):
        return None
    return match[1], int(match[2])
