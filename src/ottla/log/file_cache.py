"""Bounds how many segments have their files open, over all partitions that share it.

A segment opens its files on first use and tells the cache; when there are too many, the one that
was not used for longest gives its own up again (by the clock algorithm: a use costs one attribute
store, not a move in a list). A descriptor that somebody is still sending from stays open until
that is done: see `runtime.posix_files`. Used on the event loop's thread only.
"""

from __future__ import annotations

from typing import Protocol

from ottla.base.errors import check

DESCRIPTORS_PER_SEGMENT = 3
"""The log file and the two mapped indexes (a mapping keeps a descriptor of its own)."""


class Closable(Protocol):
    used: bool

    def give_up_files(self) -> None: ...


class FileCache:
    __slots__ = ("_open", "segments_max")

    def __init__(self, descriptors_max: int = 1024) -> None:
        self.segments_max = descriptors_max // DESCRIPTORS_PER_SEGMENT
        check(self.segments_max >= 1, "a file cache holds at least one segment")
        self._open: dict[Closable, None] = {}

    def opened(self, segment: Closable) -> None:
        """`segment` has files open now. May close those of others, never its own."""
        self._open.pop(segment, None)
        while len(self._open) >= self.segments_max:
            self._close_one()
        self._open[segment] = None

    def forget(self, segment: Closable) -> None:
        """`segment` has closed its files by itself."""
        self._open.pop(segment, None)

    def open_count(self) -> int:
        return len(self._open)

    def _close_one(self) -> None:
        while True:
            oldest = next(iter(self._open))
            del self._open[oldest]
            if not oldest.used:
                oldest.give_up_files()
                return
            # A second chance: to the end of the queue, and out next time if not used until then.
            oldest.used = False
            self._open[oldest] = None
