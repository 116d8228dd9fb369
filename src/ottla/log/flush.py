"""One flush of a log: everything that has to be on the disk before the recovery point may move.

Made on the loop, run in the pool, told back on the loop. It owns copies and open files, nothing
that the loop changes meanwhile, but for one word: that it is void, because the log is deleted and
its directory may be elsewhere, or another log's. It fails with StorageError, once: a sync that
failed is not tried again, since the kernel may have dropped the pages and would answer "done"
(reliability 1.4).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import StorageError
from ottla.base.ports import File, Files


class FlushJob:
    """Everything below `offset` is on the disk once `run` has returned."""

    __slots__ = (
        "_directory",
        "_files",
        "_on_failure",
        "_sync_directories",
        "documents",
        "epochs_version",
        "generation",
        "is_void",
        "offset",
        "open_files",
        "paths",
        "sealed",
        "snapshots",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        offset: int,
        generation: int,
        on_failure: Callable[[], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._on_failure = on_failure
        self._sync_directories: list[str] = []
        self.offset = offset
        self.generation = generation
        self.open_files: list[File] = []
        """Of the log, by which they were written: a write error is reported there first."""
        self.paths: list[str] = []
        """Indexes and logs that are not open; gone ones were deleted meanwhile, which is fine."""
        self.documents: list[tuple[str, bytes]] = []
        """Small files, written as a whole."""
        self.snapshots: list[int] = []
        self.sealed: list[int] = []
        """Base offsets of the segments that need no further sync after this one."""
        self.epochs_version = -1
        self.is_void = False

    def sync_directory_too(self, path: str) -> None:
        self._sync_directories.append(path)

    def run(self) -> None:
        try:
            for file in self.open_files:
                file.sync()
            for path in self.paths:
                self._sync_path(path)
            for path, content in self.documents:
                if not self.is_void:
                    self._files.write_atomic(path, content)
            for path in self._sync_directories:
                self._files.sync_dir(path)
        except OSError as cause:
            if self.is_void:
                return
            self._on_failure()
            raise StorageError(self._directory, "flush") from cause

    def _sync_path(self, path: str) -> None:
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            return
        file.sync()
        file.close()
