"""Goal: the recovery point never says more than the disk holds; a failed sync is the end.
Method: a file system in memory that counts syncs and can refuse them.
"""

from __future__ import annotations

import errno
import uuid

import pytest

from ottla.base.errors import InvariantError, StorageError
from ottla.log.log_config import LogConfig
from ottla.log.open_log import open_log
from ottla.log.partition_log import FlushJob
from tests.chaos.memory_files import MemoryFile, MemoryFiles
from tests.unit.log.world import ManualClock, World, batch


def a_world(**settings: int) -> World:
    world = World(files=MemoryFiles(record=True), config=LogConfig(**settings))  # type: ignore[arg-type]
    world.open()
    return world


def job_of(world: World, *, sealed_only: bool = False) -> FlushJob:
    job = world.log.flush_job(sealed_only=sealed_only)
    assert job is not None
    return job


def test_what_is_appended_while_it_runs_is_not_covered() -> None:
    world = a_world()
    world.fill(3)
    job = job_of(world)
    world.fill(2)
    job.run()
    world.log.flush_done(job)
    assert (world.log.recovery_point, world.log.unflushed_messages) == (3, 2)
    assert world.log.last_flush_ms == world.clock.now_ms


def test_nothing_to_do() -> None:
    world = a_world()
    world.fill(3)
    world.flush()
    assert world.log.flush_job() is None
    assert world.log.flush_job(sealed_only=True) is None


def test_a_flush_for_an_acknowledgement_is_one_sync() -> None:
    world = a_world()
    world.fill(3)
    world.flush()
    world.fill(1)
    job = job_of(world)
    before = len(world.files.journal)
    job.run()
    assert [operation[0] for operation in world.files.journal[before:]] == ["sync"]


def test_after_a_roll_the_sealed_segments_alone() -> None:
    world = a_world(segment_bytes=500)
    world.fill(7)
    active = world.log._active.base_offset
    assert active > 0
    job = job_of(world, sealed_only=True)
    job.run()
    world.log.flush_done(job)
    assert world.log.recovery_point == active
    assert world.log.flush_job(sealed_only=True) is None
    assert f"{active:020d}.snapshot" in world.names()


def test_one_at_a_time() -> None:
    world = a_world()
    world.fill(1)
    job_of(world)
    with pytest.raises(InvariantError):
        world.log.flush_job()


def test_a_truncation_while_it_runs_takes_the_flush_back() -> None:
    world = a_world(segment_bytes=500)
    world.fill(7)
    job = job_of(world)
    world.log.truncate_to(2)
    job.run()
    world.fill(7)
    world.log.flush_done(job)
    assert world.log.recovery_point == 0
    assert not [name for name in world.names() if name.endswith(".snapshot")], (
        "a snapshot of the log before the truncation"
    )
    world.flush()
    assert world.log.recovery_point == 9


def test_a_segment_that_retention_deletes_while_it_runs_is_no_failure() -> None:
    world = a_world(segment_bytes=500, retention_bytes=600)
    world.fill(7)
    for segment in world.log._segments.items:
        segment.close()  # so that the job opens them by their names
    job = job_of(world)
    assert world.log.apply_retention(1, 7)
    assert world.log.delete_below(world.log.log_start_offset)
    job.run()
    world.log.flush_done(job)
    assert world.log.recovery_point == 7


def test_a_log_that_is_deleted_while_it_runs_is_no_failure() -> None:
    world = a_world()
    world.fill(3)
    job = job_of(world)
    directory = world.log.directory
    world.log.abandon()
    world.files.rename(directory, f"{directory}.aside")
    job.run()
    world.log.flush_done(job)


def test_nothing_of_a_deleted_log_is_written_into_the_one_of_its_name() -> None:
    world = a_world()
    world.fill(3)
    job = job_of(world)
    assert job.documents
    directory = world.log.directory
    world.log.abandon()
    world.files.rename(directory, f"{directory}.aside")
    world.files.make_dir(directory)
    job.run()
    assert world.files.list_dir(directory) == []
    assert world.log.flush_job() is None


def test_a_failed_sync_is_never_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    world.fill(3)

    def refuse(file: MemoryFile) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "sync", refuse)
        job = job_of(world)
        with pytest.raises(StorageError) as failure:
            job.run()
        assert isinstance(failure.value.__cause__, OSError)
    assert world.log.recovery_point == 0
    with pytest.raises(StorageError):
        world.log.flush_job()


def test_a_full_disk_refuses_the_append_and_keeps_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    world.fill(3)

    def refuse(file: MemoryFile, buffers: list[bytes]) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "append", refuse)
        with pytest.raises(StorageError) as failure:
            world.append(batch())
        assert failure.value.path == world.log.directory
    assert world.log.log_end_offset == 3
    world.fill(1)
    assert world.log.log_end_offset == 4
    world.reopen_killed()
    assert world.log.log_end_offset == 4


def test_a_disk_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    world.fill(3)

    def refuse(file: MemoryFile, position: int, size: int) -> bytes:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(MemoryFile, "read_at", refuse)
    with pytest.raises(StorageError):
        world.log.read(1, 10**6, 3)
    with pytest.raises(StorageError):
        world.log.times().first_since(1, 3).run()


def test_to_close_an_untouched_log_costs_nothing() -> None:
    world = a_world()
    world.fill(3)
    world.reopen_cleanly()
    before = len(world.files.journal)
    world.log.close()
    assert len(world.files.journal) == before


def test_flushed_is_not_closed() -> None:
    world = a_world(index_interval_bytes=100)
    world.fill(7)
    world.flush()
    assert world.files.size(world.path(0, ".index")) == 4096
    world.log.close()
    assert world.files.size(world.path(0, ".index")) < 100
    assert f"{7:020d}.snapshot" in world.names()


def test_what_was_made_before_a_kill_is_flushed_with_its_directories() -> None:
    world = a_world(segment_bytes=500)
    world.fill(7)
    world.reopen_killed()
    job = job_of(world)
    before = len(world.files.journal)
    job.run()
    synced = {one[1] for one in world.files.journal[before:] if one[0] == "sync_dir"}
    assert synced == {"/data", world.log.directory}


def test_the_first_flush_makes_known_whose_records_these_are() -> None:
    files = MemoryFiles(record=True)
    log, _ = open_log(
        files,
        "/data/t-0",
        "t",
        0,
        topic_id=uuid.UUID(int=7),
        config=LogConfig(),
        recovery_point=0,
        log_start_offset=0,
        clean=False,
        clock=ManualClock(),
        producer_id_expiration_ms=1000,
    )
    job = log.flush_job()
    assert job is not None
    job.run()
    number = files.inodes["/data/t-0/partition.metadata"].number
    assert ("sync", number) in files.journal


def test_close_leaves_everything_in_order() -> None:
    world = a_world(segment_bytes=500, index_interval_bytes=100)
    world.fill(7)
    world.epoch = 2
    world.append(batch(producer_id=7, sequence=0))
    world.log.close()
    assert world.log.recovery_point == 8
    assert f"{8:020d}.snapshot" in world.names()
    assert world.files.read(world.log.directory + "/leader-epoch-checkpoint") == b"0\n2\n0 0\n2 7\n"
    for name in world.names():
        size = world.files.size(f"{world.log.directory}/{name}")
        if name.endswith(".index"):
            assert size % 8 == 0 and size < 100
        if name.endswith(".timeindex"):
            assert size % 12 == 0 and 0 < size < 100


def test_a_snapshot_on_demand() -> None:
    world = a_world()
    world.log.snapshot_producers()
    assert not [name for name in world.names() if name.endswith(".snapshot")]
    world.append(batch(producer_id=7, sequence=0))
    world.log.snapshot_producers()
    world.log.snapshot_producers()
    assert [name for name in world.names() if name.endswith(".snapshot")] == [f"{1:020d}.snapshot"]
