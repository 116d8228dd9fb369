"""Goal: segments leave the page cache, and what stays is counted. Method: real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.page_cache import drop, make_room, resident_pages

PAGES = 64


def test_only_the_segments_are_dropped_and_their_bytes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advices: list[tuple[str, int]] = []
    advise = os.posix_fadvise

    def noted(descriptor: int, offset: int, length: int, advice: int) -> None:
        advices.append((os.readlink(f"/proc/self/fd/{descriptor}"), advice))
        advise(descriptor, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", noted)
    segment, index = tmp_path / "00000000000000000000.log", tmp_path / "00000000000000000000.index"
    for path in (segment, index):
        path.write_bytes(bytes(range(256)) * 16 * PAGES)
    with segment.open("r+b") as file:
        assert resident_pages(file.fileno()) == (PAGES, PAGES)
    left = drop(tmp_path)
    assert advices == [(str(segment.resolve()), os.POSIX_FADV_DONTNEED)]
    with segment.open("r+b") as file:
        in_memory, pages = resident_pages(file.fileno())
    # A file system without a disk behind it keeps its pages; then the share says so.
    assert (left, pages) == (in_memory / PAGES, PAGES)
    with index.open("r+b") as file:
        assert resident_pages(file.fileno()) == (PAGES, PAGES)
    assert segment.read_bytes() == index.read_bytes()


def test_pages_that_nobody_has_touched_are_not_in_memory(tmp_path: Path) -> None:
    hole = tmp_path / "hole"
    hole.touch()
    os.truncate(hole, PAGES * 4096)
    with hole.open("r+b") as file:
        assert resident_pages(file.fileno()) == (0, PAGES)


def test_an_empty_partition_has_nothing_to_drop(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").touch()
    assert drop(tmp_path) == 0


def test_room_is_written_and_leaves_nothing(tmp_path: Path) -> None:
    before = written_bytes()
    make_room(tmp_path, 3 * 2**20 + 1)
    assert written_bytes() - before >= 4 * 2**20
    assert list(tmp_path.iterdir()) == []


def written_bytes() -> int:
    """By this process, into files and everything else."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("wchar:")))
