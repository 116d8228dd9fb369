"""Goal: the dump tells what is in the files, broken ones included.
Method: files written by the log, then damaged.
"""

from __future__ import annotations

from ottla.log import dump
from ottla.log.log_config import LogConfig
from tests.unit.log.world import NOW_MS, World, batch


def a_world() -> World:
    world = World(config=LogConfig(index_interval_bytes=300))
    world.open()
    world.epoch = 3
    for number in range(10):
        world.append(batch(2, size=100, producer_id=7, sequence=2 * number, transactional=True))
    world.end_transaction(7, aborted=True)
    return world


def test_batches() -> None:
    world = a_world()
    file = world.files.open(world.path(0))
    dumped = dump.dump_log(file)
    assert (dumped.broken_at, dumped.size, len(dumped.batches)) == (-1, len(world.content(0)), 11)
    third, last = dumped.batches[2], dumped.batches[-1]
    assert (third.base_offset, third.last_offset, third.record_count) == (4, 5, 2)
    assert (third.base_sequence, third.last_sequence, third.producer_id) == (4, 5, 7)
    assert (third.leader_epoch, third.magic, third.codec, third.is_valid) == (3, 2, 0, True)
    assert (third.timestamp_type, third.max_timestamp) == ("CreateTime", NOW_MS)
    assert (third.is_transactional, third.is_control, third.delete_horizon_ms) == (
        True,
        False,
        None,
    )
    assert (last.is_control, last.base_sequence, last.last_sequence) == (True, -1, -1)
    assert [record.offset for record in dump.records_in(file, third)] == [4, 5]


def test_a_wrong_crc_is_shown_and_the_rest_too() -> None:
    world = a_world()
    world.damage(0, dump.dump_log(world.files.open(world.path(0))).batches[1].position + 80, b"x")
    dumped = dump.dump_log(world.files.open(world.path(0)))
    assert [one.is_valid for one in dumped.batches] == [True, False, *[True] * 9]


def test_a_broken_tail_is_shown() -> None:
    world = a_world()
    size = len(world.content(0))
    world.files.open(world.path(0)).append([b"\xff" * 70])
    dumped = dump.dump_log(world.files.open(world.path(0)))
    assert (dumped.broken_at, dumped.size) == (size, size + 70)
    assert dump.dump_log(world.files.open(world.path(0, ".index"))).broken_at in (-1, 0)


def test_indexes_with_and_without_space_behind() -> None:
    world = a_world()
    running = dump.dump_offset_index(world.content(0, ".index"), 0)
    running_times = dump.dump_time_index(world.content(0, ".timeindex"), 0)
    world.log.close()
    assert running == dump.dump_offset_index(world.content(0, ".index"), 0)
    assert running_times == dump.dump_time_index(world.content(0, ".timeindex"), 0)
    assert len(running) > 3
    assert running_times[0][0] == NOW_MS
    assert dump.check_offset_index(running, world.files.open(world.path(0))) == []


def test_faults_of_an_index() -> None:
    world = a_world()
    file = world.files.open(world.path(0))
    position = dump.dump_log(file).batches[2].position
    faults = dump.check_offset_index([(5, position), (6, position), (9, 17), (9, 10**6)], file)
    assert [fault.slot for fault in faults] == [1, 2, 3]
    assert faults[0].reason == "the batch there ends with offset 5"


def test_transactions_and_producers() -> None:
    world = a_world()
    world.log.close()
    [aborted] = dump.dump_txn_index(world.content(0, ".txnindex"))
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 0, 20)
    producers = dump.dump_snapshot(world.content(21, ".snapshot"))
    assert producers is not None
    assert [(one.producer_id, one.last_sequence) for one in producers] == [(7, 19)]
    assert dump.dump_snapshot(b"\0\1") is None


def test_kinds_of_files() -> None:
    assert dump.kind_of("/data/t-0/00000000000000000012.log") == ".log"
    assert dump.kind_of("00000000000000000012.timeindex.deleted") == ".timeindex"
    assert dump.kind_of("00000000000000000012.snapshot") == ".snapshot"
    assert dump.kind_of("00000000000000000012.txt") is None
    assert dump.kind_of("leader-epoch-checkpoint") is None
    assert dump.base_offset_of("/data/t-0/00000000000000000012.log") == 12
    assert dump.base_offset_of("/data/t-0/12.log") == 0
