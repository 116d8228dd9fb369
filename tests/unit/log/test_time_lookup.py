"""Goal: a time gives the first record that is not older, the largest timestamp its first record.
Method: all answers compared with a search through every record; batches with times out of order.
"""

from __future__ import annotations

import pytest

from ottla.log.log_config import LogConfig
from ottla.records import compression
from ottla.records.batch_builder import RecordToWrite, build_batch
from tests.unit.log.world import World

TIMES = [[10, 12, 11], [5, 30], [20, 20], [31, 7], [6], [40, 39, 40], [1, 1]]


def a_world(codec: int = compression.NONE, *, append_time: bool = False) -> World:
    world = World(config=LogConfig(segment_bytes=260, index_interval_bytes=50))
    world.open()
    for epoch, times in enumerate(TIMES):
        world.epoch = epoch
        content = build_batch(
            [RecordToWrite(time, None, b"v") for time in times],
            codec=codec,
            timestamp_type=int(append_time),
        )
        world.append(content)
    return world


RECORDS = [(time, epoch) for epoch, times in enumerate(TIMES) for time in times]


def expected(timestamp: int, start: int, bound: int) -> tuple[int, int, int] | None:
    for offset, (time, epoch) in enumerate(RECORDS):
        if offset >= start and time >= timestamp:
            return (time, offset, epoch) if offset < bound else None
    return None


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
@pytest.mark.parametrize("restart", [False, True])
def test_every_time_and_bound(codec: int, restart: bool) -> None:
    world = a_world(codec)
    log = world.reopen_cleanly() if restart else world.log
    end = log.log_end_offset
    for start in (0, 4, 9):
        log.advance_log_start(start)
        for timestamp in range(45):
            for bound in (5, end):
                answer = log.times().first_since(timestamp, bound).run()
                assert answer == expected(timestamp, start, bound), (start, timestamp, bound)


def test_the_largest_timestamp() -> None:
    log = a_world().log
    end = log.log_end_offset
    assert log.times().latest(end).run() == (40, 10, 5)
    for bound in range(11):  # in its segment, and in those before
        assert log.times().latest(bound).run() is None, "it is not readable yet"
    empty = World()
    empty.open()
    assert empty.log.times().latest(0).run() is None
    assert empty.log.times().first_since(0, 0).run() is None


def test_of_equal_timestamps_the_first_counts() -> None:
    for segment_bytes in (10**6, 100):
        world = World(config=LogConfig(segment_bytes=segment_bytes))
        world.open()
        for time in (5, 9, 9, 3):
            world.append(build_batch([RecordToWrite(time, None, b"v")]))
        assert world.log.times().latest(4).run() == (9, 1, 0)


@pytest.mark.parametrize("segment_bytes", [10**6, 100])
@pytest.mark.parametrize("restart", [False, True])
def test_of_records_without_a_time_the_first_counts(segment_bytes: int, restart: bool) -> None:
    world = World(config=LogConfig(segment_bytes=segment_bytes))
    world.open()
    for _ in range(3):
        world.append(build_batch([RecordToWrite(-1, None, b"v")] * 2))
    log = world.reopen_cleanly() if restart else world.log
    assert log.times().latest(6).run() == (-1, 0, 0)
    assert log.times().first_since(0, 6).run() is None


def test_the_largest_timestamp_is_told_for_as_long_as_its_segment_is_there() -> None:
    """Kafka does not ask whether the record is below the log start, and neither do its clients:
    none would mean that the log is empty."""
    for append_time in (False, True):
        world = a_world(append_time=append_time)
        world.log.advance_log_start(13)
        assert world.log.times().latest(14).run() == (40, 10, 5)
        world.log.advance_log_start(14)
        assert world.log.times().latest(14).run() == (40, 10, 5)


def test_with_append_time_all_records_of_a_batch_have_its_time() -> None:
    log = a_world(append_time=True).log
    assert log.times().first_since(21, 13).run() == (30, 3, 1)
    log.advance_log_start(4)
    assert log.times().first_since(21, 13).run() == (30, 4, 1)
