"""Goal: every state a partition directory may be in opens to the log it holds.
Method: directories with parts missing, left over or stale; clean stops and others.
"""

from __future__ import annotations

import uuid

from ottla.log.log_config import LogConfig
from ottla.log.open_log import open_log
from ottla.log.partition_metadata import read_partition_metadata
from tests.chaos.memory_files import MemoryFiles
from tests.unit.log.world import DIRECTORY, ManualClock, World, all_offsets, batch


def a_world(batches: int = 6, **settings: int) -> World:
    world = World(config=LogConfig(**settings))  # type: ignore[arg-type]
    world.open()
    world.fill(batches)
    return world


def test_a_new_directory() -> None:
    world = World()
    log = world.open(log_start_offset=5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert world.names() == [f"{5:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]
    assert world.append(batch()).base_offset == 5


def test_the_topic_id_of_a_new_directory() -> None:
    files = MemoryFiles()
    topic_id = uuid.UUID(int=77)
    for given in (topic_id, uuid.UUID(int=78)):
        open_log(
            files,
            DIRECTORY,
            "topic",
            0,
            config=LogConfig(),
            recovery_point=0,
            log_start_offset=0,
            clean=False,
            clock=ManualClock(),
            producer_id_expiration_ms=1,
            topic_id=given,
        )
        assert read_partition_metadata(files, DIRECTORY) == topic_id, "only a new one is named"


def test_a_clean_stop_is_believed() -> None:
    world = a_world(20, segment_bytes=500)
    world.damage(0, 100, b"\xee")
    log = world.reopen_cleanly()
    assert (world.report.segments_recovered, log.log_end_offset) == (0, 20)
    assert log.recovery_point == 20
    assert log._cache.open_count() == 0, "nothing stays open"


def test_a_clean_stop_is_believed_only_if_the_log_ends_there() -> None:
    world = a_world()
    world.log.close()
    log = world.open(clean=True, recovery_point=4)
    assert world.report.segments_recovered == 1
    assert (log.log_end_offset, log.recovery_point) == (6, 4)
    assert world.report.notes


def test_a_clean_stop_with_a_broken_end_is_recovered() -> None:
    world = a_world()
    world.log.close()
    world.files.open(world.path(0)).append([b"\xff" * 9])
    log = world.open(clean=True, recovery_point=6)
    assert (world.report.bytes_cut, log.log_end_offset) == (9, 6)


def test_missing_indexes_are_made_anew() -> None:
    world = a_world(30, index_interval_bytes=300, segment_bytes=2000)
    world.log.close()
    good = world.files.contents()
    for path in good:
        if path.endswith("index"):
            world.files.remove(path)
    log = world.open(clean=True, recovery_point=30)
    assert world.files.contents() == good
    assert world.report.indexes_rebuilt == world.report.segments
    assert all_offsets(log) == list(range(30))


def test_a_log_without_its_index_but_with_a_time_index() -> None:
    world = a_world(30, index_interval_bytes=300)
    world.log.close()
    world.files.remove(world.path(0, ".index"))
    log = world.open(clean=True, recovery_point=30)
    assert (world.report.indexes_rebuilt, log.log_end_offset) == (1, 30)


def test_orphaned_indexes_go() -> None:
    world = a_world()
    world.log.close()
    world.files.put(world.path(50, ".index"), bytes(8))
    world.files.put(world.path(50, ".timeindex"), bytes(12))
    world.files.put(world.path(50, ".txnindex"), bytes(34))
    world.open(clean=True, recovery_point=6)
    assert not [name for name in world.names() if name.startswith(f"{50:020d}")]
    assert len(world.report.notes) == 3


def test_files_of_others_are_left_alone() -> None:
    world = a_world()
    world.files.put(f"{DIRECTORY}/notes.txt", b"mine")
    world.files.put(f"{DIRECTORY}/remote_log_snapshot", b"tiered")
    world.reopen_killed()
    assert {"notes.txt", "remote_log_snapshot"} <= set(world.names())


def test_the_log_start_comes_from_the_checkpoint_or_the_first_segment() -> None:
    world = a_world()
    world.log.close()
    assert world.open(clean=True, recovery_point=6, log_start_offset=3).log_start_offset == 3
    other = a_world(6, segment_bytes=400, retention_bytes=500)
    other.log.apply_retention(1, 6)
    other.log.delete_below(6)
    first = other.log.first_segment_offset
    assert first > 0
    other.log.close()
    assert other.open(clean=True, recovery_point=6).log_start_offset == first


def test_a_log_that_ends_before_its_start_was_deleted_before_it_was_lost() -> None:
    world = a_world()
    log = world.reopen_killed()
    log.abandon()
    log = world.open(log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (10, 10, 10)
    assert [name for name in world.names() if name.endswith(".log")] == [f"{10:020d}.log"]
    assert world.report.deleted_paths


def test_stray_snapshots_go() -> None:
    world = a_world(30, segment_bytes=2000)
    world.log.close()
    snapshot = world.content(30, ".snapshot")
    for offset in (7, 9, 40):
        world.files.put(world.path(offset, ".snapshot"), snapshot)
    world.open(clean=True, recovery_point=30)
    bases = {int(name[:20]) for name in world.names() if name.endswith(".log")}
    kept = {int(name[:20]) for name in world.names() if name.endswith(".snapshot")}
    assert kept <= bases | {30}
    assert 30 in kept


def test_a_broken_snapshot_is_replaced_by_what_the_batches_say() -> None:
    world = World()
    world.open()
    for number in range(3):
        world.append(batch(1, producer_id=7, sequence=number))
    world.log.close()
    world.files.put(world.path(3, ".snapshot"), b"\0\1broken")
    log = world.open(clean=True, recovery_point=3)
    assert log.producers.entries[7].next_sequence == 3
    assert log.producers.entries[7].complete, "all of its batches were seen"


def test_a_snapshot_spares_the_batches_before_it() -> None:
    world = World(config=LogConfig(segment_bytes=500))
    world.open()
    for number in range(12):
        world.append(batch(1, size=60, producer_id=7, sequence=number))
    world.flush()
    log = world.reopen_killed()
    entry = log.producers.entries[7]
    assert (entry.next_sequence, entry.complete) == (12, False)
    assert world.append(batch(1, size=60, producer_id=7, sequence=9)).base_offset == 9


def test_ten_thousand_idle_partitions_hold_nothing_open() -> None:
    world = a_world(3)
    log = world.reopen_cleanly()
    assert all(segment.file is None for segment in log._segments.items)
    assert all(segment.offset_index.mapped.capacity == 0 for segment in log._segments.items)


def test_deleted_segments_that_a_power_cut_brings_back_go() -> None:
    world = a_world(12, segment_bytes=400)
    bases = [one.base_offset for one in world.log.all_segments()]
    world.flush()
    world.log.advance_log_start(bases[3] + 1)
    start, point = world.log.log_start_offset, world.log.recovery_point
    world.log.abandon()
    # Of three that were deleted the one in the middle stayed so, and another is torn.
    for suffix in (".log", ".index", ".timeindex"):
        world.files.remove(world.path(bases[1], suffix))
    world.damage(bases[2], 0, bytes(30))
    world.open(recovery_point=point, log_start_offset=start)
    assert world.report.corrupt is None
    assert [one.base_offset for one in world.log.all_segments()] == bases[3:]
    assert (world.log.log_start_offset, world.log.log_end_offset) == (start, 12)
    assert not [
        name for name in world.names() if name.endswith(".log") and int(name[:20]) < start - 1
    ]
    world.log.abandon()
    world.open()
    assert world.log.log_start_offset == bases[3], "they stay away, whatever the checkpoint says"


def test_records_that_are_back_have_their_epochs() -> None:
    """The epochs were flushed after the deletion, the log start was not."""
    world = a_world(0, segment_bytes=400)
    for epoch in range(5):
        world.epoch = epoch
        world.fill(3)
    world.log.advance_log_start(10)
    world.flush()
    point = world.log.recovery_point
    world.log.abandon()
    world.open(recovery_point=point, log_start_offset=4)
    assert world.log.leader_epochs.entries() == [(1, 4), (2, 6), (3, 9), (4, 12)]
    world.flush()
    world.log.abandon()
    world.open(recovery_point=point, log_start_offset=4)
    assert world.log.leader_epochs.entries() == [(1, 4), (2, 6), (3, 9), (4, 12)]
