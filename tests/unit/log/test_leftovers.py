"""Goal: an interrupted deletion or cleaning is finished or undone, wherever it was interrupted.
Method: directories with the files that Kafka's cleaner and deleter leave.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import OttlaError
from ottla.log import leftovers
from tests.chaos.memory_files import MemoryFiles
from tests.unit.log.world import DIRECTORY, World


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def a_directory(*names: str) -> MemoryFiles:
    files = MemoryFiles()
    for one in names:
        files.put(f"{DIRECTORY}/{one}", one.encode())
    return files


def tidied(files: MemoryFiles) -> list[str]:
    return leftovers.tidy(files, DIRECTORY, files.list_dir(DIRECTORY))


def test_nothing_left_nothing_done() -> None:
    files = a_directory(name(0, ".log"), "leader-epoch-checkpoint")
    assert tidied(files) == [name(0, ".log"), "leader-epoch-checkpoint"]


def test_what_was_to_be_deleted_is() -> None:
    files = a_directory(
        name(0, ".log.deleted"),
        name(0, ".snapshot.deleted"),
        name(5, ".log"),
        name(5, ".log.cleaned"),
        "leader-epoch-checkpoint.tmp",
    )
    assert tidied(files) == [name(5, ".log")]


def cleaned_world() -> tuple[World, bytes]:
    """Segments 0, 10, 20; and the content of 0 as the result of a cleaning of the first two."""
    world = World()
    world.open()
    world.fill(5, records=2)
    content = world.content(0)
    world.log.abandon()
    for base in (10, 20):
        world.files.put(world.path(base), b"")
        world.files.put(world.path(base, ".index"), b"")
    return world, content


def test_a_finished_cleaning_is_put_in_place() -> None:
    world, content = cleaned_world()
    world.files.put(world.path(0, ".log.swap"), content[: len(content) // 2])
    world.files.put(world.path(0, ".index.swap"), b"new index")
    world.files.put(world.path(0, ".timeindex.swap"), b"new times")
    names = leftovers.tidy(world.files, DIRECTORY, world.names())
    assert not [one for one in names if "swap" in one]
    assert world.content(0, ".index") == b"new index"
    assert world.content(0) == content[: len(content) // 2]
    assert name(10, ".log") in names and name(20, ".log") in names


def test_the_segments_that_it_replaces_go() -> None:
    world, content = cleaned_world()
    swapped = bytearray(content)
    world.files.put(world.path(0, ".log.swap"), bytes(swapped))
    world.files.put(world.path(5), b"an old segment in its range")
    names = leftovers.tidy(world.files, DIRECTORY, world.names())
    assert name(5, ".log") not in names
    assert name(10, ".log") in names, "it ends where this one begins"


def test_an_unfinished_cleaning_is_undone() -> None:
    world, content = cleaned_world()
    world.files.put(world.path(10, ".log.swap"), content)
    world.files.put(world.path(0, ".log.cleaned"), content)
    names = leftovers.tidy(world.files, DIRECTORY, world.names())
    assert not [one for one in names if "swap" in one or "cleaned" in one]
    assert world.content(0) == content
    assert world.content(10) == b""


def test_interrupted_after_the_log_was_renamed() -> None:
    world, _ = cleaned_world()
    world.files.put(world.path(0, ".timeindex.swap"), b"new times")
    leftovers.tidy(world.files, DIRECTORY, world.names())
    assert world.content(0, ".timeindex") == b"new times"


@pytest.mark.parametrize("extent", [b"", b"\x00\x00\x00", b"-5\n", b"ten\n"])
def test_a_damaged_extent_is_told_and_nothing_is_touched(extent: bytes) -> None:
    world, content = cleaned_world()
    world.files.put(world.path(0, ".log.swap"), content)
    world.files.put(world.path(0, ".extent.swap"), extent)
    world.files.put(world.path(30, ".log.deleted"), b"")
    before = world.files.list_dir(DIRECTORY)
    with pytest.raises(OttlaError, match="does not say what the cleaning replaces"):
        tidied(world.files)
    assert world.files.list_dir(DIRECTORY) == before
