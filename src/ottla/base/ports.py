"""The seams to the world: clock, timers, work pool, randomness, files.

Everything below `runtime` reaches the world through these and nothing else, so that the broker, the
simulator and a test can each bring their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ottla.base.deferred import Deferred

R = TypeVar("R")
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """For time-outs; never goes back, means nothing outside this process."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; for record timestamps and retention only."""
        ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...


class Pool(Protocol):
    """Threads for what may block. The Deferred is resolved on the event loop's thread."""

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]: ...


class Random(Protocol):
    def random_bytes(self, count: int) -> bytes: ...
    def uniform(self, low: float, high: float) -> float: ...


class File(Protocol):
    """One open file. Errors are OSError; the log room turns them into StorageError."""

    def fileno(self) -> int: ...
    def append(self, buffers: Sequence[Buffer]) -> int:
        """All buffers at the end of the file in one call; returns the bytes written, all."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the range is in memory, judged by its first and its last page: what was written
        or read in one go is also dropped in one go. Where nobody can tell: yes."""
        ...

    def read_if_cached(self, position: int, size: int) -> bytes | None:
        """As `read_at`, if that needs no disk."""
        ...

    def write_at(self, position: int, buffer: Buffer) -> None: ...
    def size(self) -> int: ...
    def truncate(self, size: int) -> None:
        """Gives back what was reserved behind it, too."""
        ...

    def reserve(self, size: int) -> None:
        """Room on the disk for so many bytes; the file is as long as before. Nothing where the
        file system has no such thing."""
        ...

    def sync(self) -> None:
        """fdatasync. A failure is never retried."""
        ...

    def map(self, size: int) -> Any:
        """A writable mapping of the first `size` bytes (a buffer with flush() and close())."""
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are absolute strings."""

    def open(self, path: str, *, create: bool = False) -> File: ...
    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def list_dir(self, path: str) -> list[str]: ...
    def make_dir(self, path: str) -> None:
        """Makes it and its parents; no error if it is there."""
        ...

    def read(self, path: str) -> bytes: ...
    def write_atomic(self, path: str, content: bytes) -> None:
        """Temporary file beside it, synced, renamed over `path`, directory synced."""
        ...

    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
