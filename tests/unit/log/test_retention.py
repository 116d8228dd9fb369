"""Goal: what has expired goes, whole segments from the oldest on, and nothing else.
Method: a partition in memory with small segments; time and sizes moved by hand.
"""

from __future__ import annotations

from ottla.log.log_config import LogConfig
from tests.unit.log.world import NOW_MS, World, all_offsets, batch

SIZE = len(batch(size=100))


def a_world(**settings: object) -> World:
    """Segments of two batches each, one batch a millisecond."""
    config = LogConfig(segment_bytes=2 * SIZE, retention_ms=-1)
    for name, value in settings.items():
        object.__setattr__(config, name, value)
    world = World(config=config)
    world.open()
    return world


def retained(world: World, *, now_ms: int = NOW_MS, upper_bound: int | None = None) -> list[int]:
    """Base offsets of the deleted segments."""
    bound = world.log.log_end_offset if upper_bound is None else upper_bound
    expired = [one.base_offset for one, _ in world.log.apply_retention(now_ms, bound)]
    deleted = world.log.delete_below(world.log.log_start_offset)
    assert [one.base_offset for one in deleted] == expired
    return expired


def test_nothing_expires_without_a_setting() -> None:
    world = a_world()
    world.fill(9)
    assert retained(world, now_ms=NOW_MS + 10**12) == []


def test_by_size_only_what_is_over_it() -> None:
    world = a_world(retention_bytes=5 * SIZE)
    world.fill(9)
    assert retained(world) == [0, 2]
    assert world.log.size == 5 * SIZE
    assert (world.log.log_start_offset, world.log.first_segment_offset) == (4, 4)
    assert all_offsets(world.log) == list(range(4, 9))


def test_by_time_of_the_newest_record() -> None:
    world = a_world(retention_ms=1000)
    world.fill(9)
    assert retained(world, now_ms=NOW_MS + 1003) == [0], "its newest record is a millisecond old"
    assert retained(world, now_ms=NOW_MS + 1004) == [2]
    assert retained(world, now_ms=NOW_MS + 1004) == []


def test_time_is_known_after_a_restart() -> None:
    world = a_world(retention_ms=1000)
    world.fill(9)
    world.reopen_cleanly()
    assert retained(world, now_ms=NOW_MS + 1004) == [0, 2]


def test_the_active_segment_expires_after_a_roll() -> None:
    world = a_world(retention_ms=1000)
    world.fill(5)
    assert retained(world, now_ms=NOW_MS + 10_000) == [0, 2, 4]
    assert (world.log.log_start_offset, world.log.log_end_offset, world.log.size) == (5, 5, 0)
    assert retained(world, now_ms=NOW_MS + 20_000) == [], "an empty one stays"
    world.fill(1)
    assert all_offsets(world.log) == [5]


def test_nothing_above_the_high_watermark() -> None:
    world = a_world(retention_ms=1000)
    world.fill(9)
    assert retained(world, now_ms=NOW_MS + 10_000, upper_bound=5) == [0, 2]


def test_what_lies_below_the_log_start() -> None:
    world = a_world(cleanup_policy=frozenset({"compact"}), retention_ms=1)
    world.fill(9)
    assert retained(world, now_ms=NOW_MS + 10_000) == [], "compacted topics keep what is old"
    world.log.advance_log_start(5)
    assert retained(world) == [0, 2]
    assert world.log.log_start_offset == 5
    assert retained(world) == []


def test_files_are_renamed_first_and_gone_after_a_restart() -> None:
    world = a_world(retention_bytes=5 * SIZE)
    world.fill(9)
    world.flush()
    expired = world.log.apply_retention(NOW_MS, 9)
    deleted = world.log.delete_below(4)
    paths = [path for one in deleted for path in one.paths]
    assert all(path.endswith(".deleted") and world.files.exists(path) for path in paths)
    assert {path.rpartition("/")[2][:20] for path in paths} == {f"{0:020d}", f"{2:020d}"}
    assert [reason for _, reason in expired] == ["retention.bytes"] * 2
    world.reopen_killed()
    assert not [name for name in world.names() if name.endswith(".deleted")]
    assert (world.log.log_start_offset, world.log.log_end_offset) == (4, 9)


def test_snapshots_go_with_their_segments() -> None:
    world = a_world(retention_bytes=5 * SIZE)
    for _ in range(9):
        world.fill(1)
        world.flush()
    assert f"{2:020d}.snapshot" in world.names()
    retained(world)
    kept = [name for name in world.names() if name.endswith(".snapshot")]
    assert kept == [f"{base:020d}.snapshot" for base in (4, 6, 8)]


def test_nothing_goes_before_the_log_start_is_on_the_disk() -> None:
    world = a_world(retention_bytes=5 * SIZE)
    world.fill(9)
    world.log.apply_retention(NOW_MS, 9)
    assert all_offsets(world.log) == list(range(4, 9)), "nobody reads it any more"
    assert world.log.delete_below(1) == []
    assert [one.base_offset for one in world.log.delete_below(3)] == [0]
    assert [one.base_offset for one in world.log.delete_below(100)] == [2]
    assert (world.log.log_start_offset, world.log.first_segment_offset) == (4, 4)


def test_a_log_that_is_cut_meanwhile_keeps_what_is_above_its_new_start() -> None:
    world = a_world(retention_bytes=5 * SIZE)
    world.fill(9)
    world.log.apply_retention(NOW_MS, 9)
    world.log.truncate_to(3)
    world.fill(2)
    assert [one.base_offset for one in world.log.delete_below(4)] == [0]
    assert all_offsets(world.log) == [3, 4]
