"""One directory of `log.dirs`: its lock, and what stands in it.

Directories are named `topic-partition`. One that is being deleted is renamed to
`topic-partition.<32 hex digits>-delete` and removed in the background; a stray one (of a topic that
no longer exists) to `...-stray`; `...-future` is a replica on its way between dirs. Anything else
is left alone. The log room touches nothing outside the partitions and the files named here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

from ottla.base.errors import ConfigError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Files
from ottla.log.storage_errors import storing

LOCK_NAME = ".lock"
DIRECTORY_NAME_MAX = 255
KRAFT_METADATA_TOPIC = "__cluster_metadata"

_PARTITION = re.compile(r"([A-Za-z0-9._-]+)-(\d+)")
_MARKED = re.compile(r".+-\d+\.[0-9a-f]{32}-(delete|stray|future)")


class DirLock(Protocol):
    def close(self) -> None: ...


class LockingFiles(Files, Protocol):
    """A file system that can lock; `runtime.posix_files` is one."""

    def lock(self, path: str) -> DirLock | None: ...


@dataclass(slots=True)
class LogDirContents:
    """Paths of directories, by what they are."""

    partitions: dict[TopicPartition, str] = field(default_factory=dict)
    deleting: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    future: list[str] = field(default_factory=list)


class LogDir:
    __slots__ = ("_files", "_lock", "path")

    def __init__(self, files: LockingFiles, path: str) -> None:
        self._files = files
        self._lock: DirLock | None = None
        self.path = path

    def acquire(self) -> None:
        """Makes the dir if it is missing, and locks it. ConfigError if somebody else has it."""
        with storing(self.path, "lock"):
            self._files.make_dir(self.path)
            lock = self._files.lock(f"{self.path}/{LOCK_NAME}")
        if lock is None:
            raise ConfigError(
                f"{self.path} is in use by another broker: {self.path}/{LOCK_NAME} is locked"
            )
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def scan(self) -> LogDirContents:
        contents = LogDirContents()
        with storing(self.path, "list"):
            names = self._files.list_dir(self.path)
        for name in names:
            path = f"{self.path}/{name}"
            marked = _MARKED.fullmatch(name)
            if marked is not None:
                where = {
                    "delete": contents.deleting,
                    "stray": contents.stray,
                    "future": contents.future,
                }
                where[marked[1]].append(path)
            else:
                key = partition_of(name)
                if key is not None:
                    contents.partitions[key] = path
        return contents

    def partition_path(self, topic: str, partition: int) -> str:
        return f"{self.path}/{topic}-{partition}"

    def mark_deleted(self, topic: str, partition: int, unique: str) -> str:
        """Renames a partition's directory, whose log was released; returns the new path.

        `unique`: 32 hex digits. Synced: a topic that was deleted must not come back.
        """
        return self._mark(topic, partition, unique, "delete")

    def mark_stray(self, topic: str, partition: int, unique: str) -> str:
        """As `mark_deleted`, but kept until somebody looks at it."""
        return self._mark(topic, partition, unique, "stray")

    def _mark(self, topic: str, partition: int, unique: str, kind: str) -> str:
        suffix = f"-{partition}.{unique}-{kind}"
        # A long topic name loses its end; the number makes the name unique.
        target = f"{self.path}/{topic[: DIRECTORY_NAME_MAX - len(suffix)]}{suffix}"
        with storing(self.path, "rename"):
            self._files.rename(self.partition_path(topic, partition), target)
            self._files.sync_dir(self.path)
        return target


def partition_of(name: str) -> TopicPartition | None:
    """The topic and partition that a directory is named after; None for any other name."""
    match = _PARTITION.fullmatch(name)
    if match is None or match[1] == KRAFT_METADATA_TOPIC:
        return None
    return match[1], int(match[2])
