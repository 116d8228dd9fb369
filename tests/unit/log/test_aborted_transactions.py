"""Goal: a reader is told of the aborted transactions that have to do with what it got, and no more.
Method: one aborted transaction after the other, read batch by batch, with the index in memory and
after it was read from its file.
"""

from __future__ import annotations

import pytest

from ottla.log.file_cache import FileCache
from ottla.log.log_config import LogConfig
from ottla.log.segment import LogSlice
from tests.unit.log.world import World, batch

COUNT = 20


@pytest.fixture
def world() -> World:
    """Transaction n of producer n: a record at 2n, its abort at 2n + 1."""
    world = World()
    world.open()
    for number in range(COUNT):
        world.append(batch(producer_id=number, transactional=True))
        world.end_transaction(number, aborted=True)
    return world


def first_batches(world: World, offset: int, max_bytes: int = 1) -> LogSlice:
    read = world.log.read(offset, max_bytes, world.log.log_end_offset)
    assert read is not None
    return read


@pytest.mark.parametrize("is_reopened", [False, True])
def test_only_those_in_what_was_read(world: World, is_reopened: bool) -> None:
    if is_reopened:
        world.reopen_cleanly()
    log, end = world.log, world.log.log_end_offset
    for number in range(COUNT):
        for offset in (2 * number, 2 * number + 1):
            told = log.aborted_transactions(offset, end, first_batches(world, offset))
            assert told == [(number, 2 * number)]
    assert len(log.aborted_transactions(0, end, first_batches(world, 0, 1 << 20))) == COUNT
    assert len(log.aborted_transactions(0, end)) == COUNT


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_read_up_to_the_end_of_a_segment_tells_nothing_of_those_behind(max_bytes: int) -> None:
    world = World(config=LogConfig(segment_bytes=400))
    world.open()
    for number in range(COUNT):
        world.append(batch(producer_id=number, transactional=True))
        world.end_transaction(number, aborted=True)
    log, end = world.log, world.log.log_end_offset
    behind = [segment.base_offset for segment in log.all_segments()[1:]] + [end]
    assert len(behind) > 4
    for offset in range(end):
        last = next(base for base in behind if base > offset) - 1 if max_bytes > 1 else offset
        told = log.aborted_transactions(offset, end, first_batches(world, offset, max_bytes))
        assert told == [(number, 2 * number) for number in range(offset // 2, last // 2 + 1)]


def test_what_is_truncated_is_forgotten_and_what_comes_after_is_known(world: World) -> None:
    world.log.truncate_to(10)
    assert len(world.log.aborted_transactions(0, 100)) == 5
    world.append(batch(producer_id=77, transactional=True))
    world.end_transaction(77, aborted=True)
    assert world.log.aborted_transactions(9, 100) == [(4, 8), (77, 10)]
    world.reopen_cleanly()
    assert world.log.aborted_transactions(9, 100) == [(4, 8), (77, 10)]


def test_a_transaction_that_began_long_before_is_told(world: World) -> None:
    world.append(batch(producer_id=88, transactional=True))
    world.fill(3)
    world.end_transaction(88, aborted=True)
    begin = 2 * COUNT
    told = world.log.aborted_transactions(begin + 2, begin + 5, first_batches(world, begin + 2))
    assert told == [(88, begin)]


def test_segments_that_are_given_up_keep_no_index_in_memory() -> None:
    """Also those of which nothing but the index was read."""
    world = World(config=LogConfig(segment_bytes=400))
    world.open()
    for number in range(COUNT):
        world.append(batch(producer_id=number, transactional=True))
        world.end_transaction(number, aborted=True)
    segments = world.log.all_segments()
    cache = FileCache(descriptors_max=6)
    for segment in segments:
        segment.use_cache(cache)
    assert len(segments) > 4
    for _ in range(2):
        assert len(world.log.aborted_transactions(0, world.log.log_end_offset)) == COUNT
        kept = [one for one in segments if one.txn_index.is_in_memory()]
        assert len(kept) <= 2
