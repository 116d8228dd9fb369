"""Goal: a torn end is cut and told; a hole in the middle is never cut (reliability F8, F9, F16).
Method: damage of each kind at each place of a written log, then opening it again.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import ProtocolError
from ottla.log.log_config import LogConfig
from ottla.protocol.error_codes import KAFKA_STORAGE_ERROR
from ottla.records.batch_header import HEADER_SIZE
from tests.unit.log.world import World, all_offsets, batch

SIZE = len(batch(size=100))


def a_world(batches: int = 6, **settings: int) -> World:
    world = World(config=LogConfig(**settings))  # type: ignore[arg-type]
    world.open()
    world.fill(batches)
    return world


def cut(world: World, offset: int, size: int) -> None:
    world.files.open(world.path(offset)).truncate(size)


# -- torn ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 8, 11, 12, 16, 17, HEADER_SIZE - 1, HEADER_SIZE, SIZE - 1])
@pytest.mark.parametrize("power_lost", [True, False])
def test_a_last_batch_that_was_cut_short(left: int, power_lost: bool) -> None:
    world = a_world()
    cut(world, 0, 5 * SIZE + left)
    log = world.reopen_killed(power_lost=power_lost)
    assert world.report.corrupt is None
    assert (world.report.bytes_cut, world.report.cut_segment) == (left, 0)
    assert world.report.cut_offset == 5
    assert log.log_end_offset == 5
    assert len(world.content(0)) == 5 * SIZE
    assert all_offsets(log) == list(range(5))
    assert world.append(batch()).base_offset == 5


@pytest.mark.parametrize("garbage", [bytes(300), b"\x02" * 300, b"\xff" * 37])
def test_garbage_behind_the_last_batch(garbage: bytes) -> None:
    world = a_world()
    world.files.open(world.path(0)).append([garbage])
    assert world.reopen_killed().log_end_offset == 6
    assert world.report.bytes_cut == len(garbage)


@pytest.mark.parametrize("position", [0, 9, 14, 16, 17, 22, 25, 60, 70, SIZE - 1])
def test_a_last_batch_with_a_wrong_byte(position: int) -> None:
    """As torn as a batch can be that has its full length."""
    world = a_world()
    at = 5 * SIZE + position
    world.damage(0, at, bytes([world.content(0)[at] ^ 0x55]))
    log = world.reopen_killed()
    if position == 14:
        # The epoch is not under the CRC: it goes up, and nobody can know better.
        assert log.log_end_offset == 6
    elif position == 0:
        assert world.report.corrupt is not None, "a whole batch, only its offset is wrong"
    else:
        assert log.log_end_offset == 5


def test_what_is_left_tells_the_producers() -> None:
    world = World()
    world.open()
    for number in range(6):
        world.append(batch(1, size=100, producer_id=7, sequence=number))
    cut(world, 0, len(world.content(0)) - 10)
    log = world.reopen_killed()
    assert log.producers.entries[7].next_sequence == 5
    assert world.append(batch(1, size=100, producer_id=7, sequence=4)).duplicate
    assert not world.append(batch(1, size=100, producer_id=7, sequence=5)).duplicate


def test_segments_behind_a_torn_one_go_after_a_power_cut_only() -> None:
    world = a_world(9, segment_bytes=3 * SIZE)
    cut(world, 3, 2 * SIZE + 20)
    assert world.reopen_killed(power_lost=False).corrupt is not None
    log = world.reopen_killed(power_lost=True)
    assert (log.corrupt, log.log_end_offset) == (None, 5)
    assert world.report.bytes_cut == 20 + 3 * SIZE
    assert [path.rpartition("/")[2] for path in world.report.deleted_paths if ".log" in path] == [
        f"{6:020d}.log.deleted"
    ]


def test_a_segment_that_ends_too_early_is_a_gap() -> None:
    world = a_world(9, segment_bytes=3 * SIZE)
    cut(world, 3, 2 * SIZE)
    assert world.reopen_killed(power_lost=True).log_end_offset == 5
    assert all_offsets(world.log) == list(range(5))


def test_a_page_that_never_reached_the_disk() -> None:
    world = a_world(40)
    world.damage(0, 1024, bytes(512))
    killed = world.reopen_killed(power_lost=False)
    assert killed.corrupt is not None, "without a power cut every page is there"
    log = world.reopen_killed(power_lost=True)
    assert (log.corrupt, log.log_end_offset) == (None, 1024 // SIZE)
    assert world.report.bytes_cut > 20 * SIZE


# -- holes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("power_lost", [True, False])
@pytest.mark.parametrize(
    "position",
    [0, 3, 7, 8, 9, 11, 16, 17, 20, 21, 23, 26, 43, 57, 61, SIZE // 2, SIZE - 1],
)
def test_a_flipped_byte_with_good_batches_behind_it(position: int, power_lost: bool) -> None:
    world = a_world()
    at = 2 * SIZE + position
    world.damage(0, at, bytes([world.content(0)[at] ^ 0x10]))
    before = world.files.contents()
    log = world.reopen_killed(power_lost=power_lost)
    assert world.report.corrupt is not None
    assert f"position {2 * SIZE}" in world.report.corrupt
    assert world.files.contents() == before, "nothing is cut, nothing is changed"
    with pytest.raises(ProtocolError) as refusal:
        world.append(batch())
    assert refusal.value.code == KAFKA_STORAGE_ERROR
    with pytest.raises(ProtocolError):
        log.read(0, 10**6, 1)
    log.close()
    assert world.files.contents() == before


def test_the_verdict_survives_a_clean_stop() -> None:
    world = a_world()
    world.damage(0, 2 * SIZE + 70, b"\xee")
    log = world.reopen_killed()
    log.close()
    world.open(clean=True, recovery_point=log.recovery_point, power_lost=False)
    assert world.report.corrupt is not None


def test_below_the_recovery_point_it_is_corruption_even_at_the_end() -> None:
    world = a_world()
    world.flush()
    cut(world, 0, 5 * SIZE + 70)
    world.reopen_killed(power_lost=True)
    assert world.report.corrupt is not None
    assert "flushed" in world.report.corrupt


def test_below_the_recovery_point_contents_are_not_looked_at() -> None:
    world = a_world()
    world.flush()
    world.fill(2)
    world.damage(0, SIZE + 100, b"\xee")
    assert world.reopen_killed().log_end_offset == 8


def test_a_hole_in_a_later_segment() -> None:
    world = a_world(9, segment_bytes=3 * SIZE)
    world.damage(3, SIZE + 70, b"\xee")
    world.reopen_killed()
    assert world.report.corrupt is not None
    assert f"{3:020d}.log" in world.report.corrupt


def test_a_broken_end_of_a_segment_with_more_behind_it_is_a_hole() -> None:
    world = a_world(9, segment_bytes=3 * SIZE)
    world.damage(3, 2 * SIZE + 70, b"\xee")
    world.reopen_killed(power_lost=True)
    assert world.report.corrupt is not None, "no page of it is missing"


def test_offsets_with_gaps_are_for_compacted_topics() -> None:
    content = a_world(2).content(0)
    for policy, corrupt in (("delete", True), ("compact", False)):
        world = World(config=LogConfig(cleanup_policy=frozenset({policy})))
        shifted = bytearray(content)
        shifted[SIZE : SIZE + 8] = (7).to_bytes(8, "big")
        world.files.put(world.path(0), bytes(shifted))
        log = world.open()
        assert (log.corrupt is not None) is corrupt
        if not corrupt:
            assert log.log_end_offset == 8


# -- what follows from the batches ----------------------------------------------------------------


def test_indexes_are_made_anew() -> None:
    world = a_world(20, index_interval_bytes=300, segment_bytes=7 * SIZE)
    world.log.close()
    good = world.files.contents()
    for path in good:
        if path.endswith("index"):
            world.files.put(path, b"\x11" * 36)
    world.open()
    assert world.report.indexes_rebuilt == 3
    for path, content in good.items():
        if path.endswith("index"):
            assert world.files.read(path) == content, path


def test_epochs_above_the_recovery_point_come_from_the_batches() -> None:
    world = a_world(2)
    world.flush()
    world.epoch = 3
    world.fill(2)
    path = world.log.directory + "/leader-epoch-checkpoint"
    assert world.files.read(path) == b"0\n1\n0 0\n"
    assert world.reopen_killed().leader_epochs.entries() == [(0, 0), (3, 2)]
    world.files.put(path, b"0\n2\n0 0\n9 3\n")
    world.log.abandon()
    assert world.open(recovery_point=2).leader_epochs.entries() == [(0, 0), (3, 2)]


def test_a_lost_epoch_file_is_made_from_the_batches() -> None:
    world = a_world(2)
    world.epoch = 3
    world.fill(2)
    world.flush()
    path = world.log.directory + "/leader-epoch-checkpoint"
    for content in (None, b"", b"garbage"):
        if content is None:
            world.files.remove(path)
        else:
            world.files.put(path, content)
        assert world.reopen_killed().leader_epochs.entries() == [(0, 0), (3, 2)]
    world.flush()
    assert world.files.read(path) == b"0\n2\n0 0\n3 2\n", "and written again"


def test_recovery_ends_where_it_began() -> None:
    world = a_world(9, segment_bytes=3 * SIZE, index_interval_bytes=100)
    cut(world, 6, 2 * SIZE + 20)
    world.reopen_killed()
    contents = world.files.contents()
    for _ in range(2):
        world.reopen_killed()
        assert world.report.bytes_cut == 0
        assert world.files.contents() == contents


def test_flushed_offsets_that_are_gone_are_told() -> None:
    world = a_world()
    world.flush()
    cut(world, 0, 4 * SIZE)
    log = world.reopen_killed()
    assert log.corrupt is None, "so it looks if the power went right after a truncation"
    assert (world.report.flushed_lost, log.recovery_point, log.log_end_offset) == (2, 4, 4)
