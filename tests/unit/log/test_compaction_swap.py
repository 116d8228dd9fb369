"""Goal: a cleaned segment is put in place, or taken back, as a whole.
Method: the steps one by one, and what a restart makes of the files after each of them.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import InvariantError, StorageError
from ottla.log.compaction import LogCleaning
from ottla.log.compaction_plan import CleanedGroup, make_plan
from ottla.log.compaction_swap import Cleaning
from tests.chaos.memory_files import MemoryFiles, Operation
from tests.unit.log.compacting import CompactingWorld, limits


def a_group() -> tuple[CompactingWorld, Cleaning, CleanedGroup]:
    """Three segments, cleaned into one that is not in place yet; an aborted transaction in them."""
    world = CompactingWorld()
    world.open()
    world.put((b"a", b"1"), (b"b", b"1"))
    world.seal()
    world.put((b"a", b"2"), producer_id=3, transactional=True)
    world.end(3, aborted=True)
    world.seal()
    world.put((b"b", b"2"), (b"c", b"1"))
    world.seal()
    world.put((b"a", b"3"))
    candidate = world.candidate()
    assert candidate is not None
    cleaning = Cleaning(world.files)
    world.log.cleaning = cleaning
    plan = make_plan(candidate, world.clock.now_ms)
    job = LogCleaning(world.files, plan, limits(), cleaning)
    step = job.proceed(1)
    while isinstance(step, int):
        step = job.proceed(1)
    assert isinstance(step, CleanedGroup)
    assert step.cleaned.suffixes == [".log", ".index", ".timeindex", ".txnindex", ".extent"]
    return world, cleaning, step


OLD = [0, 1, 2, 4, 5, 6]
NEW = [0, 4, 5, 6]


def after_restart(world: CompactingWorld) -> list[int]:
    other = CompactingWorld(files=copy_of(world.files), written=world.written)
    other.log = world.log
    other.open(recovery_point=world.log.recovery_point, power_lost=False)
    assert not [name for name in other.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert other.log.aborted_transactions(0, 100) == [(3, 2)]
    assert other.latest() == world.expected()
    return other.offsets()


def copy_of(files: MemoryFiles) -> MemoryFiles:
    copy = MemoryFiles()
    copy.directories |= files.directories
    for path, content in files.contents().items():
        copy.put(path, content)
    return copy


def test_step_by_step() -> None:
    world, cleaning, group = a_group()
    assert after_restart(world) == OLD
    cleaning.commit(group.cleaned)
    assert world.offsets() == OLD, "who reads sees nothing of it"
    assert after_restart(world) == NEW
    paths = world.log.put_in_place([one.segment for one in group.sources], group.cleaned)
    cleaning.is_in_place()
    assert world.offsets() == after_restart(world) == NEW
    assert all(path.endswith(".deleted") for path in paths)
    assert sorted(paths) == sorted(
        f"{world.log.directory}/{name}" for name in world.names() if name.endswith(".deleted")
    )
    assert world.log.aborted_transactions(0, 100) == [(3, 2)]
    assert world.latest() == world.expected()


@pytest.mark.parametrize("committed", [False, True])
def test_a_restart_between_any_two_names_finds_old_or_new(committed: bool) -> None:
    world, cleaning, group = a_group()
    if committed:
        cleaning.commit(group.cleaned)
    base = copy_of(world.files)
    world.files.record = True
    if committed:
        world.log.put_in_place([one.segment for one in group.sources], group.cleaned)
    else:
        cleaning.commit(group.cleaned)
    names = [one for one in world.files.journal if one[0] in ("rename", "remove", "create")]
    assert len(names) >= 4
    seen = []
    for count in range(len(names) + 1):
        world.files.inodes = dict(copy_of(base).inodes)
        replay(world.files, names[:count])
        seen.append(after_restart(world))
    assert seen == ([NEW] * len(seen) if committed else [OLD] * (len(seen) - 1) + [NEW])


def test_a_truncation_takes_back_what_is_committed() -> None:
    world, cleaning, group = a_group()
    cleaning.commit(group.cleaned)
    world.log.truncate_to(2)
    assert cleaning.cancelled
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap"))]
    world.log.recovery_point = 0
    world.reopen_killed()
    assert world.offsets() == [0, 1]


def replay(files: MemoryFiles, operations: list[Operation]) -> None:
    for operation in operations:
        inode = files.inodes.pop(operation[1])
        if operation[0] == "rename":
            files.inodes[operation[2]] = inode


@pytest.mark.parametrize("count", range(7))
def test_a_crash_while_it_is_taken_back(count: int) -> None:
    world, cleaning, group = a_group()
    cleaning.commit(group.cleaned)
    base = copy_of(world.files)
    world.files.record = True
    cleaning.cancel()
    names = [one for one in world.files.journal if one[0] in ("rename", "remove")]
    assert len(names) == 6
    world.files.inodes = dict(base.inodes)
    replay(world.files, names[:count])
    assert after_restart(world) == (NEW if count == 0 else OLD)


def test_what_is_in_place_is_not_taken_back() -> None:
    world, cleaning, group = a_group()
    cleaning.commit(group.cleaned)
    world.log.put_in_place([one.segment for one in group.sources], group.cleaned)
    cleaning.is_in_place()
    world.log.truncate_to(6)
    assert world.offsets() == [0, 4, 5]


def test_to_start_anew_takes_it_back_too() -> None:
    world, cleaning, group = a_group()
    cleaning.commit(group.cleaned)
    world.log.truncate_fully_and_start_at(100)
    assert cleaning.cancelled
    assert not [name for name in world.names() if name.endswith(".swap")]


def test_a_log_that_is_closed_leaves_it_to_the_next_start() -> None:
    world, cleaning, group = a_group()
    cleaning.commit(group.cleaned)
    world.reopen_cleanly()
    assert cleaning.cancelled
    assert world.offsets() == NEW


def test_retention_waits_for_the_cleaning() -> None:
    world, _, _ = a_group()
    world.configure(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1)
    now_ms = world.clock.now_ms + 1_000
    assert world.log.apply_retention(now_ms, world.log.log_end_offset) == []
    world.log.cleaning = None
    assert len(world.log.apply_retention(now_ms, world.log.log_end_offset)) == 4


def test_only_segments_of_the_log_are_replaced() -> None:
    world, cleaning, group = a_group()
    cleaning.commit(group.cleaned)
    segments = [one.segment for one in group.sources]
    with pytest.raises(InvariantError):
        world.log._segments.replace(list(reversed(segments)), segments[0])
    assert world.log._segments.hold(segments)
    assert not world.log._segments.hold([*segments, segments[0]])


def test_a_disk_that_fails_is_told() -> None:
    world, cleaning, group = a_group()
    world.files.remove(group.cleaned.path(".index", ".cleaned"))
    with pytest.raises(StorageError):
        cleaning.commit(group.cleaned)


def test_segments_that_were_merged_can_be_truncated_into() -> None:
    world, cleaning, group = a_group()
    world.swap(cleaning, group)
    world.log.truncate_to(5)
    assert world.log.log_end_offset == 4, "a batch is cut as a whole"
    assert world.offsets() == [0]
