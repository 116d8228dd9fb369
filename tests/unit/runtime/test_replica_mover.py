"""Goal: a replica goes where it was asked to go, in use all the while, no faster than it may; and
whatever becomes of it or of the disks meanwhile, one directory of it is left, or none.
Method: the keepers of a broker's logs over files in memory, a pool whose work the test does, and
virtual time. Crashes are in `tests/chaos/test_move_crash.py`.
"""

from __future__ import annotations

import errno
import random
import re
from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.log.compaction_swap import Cleaning
from ottla.metadata.image import MetadataImage
from ottla.records.batch_header import read_header
from ottla.runtime import replica_mover
from tests.chaos.crash_world import KEY, check_indexes, read_back
from tests.chaos.memory_files import MemoryFile, MemoryFiles
from tests.chaos.move_world import DAY_MS, Broker, an_image
from tests.unit.log.world import NOW_MS, batch

THREE = ("/one", "/two", "/three")
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
THREADS = "num.replica.alter.log.dirs.threads"


class Disks(MemoryFiles):
    """Of which one may fail."""

    failed: str | None = None
    refused: str | None = None
    """A name that it does not give."""

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self._check(path)
        return super().open(path, create=create)

    def rename(self, source: str, target: str) -> None:
        self._check(source)
        if target == self.refused:
            raise OSError(errno.EIO, target)
        super().rename(source, target)

    def make_dir(self, path: str) -> None:
        self._check(path)
        super().make_dir(path)

    def sync_dir(self, path: str) -> None:
        self._check(path)
        super().sync_dir(path)

    def _check(self, path: str) -> None:
        if self.failed is not None and path.startswith(f"{self.failed}/"):
            raise OSError(errno.EIO, path)


class Node(Broker):
    def __init__(self, files: Disks | None = None, settings: dict[str, str] | None = None) -> None:
        self.files = files or Disks()
        super().__init__(self.files, random.Random(1), THREE, **(settings or {}))
        self.begin()

    def append(self, count: int = 1, *, size: int = 200) -> None:
        for _ in range(count):
            content = batch(size=size)
            self.partition.append(bytearray(content), read_header(content), NOW_MS)

    def move(self, path: str) -> None:
        assert self.mover.move(self.partition, path)

    def names(self) -> dict[str, list[str]]:
        """What is in each log dir of the partition, without the unique part of a name."""
        found = {}
        for path in THREE:
            names = [name for name in self.files.list_dir(path) if name.startswith("crash-0")]
            found[path] = [re.sub(r"\.[0-9a-f]{32}", "", name) for name in names]
        return {path: names for path, names in found.items() if names}

    def offsets(self) -> list[int]:
        return [one.base_offset for one in read_back(self.log)]


@pytest.fixture
def node() -> Node:
    node = Node()
    assert node.partition.log_dir == "/one"
    node.append(20)
    return node


def test_a_quiet_replica_moves(node: Node) -> None:
    held = node.log
    before = read_back(held)
    node.move("/two")
    assert node.names() == {"/one": ["crash-0"], "/two": ["crash-0-future"]}
    node.rest()
    assert node.partition.log is held
    assert (node.partition.log_dir, held.directory) == ("/two", "/two/crash-0")
    assert read_back(held) == before
    assert node.names() == {"/two": ["crash-0"]}
    node.append(10)
    assert node.offsets() == list(range(30))
    check_indexes(held)
    assert list(node.replicas.logs_of("/two")) == [held]


def test_the_old_directory_is_removed_after_a_while(node: Node) -> None:
    node.move("/two")
    while node.mover._moves:
        node.live_on(1)
    assert node.names() == {"/one": ["crash-0-delete"], "/two": ["crash-0"]}
    node.time.advance(DAY_MS)
    node.live_on(2)
    assert node.names() == {"/two": ["crash-0"]}


def test_what_is_read_from_an_old_file_stays_valid(node: Node) -> None:
    part = node.log.read(3, 10_000, node.log.log_end_offset)
    assert part is not None
    content = part.file.read_at(part.position, part.size)
    node.move("/two")
    node.rest()
    assert part.file.read_at(part.position, part.size) == content


def test_it_is_no_faster_than_it_may_be() -> None:
    slow = Node(settings={RATE: "1000"})
    slow.append(20)
    size = slow.log.size
    slow.move("/two")
    last = 0
    while slow.mover._moves:
        told = slow.mover.futures_of("/two")
        if told:
            assert (told[0].topic, told[0].partition) == KEY
            assert last <= told[0].size <= size
            last = told[0].size
            assert last <= slow.time.monotonic_ms() + 400, "1000 bytes a second, a slice ahead"
            assert (told[0].offset_lag == 0) == (told[0].size == size)
        slow.live_on(1)
    assert slow.time.monotonic_ms() >= (size - 400) * 1000 // 1000


def test_a_rate_of_nothing_stands_still() -> None:
    still = Node(settings={RATE: "0"})
    still.append(20)
    still.move("/two")
    still.live_on(50)
    assert still.mover.futures_of("/two")[0].size <= 1


def test_a_second_wish_counts_and_the_first_leaves_nothing(node: Node) -> None:
    node.move("/two")
    node.live_on(1)
    node.move("/two")
    assert len(node.mover.futures_of("/two")) == 1
    node.move("/three")
    assert node.names() == {
        "/one": ["crash-0"],
        "/two": ["crash-0-delete"],
        "/three": ["crash-0-future"],
    }
    node.rest()
    assert node.names() == {"/three": ["crash-0"]}
    node.move("/one")
    node.live_on(1)
    node.move("/three")
    assert not node.log.is_moving
    node.rest()
    assert node.names() == {"/three": ["crash-0"]}
    assert node.offsets() == list(range(20))


def test_a_thread_of_an_earlier_move_does_no_harm(node: Node) -> None:
    """It once wrote into the directory of the next one, which had the same name."""
    node.move("/two")
    stale = node.pool.jobs.pop()
    node.move("/one")
    node.move("/two")
    node.pool.jobs.append(stale)
    node.rest()
    assert node.offsets() == list(range(20))
    assert node.names() == {"/two": ["crash-0"]}
    assert node.dirs[1].error is None


def test_it_goes_on_to_another_place_as_soon_as_it_is_there(node: Node) -> None:
    node.move("/two")
    while node.partition.log_dir != "/two":
        node.live_on(1)
    assert node.names()["/one"] == ["crash-0"], "not gone before the new one is on the disk"
    node.move("/one")
    node.rest()
    assert node.names() == {"/one": ["crash-0"]}
    assert node.offsets() == list(range(20))


@pytest.mark.parametrize("steps", range(12))
def test_a_deleted_topic_is_gone_from_everywhere(node: Node, steps: int) -> None:
    node.move("/two")
    node.live_on(steps)
    node.replicas.apply(an_image(), MetadataImage())
    node.rest()
    assert node.names() == {}
    assert [one.error for one in node.dirs] == [None] * 3


@pytest.mark.parametrize("steps", range(12))
def test_the_other_disk_fails(node: Node, steps: int) -> None:
    node.move("/two")
    node.live_on(steps)
    node.files.failed = "/two"
    while node.pool.jobs or node.mover._moves:
        node.live_on(1)
    if node.partition.log_dir == "/one":
        assert node.offsets() == list(range(20))
        assert not node.log.is_moving
        node.append(10)
        node.wait_for(node.flusher.flush(node.log))
        assert node.offsets() == list(range(30))
        check_indexes(node.log)
    else:
        assert node.dirs[1].error is not None or node.names()["/two"] == ["crash-0"]
        assert "crash-0" not in node.names().get("/one", []), "what is old is not served"
    assert node.dirs[0].error is None


@pytest.mark.parametrize("steps", range(12))
def test_its_own_disk_fails(node: Node, steps: int) -> None:
    node.move("/two")
    node.live_on(steps)
    node.files.failed = "/one"
    while node.pool.jobs or node.mover._moves:
        node.live_on(1)
    if node.partition.log_dir == "/one":
        assert (node.partition.log is None) == (node.dirs[0].error is not None)
        assert node.names().get("/two") is None
    else:
        assert node.offsets() == list(range(20))
    assert node.dirs[1].error is None


def test_a_new_name_that_is_refused_leaves_it_where_it_is(node: Node) -> None:
    node.files.refused = "/two/crash-0"
    node.move("/two")
    while node.pool.jobs or node.mover._moves:
        node.live_on(1)
    assert (node.dirs[1].error or "").startswith("rename failed on /two/crash-0")
    assert node.partition.log_dir == "/one"
    node.append(10)
    node.wait_for(node.flusher.flush(node.log))
    assert node.offsets() == list(range(30))
    check_indexes(node.log)


def test_a_file_that_somebody_has_removed_ends_it(node: Node) -> None:
    """It was once looked for again and again."""
    gone = node.log.all_segments()[1].path(".log")
    node.files.remove(gone)
    node.move("/two")
    while node.pool.jobs or node.mover._moves:
        node.live_on(1)
    assert node.partition.log is None
    assert (node.dirs[0].error or "").startswith("read all failed on /one/crash-0")
    assert node.names() == {"/one": ["crash-0"]}


def test_a_snapshot_that_somebody_has_removed_is_not_missed(node: Node) -> None:
    node.wait_for(node.flusher.flush(node.log))
    for offset in node.log.snapshots()[1]:
        node.files.remove(f"/one/crash-0/{offset:020d}.snapshot")
    node.move("/two")
    node.rest()
    assert node.partition.log_dir == "/two"
    assert node.offsets() == list(range(20))


def test_a_disk_that_takes_no_directory_is_told_at_once(node: Node) -> None:
    node.files.failed = "/two"
    assert not node.mover.move(node.partition, "/two")
    assert node.dirs[1].error is not None
    assert not node.log.is_moving


def test_who_waits_for_a_flush_is_answered_from_where_it_is(node: Node) -> None:
    waiting: list[Deferred[None]] = []
    node.move("/two")
    while node.mover._moves:
        node.append()
        waiting.append(node.flusher.flush(node.log))
        node.live_on(1)
    node.rest()
    assert all(one.done and one.error() is None for one in waiting)
    assert node.log.recovery_point == node.log.log_end_offset


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("end", ["given up", "stopped"])
def test_flushes_go_on_after_a_move_that_has_ended(node: Node, end: str, steps: int) -> None:
    """One that was given up while it waited for a flush once kept the next from beginning."""
    flushed = [node.flusher.flush(node.log)]
    node.move("/two")
    node.live_on(steps)
    node.append()
    flushed.append(node.flusher.flush(node.log))
    if end == "given up":
        node.move(node.partition.log_dir)
    else:
        node.mover.stop()
    while node.pool.jobs:
        node.live_on(1)
    assert [one.done for one in flushed] == [True, True]
    node.append()
    node.wait_for(node.flusher.flush(node.log))


def test_it_waits_for_room(node: Node) -> None:
    node.wait_for(node.flusher.flush(node.log))
    node.dirs[1].is_short_of_room = True
    node.move("/two")
    for _ in range(5):
        node.time.advance(10_000)
        assert (node.pool.jobs, node.mover.futures_of("/two")[0].size) == ([], 0)
    node.dirs[1].is_short_of_room = False
    node.time.advance(10_000)
    node.rest()
    assert node.names() == {"/two": ["crash-0"]}


def test_what_is_deleted_on_the_way_is_on_no_disk_when_it_arrives() -> None:
    """A segment that retention took out in the last moment once went without a sync; with the power
    lost, it came back in the new place and told deleted records."""
    node = Node()
    node.append(8)
    node.files.record = True
    node.log.advance_log_start(7)
    node.move("/two")
    while node.mover._moves[KEY].relocation.bytes_left():
        node.live_on(1)
    assert node.partition.log_dir == "/one"
    node.log.apply_retention(NOW_MS, node.log.log_end_offset)
    assert len(node.log.delete_below(7)) == 1
    assert node.log.log_start_offset == 7, "all that has changed is the first segment"
    node.rest()
    journal = [operation for operation in node.files.journal if "/two/" in str(operation[1])]
    arrived = next(at for at, one in enumerate(journal) if one[0] == "rename_dir")
    removed = [at for at, one in enumerate(journal[:arrived]) if one[0] == "remove"]
    synced = [at for at, one in enumerate(journal[:arrived]) if one[0] == "sync_dir"]
    assert removed, "it was there"
    assert max(removed) < max(synced)


def test_a_cleaning_under_way_is_given_up(node: Node) -> None:
    node.log.cleaning = cleaning = Cleaning(node.files)
    node.move("/two")
    assert (cleaning.cancelled, node.log.is_moving) == (True, True)
    node.rest()
    assert not node.log.is_moving


def test_what_is_in_the_way_is_kept_aside(node: Node) -> None:
    node.files.put("/two/crash-0/notes", b"mine")
    node.move("/two")
    node.rest()
    assert node.names() == {"/two": ["crash-0", "crash-0-stray"]}
    assert any(path.endswith("-stray/notes") for path in node.files.contents())


def test_a_broker_that_stops_leaves_the_rest_to_the_next(node: Node) -> None:
    node.move("/two")
    node.live_on(1)
    node.mover.stop()
    node.live_on(20)
    assert node.names() == {"/one": ["crash-0"], "/two": ["crash-0-future"]}
    node.die()
    after = Node(node.files)
    assert after.mover.futures_of("/two")
    after.rest()
    assert after.names() == {"/two": ["crash-0"]}
    assert after.offsets() == list(range(20))


def test_what_was_on_its_way_and_is_of_no_topic_goes(node: Node) -> None:
    unique = "0" * 32
    for name in (f"gone-0.{unique}-future", f"crash-0.{unique}-future"):
        node.files.make_dir(f"/one/{name}")
    node.die()
    after = Node(node.files)
    after.rest()
    assert after.names() == {"/one": ["crash-0"]}
    assert not [name for name in node.files.list_dir("/one") if name.startswith("gone")]


def test_no_more_at_once_than_there_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(settings={THREADS: "1"})
    node.append(5)
    begun: list[Any] = []
    real = replica_mover.ReplicaMover._proceed

    def proceed(mover: Any, move: Any) -> None:
        begun.append(move.partition)
        real(mover, move)

    monkeypatch.setattr(replica_mover.ReplicaMover, "_proceed", proceed)
    node.mover._under_way = 1
    node.move("/two")
    assert begun == []
    node.mover._under_way = 0
    node.mover._begin_next()
    assert begun == [node.partition]
    node.rest()
    assert node.names() == {"/two": ["crash-0"]}


def interrupted(pieces: int) -> Disks:
    """What a broker has left that was killed on the way to /two."""
    node = Node(settings={RATE: "4000"})
    node.append(40)
    node.move("/two")
    for _ in range(pieces):
        node.pool.work()
        node.time.advance(60_000)
    assert node.names()["/two"] == ["crash-0-future"]
    node.die()
    return node.files


def written_to_two(files: Disks) -> int:
    """Bytes of records that were written there since."""
    numbers = {
        inode.number
        for path, inode in files.inodes.items()
        if path.startswith("/two/crash-0") and path.endswith(".log")
    }
    writes = [one for one in files.journal if one[0] == "write" and one[1] in numbers]
    return sum(len(content) for _, _, _, content in writes)


def test_a_move_that_a_restart_interrupts_goes_on_from_what_is_there() -> None:
    files = interrupted(9)
    contents = files.contents()
    whole = [
        len(content)
        for path, content in contents.items()
        if "-future/" in path
        and path.endswith(".log")
        and contents[f"/one/crash-0/{path.rpartition('/')[2]}"] == content
    ]
    assert len(whole) > 1
    files.record = True
    node = Node(files)
    before = read_back(node.log)
    node.rest()
    assert node.names() == {"/two": ["crash-0"]}
    assert read_back(node.log) == before
    assert written_to_two(files) == node.log.size - sum(whole), "but for less than a chunk"


def test_what_differs_over_there_is_written_anew() -> None:
    files = interrupted(4)
    future = next(path for path in files.contents() if "-future" in path and "0.log" in path)
    directory = future.rpartition("/")[0]
    files.open(future).write_at(300, b"other")
    files.put(f"{directory}/{99:020d}.log", b"of a log that was cut")
    files.put(f"{directory}/{0:020d}.txnindex", b"of one that was cut too")
    node = Node(files)
    before = read_back(node.log)
    node.rest()
    assert node.names() == {"/two": ["crash-0"]}
    assert read_back(node.log) == before
    names = files.list_dir("/two/crash-0")
    assert not {f"{99:020d}.log", f"{0:020d}.txnindex"} & set(names)
    check_indexes(node.log)


def test_a_copy_that_is_longer_than_the_log_is_cut() -> None:
    files = interrupted(4)
    source = sorted(path for path in files.contents() if "/one/crash-0/" in path and "log" in path)
    future = next(path for path in files.contents() if "-future" in path).rpartition("/")[0]
    last = source[-1].rpartition("/")[2]
    files.put(f"{future}/{last}", files.read(source[-1]) + b"more than there is")
    node = Node(files)
    before = read_back(node.log)
    node.rest()
    assert node.names() == {"/two": ["crash-0"]}
    assert read_back(node.log) == before
    names = [name for name in files.list_dir("/two/crash-0") if name.endswith(".log")]
    assert sum(files.size(f"/two/crash-0/{name}") for name in names) == node.log.size
