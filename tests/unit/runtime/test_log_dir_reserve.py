"""Goal: producers are stopped before a disk is full, and let in again, each told once; the disk is
asked as often as it takes and no more.
Method: real log dirs whose file system the test plays, virtual time, a pool that works at once.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.log.log_dir import LogDir
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.runtime.log_dir_reserve import LOOK_MS_MAX, LOOK_MS_MIN, LogDirReserve, Room
from tests.unit.runtime.test_local_replicas import Broker, Pool, state

MIB = 1 << 20
DISK = 100_000 * MIB


class World:
    """A broker with a partition in each of two log dirs, and how much is left there."""

    def __init__(self, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = Broker(disk, ("one", "two")).load(state(1), state(1))
        self.free = {one.path: DISK // 2 for one in self.broker.dirs}
        self.total = DISK
        self.looks = 0
        self.settings: dict[str, str] = {}

        def space(log_dir: LogDir) -> tuple[int, int]:
            self.looks += 1
            return self.total, self.free[log_dir.path]

        monkeypatch.setattr(LogDir, "space", space)
        self.reserve = LogDirReserve(
            replicas=self.broker.replicas,
            timers=self.broker.time,
            pool=Pool(),
            config=lambda: BrokerConfig(self.settings),
        )
        self.reserve.start()

    def leave(self, free: int, *, of: int = 0) -> None:
        """So much is left on one of the disks, and a second passes."""
        self.free[self.broker.dirs[of].path] = free
        self.broker.time.advance(LOOK_MS_MAX)

    def short(self) -> list[bool]:
        """Of the partitions, in the order of their log dirs."""
        found = sorted(self.broker.replicas.all(), key=lambda one: one.log_dir)
        return [one.is_short_of_room for one in found]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_it_begins_below_the_reserve_and_ends_a_little_above(world: World) -> None:
    world.leave(64 * MIB)
    assert world.short() == [False, False]
    world.leave(64 * MIB - 1)
    assert world.short() == [True, False], "the other disk goes on"
    world.leave(72 * MIB - 1)
    assert world.short() == [True, False]
    world.leave(72 * MIB)
    assert world.short() == [False, False]


def test_each_change_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.runtime")
    for free in (10 * MIB, 9 * MIB, 8 * MIB, 100 * MIB, 101 * MIB):
        world.leave(free)
    path = world.broker.dirs[0].path
    assert [record.getMessage() for record in caplog.records] == [
        f"log dir {path} has {10 * MIB} bytes left, less than its reserve of {64 * MIB}: "
        "produce is refused",
        f"log dir {path} has {100 * MIB} bytes left: produce goes on",
    ]


def test_a_small_disk_keeps_a_hundredth(world: World) -> None:
    world.total = 100 * MIB
    world.leave(MIB)
    assert world.short() == [False, False]
    world.leave(MIB - 1)
    assert world.short() == [True, False]


def test_what_is_set_is_taken_as_it_is_while_it_runs(world: World) -> None:
    world.settings = {"ottla.log.dir.reserve.bytes": str(DISK // 4)}
    world.leave(DISK // 5)
    assert world.short() == [True, False]
    world.settings = {"ottla.log.dir.reserve.bytes": "0"}
    world.leave(0)
    assert world.short() == [False, False]


def test_a_new_partition_finds_it_as_it_is(world: World) -> None:
    world.leave(MIB)
    world.leave(MIB, of=1)
    world.broker.apply(state(1), state(1), state(1))
    assert world.short() == [True, True, True]


def test_it_looks_the_more_often_the_less_is_left(world: World) -> None:
    def looks_in_a_second() -> int:
        before = world.looks
        world.broker.time.advance(1_000)
        return (world.looks - before) // len(world.broker.dirs)

    assert looks_in_a_second() == 1
    world.leave(64 * MIB)
    assert looks_in_a_second() == 1_000 // 33, "what is written meanwhile is in the reserve"
    world.settings = {"ottla.log.dir.reserve.bytes": str(MIB)}
    world.leave(2 * MIB)
    assert looks_in_a_second() == 1_000 // LOOK_MS_MIN
    world.settings = {}
    world.leave(MIB)
    assert looks_in_a_second() == 1, "it may take a while until there is room"
    world.reserve.stop()
    assert looks_in_a_second() == 0


def test_a_disk_that_can_not_be_asked_is_left_alone(world: World) -> None:
    world.total = 0
    world.leave(0)
    assert world.short() == [False, False]


def test_what_it_found_can_be_seen(world: World) -> None:
    world.leave(MIB)
    one, two = world.broker.dirs
    assert world.reserve.rooms() == [
        Room(one.path, MIB, 64 * MIB, True),
        Room(two.path, DISK // 2, 64 * MIB, False),
    ]
    one.error = "broken"
    assert [room.log_dir for room in world.reserve.rooms()] == [two.path]
