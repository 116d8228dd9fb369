"""Goal: append, read, roll, retain and truncate as the rest of the broker relies on it.
Method: one partition in memory; what was read is compared with what was sent.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import ProtocolError
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import RottenLength
from ottla.protocol.error_codes import (
    CORRUPT_MESSAGE,
    OFFSET_OUT_OF_RANGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RECORD_LIST_TOO_LARGE,
)
from ottla.records.batch_header import BASE_OFFSET, LEADER_EPOCH, read_header
from tests.unit.log.world import World, all_offsets, batch, bytes_of, offsets_of


def a_world(**settings: int) -> World:
    world = World(config=LogConfig(**settings))  # type: ignore[arg-type]
    world.open()
    return world


# -- append ---------------------------------------------------------------------------------------


def test_offsets_and_epoch_are_set_and_nothing_else() -> None:
    world = a_world()
    sent = batch(3)
    world.epoch = 4
    world.append(batch(2))
    appended = world.append(sent)
    assert (appended.base_offset, appended.last_offset, appended.duplicate) == (2, 4, False)
    stored = bytes_of(world.log.read(2, 10**6, 5))
    header = read_header(stored)
    assert (header[BASE_OFFSET], header[LEADER_EPOCH]) == (2, 4)
    assert stored[16:] == sent[16:]
    assert stored[8:12] == sent[8:12]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, "writable view"])
def test_every_kind_of_buffer_is_stored_alike(kind: object) -> None:
    world = a_world()
    sent = batch(3)
    buffer = (
        memoryview(bytearray(sent)) if kind == "writable view" else kind(sent)  # type: ignore[operator]
    )
    world.log.append(buffer, read_header(sent), 9, now_ms=1)
    stored = world.content(0)
    assert read_header(stored)[LEADER_EPOCH] == 9
    assert stored[16:] == sent[16:]
    if kind in (bytearray, "writable view"):
        assert bytes(buffer) == stored, "set in place"
    else:
        assert bytes(buffer) == sent, "a buffer that is not ours is left alone"


def test_a_duplicate_is_answered_with_the_first_offset() -> None:
    world = a_world()
    sent = batch(2, producer_id=7, sequence=0)
    world.append(sent)
    world.append(batch(1, producer_id=7, sequence=2))
    again = world.append(sent)
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 1, True)
    assert again.timestamp == read_header(sent)[8]
    assert world.log.log_end_offset == 3


def test_a_refused_batch_leaves_no_trace() -> None:
    world = a_world()
    world.append(batch(producer_id=7, sequence=0))
    before = (world.log.log_end_offset, world.log.size, world.content(0))
    with pytest.raises(ProtocolError) as refusal:
        world.append(batch(producer_id=7, sequence=2))
    assert refusal.value.code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (world.log.log_end_offset, world.log.size, world.content(0)) == before


def test_a_batch_larger_than_a_segment() -> None:
    world = a_world(segment_bytes=1000)
    with pytest.raises(ProtocolError) as refusal:
        world.append(batch(size=1000))
    assert refusal.value.code == RECORD_LIST_TOO_LARGE


def test_counts() -> None:
    world = a_world()
    world.fill(5, records=2)
    assert world.log.unflushed_messages == 10
    assert world.log.size == len(world.content(0))
    world.flush()
    assert (world.log.unflushed_messages, world.log.recovery_point) == (0, 10)


def test_five_batches_are_known_after_a_clean_restart_too() -> None:
    """The snapshot holds one; Kafka would refuse the other four."""
    world = a_world()
    for number in range(7):
        world.append(batch(1, producer_id=7, sequence=number))
        world.append(batch(1, producer_id=8, sequence=number))
    world.reopen_cleanly()
    for number in range(2, 7):
        assert world.append(batch(1, producer_id=7, sequence=number)).base_offset == number * 2
    with pytest.raises(ProtocolError):
        world.append(batch(1, producer_id=7, sequence=1))
    with pytest.raises(ProtocolError):
        world.append(batch(1, producer_id=8, sequence=9))
    assert not world.append(batch(1, producer_id=8, sequence=7)).duplicate


def test_batches_from_before_the_restart_are_looked_up_beside_newer_ones() -> None:
    world = a_world()
    for number in range(4):
        world.append(batch(1, producer_id=7, sequence=number))
    world.reopen_cleanly()
    world.append(batch(1, producer_id=7, sequence=4))
    assert world.append(batch(1, producer_id=7, sequence=1)).base_offset == 1
    assert world.append(batch(1, producer_id=7, sequence=4)).base_offset == 4


# -- read -----------------------------------------------------------------------------------------


def test_reading_through_segments() -> None:
    world = a_world(segment_bytes=1000)
    world.fill(30)
    assert len([name for name in world.names() if name.endswith(".log")]) > 3
    assert all_offsets(world.log) == list(range(30))


def test_an_offset_within_a_batch_gives_the_whole_batch() -> None:
    world = a_world()
    world.fill(3, records=5)
    assert offsets_of(world.log.read(7, 10**6, 15)) == [5, 10]


def test_nothing_at_or_above_the_upper_bound() -> None:
    world = a_world(segment_bytes=1000)
    world.fill(30)
    log = world.log
    assert log.read(30, 10**6, 30) is None
    assert log.read(12, 10**6, 12) is None
    assert log.read(29, 10**6, 12) is None
    for bound in range(1, 31):
        offset, found = 0, []
        while (part := log.read(offset, 10**6, bound)) is not None:
            found += offsets_of(part)
            offset = found[-1] + 1
        assert found == list(range(bound))


def test_a_bound_within_a_batch_excludes_it() -> None:
    world = a_world()
    world.fill(3, records=5)
    assert offsets_of(world.log.read(0, 10**6, 12)) == [0, 5]
    assert world.log.read(11, 10**6, 12) is None


@pytest.mark.parametrize("offset", [-1, 4, 31])
def test_offsets_out_of_range(offset: int) -> None:
    world = a_world()
    world.fill(30)
    world.log.advance_log_start(5)
    with pytest.raises(ProtocolError) as refusal:
        world.log.read(offset, 10**6, 30)
    assert refusal.value.code == OFFSET_OUT_OF_RANGE


def test_a_small_limit() -> None:
    world = a_world()
    world.fill(30)
    part = world.log.read(3, 10, 30)
    assert offsets_of(part) == [3]
    assert world.log.read(3, 10, 30, at_least_one=False) is None


def test_files_are_given_up_and_opened_again() -> None:
    world = a_world(segment_bytes=500)
    world.log._cache.segments_max = 1
    world.fill(20)
    assert all_offsets(world.log) == list(range(20))
    world.fill(3)
    assert all_offsets(world.log) == list(range(23))
    assert world.log._cache.open_count() == 1


def test_a_part_can_be_sent_while_its_file_is_given_up() -> None:
    world = a_world(segment_bytes=500)
    world.fill(20)
    part = world.log.read(0, 10**6, 20)
    expected = bytes_of(part)
    world.log.abandon()
    assert bytes_of(part) == expected


# -- roll -----------------------------------------------------------------------------------------


def segments(world: World) -> list[int]:
    return [int(name[:20]) for name in world.names() if name.endswith(".log")]


def test_roll_by_size() -> None:
    size = len(batch(size=100))
    world = a_world(segment_bytes=3 * size)
    world.fill(7)
    assert segments(world) == [0, 3, 6]


def test_roll_by_the_records_time() -> None:
    world = a_world(segment_ms=1000)
    for moment in (10_000, 11_000, 11_001, 11_500, 12_002):
        world.append(batch(timestamp_ms=moment))
    assert segments(world) == [0, 2, 4]


def test_roll_when_an_index_is_full() -> None:
    world = a_world(index_interval_bytes=1, segment_index_bytes=80)
    world.fill(12)
    assert segments(world) == [0, 6], "six entries, of which the time index keeps one free"


def test_jitter_is_spread_but_steady() -> None:
    world = a_world(segment_ms=10_000, segment_jitter_ms=1_000)
    assert 0 <= world.log._jitter_ms() < 1_000
    assert world.log._jitter_ms() == world.log._jitter_ms()
    world.log.partition = 1
    other = world.log._jitter_ms()
    world.log.partition = 0
    assert other != world.log._jitter_ms()


@pytest.mark.parametrize("index_bytes", [4, 8, 11, 12, 24])
@pytest.mark.parametrize("interval_bytes", [0, 4096])
def test_indexes_that_hold_next_to_nothing(index_bytes: int, interval_bytes: int) -> None:
    world = a_world(index_interval_bytes=interval_bytes, segment_index_bytes=index_bytes)
    world.fill(5)
    assert all_offsets(world.log) == [0, 1, 2, 3, 4]
    assert all_offsets(world.reopen_cleanly()) == [0, 1, 2, 3, 4]
    assert all_offsets(world.reopen_killed()) == [0, 1, 2, 3, 4]


def test_maybe_roll() -> None:
    world = a_world(segment_ms=1000)
    assert not world.log.maybe_roll(world.clock.now_ms + 10**6), "empty"
    world.append(batch(timestamp_ms=world.clock.now_ms))
    assert not world.log.maybe_roll(world.clock.now_ms + 1000)
    assert world.log.maybe_roll(world.clock.now_ms + 1001)
    assert segments(world) == [0, 1]
    assert not world.log.maybe_roll(world.clock.now_ms + 10**6)


def test_a_roll_is_told() -> None:
    world = a_world(segment_bytes=500)
    told: list[PartitionLog] = []
    world.log.on_roll = told.append
    world.fill(5)
    assert told == [world.log] * (len(segments(world)) - 1)


# -- log start and truncation ---------------------------------------------------------------------


def test_log_start() -> None:
    world = a_world()
    world.fill(10)
    world.epoch = 2
    world.fill(1)
    world.log.advance_log_start(4)
    assert world.log.log_start_offset == 4
    assert world.log.leader_epochs.entries() == [(0, 4), (2, 10)]
    for offset in (3, 12):
        with pytest.raises(ProtocolError) as refusal:
            world.log.advance_log_start(offset)
        assert refusal.value.code == OFFSET_OUT_OF_RANGE
    world.log.advance_log_start(11)
    assert all_offsets(world.log) == []


def test_truncate_to() -> None:
    world = a_world(segment_bytes=500)
    world.fill(10)
    world.epoch = 1
    world.fill(5)
    world.flush()
    size = world.log.size
    world.log.truncate_to(15)
    assert world.log.size == size, "nothing above the end"
    world.log.truncate_to(8)
    log = world.log
    assert (log.log_end_offset, log.recovery_point, log.unflushed_messages) == (8, 8, 0)
    assert log.leader_epochs.entries() == [(0, 0)]
    assert all_offsets(log) == list(range(8))
    assert log.size == sum(len(world.content(base)) for base in segments(world))
    assert max(segments(world)) <= 8
    assert not [name for name in world.names() if name.endswith(".deleted")]
    world.epoch = 2
    assert world.append(batch()).base_offset == 8
    assert log.leader_epochs.entries() == [(0, 0), (2, 8)]


def test_places_from_before_a_truncation_are_forgotten() -> None:
    world = a_world()
    world.fill(6)
    for offset in range(6):
        world.log.read(offset, 1, 6)
    world.log.truncate_to(2)
    world.fill(4, size=37)
    assert [offsets_of(world.log.read(offset, 1, 6)) for offset in range(6)] == [
        [offset] for offset in range(6)
    ]


def test_truncate_to_before_the_first_segment() -> None:
    world = a_world(segment_bytes=500, retention_bytes=600)
    world.fill(10)
    world.log.apply_retention(1, 10)
    start = world.log.log_start_offset
    world.log.delete_below(start)
    assert start > 0
    world.log.truncate_to(start - 1)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (start - 1, start - 1)
    assert segments(world) == [start - 1]


def test_truncation_forgets_no_transaction_whose_records_a_crash_may_bring_back() -> None:
    """The log start has moved past its beginning, and only memory knows: what is written down of
    the producers from now on has to hold without it, too."""
    world = a_world()
    world.append(batch(producer_id=3, transactional=True))
    world.fill(4)
    world.log.advance_log_start(3)
    world.log.truncate_to(4)
    assert world.log.first_unstable_offset == 0


def test_truncation_takes_producers_back() -> None:
    world = a_world(segment_bytes=500)
    for number in range(10):
        world.append(batch(1, size=60, producer_id=7, sequence=number))
    world.flush()
    world.log.truncate_to(6)
    assert world.log.producers.entries[7].next_sequence == 6
    assert world.append(batch(1, producer_id=7, sequence=6)).base_offset == 6
    assert max(world.log._durability.snapshots, default=0) <= 6


def test_truncate_fully() -> None:
    world = a_world()
    for number in range(10):
        world.append(batch(1, producer_id=7, sequence=number, transactional=True))
    world.log.truncate_fully_and_start_at(100)
    log = world.log
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (100, 100, 100)
    assert (log.size, log.first_unstable_offset, log.producers.entries) == (0, None, {})
    assert log.leader_epochs.entries() == []
    assert segments(world) == [100]
    assert world.append(batch()).base_offset == 100


# -- as a follower --------------------------------------------------------------------------------


def leader_bytes(count: int) -> tuple[World, bytes]:
    leader = a_world()
    leader.epoch = 3
    leader.fill(count, records=2)
    return leader, leader.content(0)


def test_a_follower_stores_the_same_bytes() -> None:
    leader, content = leader_bytes(5)
    follower = a_world()
    appended = follower.log.append_replicated(content)
    assert appended is not None
    assert (appended.base_offset, appended.last_offset) == (0, 9)
    assert follower.content(0) == content
    assert follower.log.leader_epochs.entries() == leader.log.leader_epochs.entries()


@pytest.mark.parametrize("index_bytes", [12, 24, 80])
def test_what_a_leader_sends_at_once_may_be_more_than_the_indexes_have_room_for(
    index_bytes: int,
) -> None:
    _, content = leader_bytes(20)
    follower = a_world(index_interval_bytes=1, segment_index_bytes=index_bytes)
    follower.log.append_replicated(content)
    assert follower.log.log_end_offset == 40
    whole = b"".join(follower.content(base) for base in segments(follower))
    assert whole == content
    assert len(all_offsets(follower.reopen_killed())) == 20


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch() -> None:
    _, content = leader_bytes(5)
    follower = a_world()
    follower.log.append_replicated(content[: len(content) // 2])
    rest = len(follower.content(0))
    assert 0 < follower.log.log_end_offset < 10
    follower.log.append_replicated(content[rest:])
    assert follower.content(0) == content
    assert follower.log.append_replicated(content[:20]) is None


def test_a_broken_batch_of_a_leader_is_not_stored() -> None:
    _, content = leader_bytes(2)
    damaged = bytearray(content)
    damaged[-1] ^= 1
    follower = a_world()
    with pytest.raises(ProtocolError) as refusal:
        follower.log.append_replicated(damaged)
    assert refusal.value.code == CORRUPT_MESSAGE
    assert follower.log.log_end_offset == 2, "the good one before it is there"
    with pytest.raises(ProtocolError):
        follower.log.append_replicated(content[: len(content) // 2])


def test_followers_know_producers_and_transactions() -> None:
    leader = a_world()
    leader.append(batch(1, producer_id=7, sequence=0, transactional=True))
    leader.append(batch(1, producer_id=8, sequence=0, transactional=True))
    leader.end_transaction(7, aborted=True)
    follower = a_world()
    follower.log.append_replicated(leader.content(0))
    assert follower.log.first_unstable_offset == 0
    follower.log.on_high_watermark(3)
    assert follower.log.first_unstable_offset == 1
    assert follower.log.aborted_transactions(0, 3) == [(7, 0)]
    assert follower.log.producers.snapshot() == leader.log.producers.snapshot()


# -- transactions ---------------------------------------------------------------------------------


def test_aborted_transactions_are_found_by_range() -> None:
    world = a_world(segment_bytes=600)
    for number in range(4):
        world.append(batch(2, size=60, producer_id=7, sequence=2 * number, transactional=True))
        world.end_transaction(7, aborted=number % 2 == 0)
    log = world.log
    assert log.aborted_transactions(0, 12) == [(7, 0), (7, 6)]
    assert log.aborted_transactions(0, 3) == [(7, 0)]
    assert log.aborted_transactions(3, 6) == []
    assert log.aborted_transactions(7, 9) == [(7, 6)]
    world.log.on_high_watermark(12)
    assert log.first_unstable_offset is None
    world.reopen_cleanly()
    assert world.log.aborted_transactions(0, 12) == [(7, 0), (7, 6)]


def test_a_transaction_over_segments_is_found_from_its_first_record() -> None:
    world = a_world(segment_bytes=400)
    world.append(batch(1, producer_id=7, sequence=0, transactional=True))
    world.fill(6)
    world.end_transaction(7, aborted=True)
    assert len(segments(world)) > 2
    assert world.log.aborted_transactions(0, 1) == [(7, 0)]


def test_an_open_transaction_survives_a_restart() -> None:
    world = a_world()
    world.append(batch(1, producer_id=7, sequence=0, transactional=True))
    world.fill(2)
    for reopen in (world.reopen_cleanly, world.reopen_killed):
        assert reopen().first_unstable_offset == 0
    world.end_transaction(7, aborted=True)
    assert world.log.aborted_transactions(0, 4) == [(7, 0)]


def test_producers_expire() -> None:
    world = a_world()
    world.append(batch(producer_id=7, sequence=0))
    assert world.log.expire_producers(world.clock.now_ms + 86_399_999) == 0
    assert world.log.expire_producers(world.clock.now_ms + 86_400_000) == 1


# -- what has rotted ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [-1, 48, 10**6, 2**31 - 1])
@pytest.mark.parametrize("damaged", [0, 8, 9])
def test_a_batch_whose_length_can_not_be_true_is_not_handed_out(length: int, damaged: int) -> None:
    """Nor in pieces: who got some of it would ask for it again, and get the same."""
    world = a_world(segment_bytes=10 * len(batch(size=100)))
    world.fill(30)
    log = world.reopen_cleanly()
    base_offset, size = 10, len(batch(size=100))
    where = damaged * size + 8
    world.damage(base_offset, where, length.to_bytes(4, "big", signed=True))
    with pytest.raises(RottenLength) as refused:
        log.read(base_offset + damaged, 1 << 20, 30)
    assert refused.value.offset == base_offset + damaged
    assert offsets_of(log.read(20, 1 << 20, 30)) == list(range(20, 30))


@pytest.mark.parametrize("missing", [1, 50, 70])
def test_nor_is_one_whose_rest_is_gone(missing: int) -> None:
    world = a_world(segment_bytes=10 * len(batch(size=100)))
    world.fill(30)
    world.log.close()
    whole = world.files.open(world.path(10))
    whole.truncate(whole.size() - missing)
    log = world.reopen_cleanly()
    with pytest.raises(RottenLength):
        log.read(19, 1 << 20, 30)


def test_what_is_on_the_disk_only_is_looked_at_when_it_is_asked_for_again() -> None:
    """The loop does not wait for a disk."""
    world = a_world()
    world.fill(3)
    log = world.reopen_cleanly()
    world.damage(0, 8, b"\x7f\xff\xff\xff")
    world.files.is_cached = False
    assert log.read(0, 1 << 20, 3) is not None
    world.files.is_cached = True
    with pytest.raises(RottenLength):
        log.read(0, 1 << 20, 3)
