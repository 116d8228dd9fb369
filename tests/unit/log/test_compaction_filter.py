"""Goal: tombstones, markers and empty batches stay exactly as long as somebody needs them.
Method: logs with deletions, transactions and producers, cleaned at chosen moments.
"""

from __future__ import annotations

import pytest

from ottla.log.compaction_plan import CleaningResult
from ottla.log.log_config import LONG_MAX
from ottla.records import compression
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL_MASK,
)
from ottla.records.batch_view import is_intact
from tests.unit.log.compacting import CONFIG, CompactingWorld, header_at, limits
from tests.unit.log.world import NOW_MS

RETENTION_MS = CONFIG.delete_retention_ms
CODECS = (compression.NONE, compression.LZ4)


def a_world() -> CompactingWorld:
    world = CompactingWorld()
    world.open()
    return world


def clean_again(world: CompactingWorld) -> CleaningResult | None:
    """With something new, since a log without anything dirty is not cleaned."""
    world.put((b"something new", b"%d" % world.log.log_end_offset))
    world.seal()
    return world.clean()


def has_horizon(world: CompactingWorld, offset: int) -> bool:
    return bool(header_at(world.log, offset)[ATTRIBUTES] & DELETE_HORIZON_MASK)


# -- tombstones -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_tombstone_takes_older_values_and_goes_itself_after_its_horizon(codec: int) -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"), codec=codec)
    world.put((b"a", None), (b"c", b"1"), codec=codec)
    world.seal()
    world.clean()
    assert world.offsets() == [1, 2, 3]
    header = header_at(world.log, 2)
    assert header[ATTRIBUTES] == codec | DELETE_HORIZON_MASK
    assert header[BASE_TIMESTAMP] == NOW_MS + RETENTION_MS
    world.check()

    world.clock.now_ms += RETENTION_MS - 1
    clean_again(world)
    assert world.offsets()[:3] == [1, 2, 3], "a moment before"
    assert header_at(world.log, 2)[BASE_TIMESTAMP] == NOW_MS + RETENTION_MS, "set once"
    world.check()

    world.clock.now_ms += 1
    clean_again(world)
    assert world.offsets()[:2] == [1, 3]
    assert header_at(world.log, 3)[RECORD_COUNT] == 1
    world.check()


def test_times_are_what_they_were_although_the_base_is_the_horizon() -> None:
    world = a_world()
    world.put((b"a", None), (b"b", b"1"), (b"c", b"1"))
    world.clock.now_ms += 5
    world.put((b"c", b"2"))
    world.seal()
    world.clock.now_ms += 1_000_000
    world.clean()
    header = header_at(world.log, 0)
    assert header[BASE_TIMESTAMP] == NOW_MS + 5 + 1_000_000 + RETENTION_MS
    assert header[MAX_TIMESTAMP] == NOW_MS + 1, "of what is left"
    assert [record.timestamp for record in world.records()] == [NOW_MS, NOW_MS + 1, NOW_MS + 5]
    world.check()


def test_a_horizon_in_the_past_does_not_change_times_either() -> None:
    world = a_world()
    world.clock.now_ms += 10**12
    world.put((b"a", None), (b"b", b"1"))
    world.clock.now_ms -= 10**12
    world.seal()
    world.clean()
    assert has_horizon(world, 0)
    world.check()


def test_a_retention_for_ever_is_one() -> None:
    world = a_world()
    world.configure(delete_retention_ms=LONG_MAX)
    world.put((b"a", b"1"))
    world.put((b"a", None), (b"b", b"1"))
    world.put((b"t", b"1"), producer_id=7, transactional=True)
    world.end(7, aborted=True)
    world.put((b"z", b"1"), producer_id=7)
    world.seal()
    world.clean()
    assert header_at(world.log, 1)[BASE_TIMESTAMP] == LONG_MAX
    for _ in range(2):
        world.clock.now_ms += 10**15
        clean_again(world)
    assert world.offsets() == [1, 2, 5, 7]
    marker = header_at(world.log, 4)
    assert (marker[BASE_TIMESTAMP], marker[RECORD_COUNT]) == (LONG_MAX, 1)
    world.check()


def test_times_without_a_sense_become_the_nearest_that_can_be_told() -> None:
    world = a_world()
    world.configure(delete_retention_ms=LONG_MAX)
    for number, time_ms in enumerate((-LONG_MAX, 0, -1, 10, LONG_MAX)):
        world.append(build_batch([RecordToWrite(time_ms, b"%d" % number, None)]))
    world.log.on_high_watermark(world.log.log_end_offset)
    world.log.maybe_roll(LONG_MAX * 3)
    world.flush()
    world.clean()
    assert [record.timestamp for record in world.records()] == [-1, 0, -1, 10, LONG_MAX]
    assert all(is_intact(batch) for _, batch in world.batches())


def test_a_batch_without_tombstones_gets_no_horizon() -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"a", b"2"), (b"b", b""))
    world.seal()
    world.clean()
    assert not has_horizon(world, 0)


def test_a_tombstone_that_is_older_than_a_value_goes_at_once() -> None:
    world = a_world()
    world.put((b"a", None), (b"b", b"1"))
    world.put((b"a", b"back"))
    world.seal()
    world.clean()
    assert world.offsets() == [1, 2]
    assert not has_horizon(world, 1)


def test_no_horizon_before_the_map_has_seen_the_whole_batch() -> None:
    """Older values of the key may still be there, and readers see them before the tombstone."""
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", None))
    world.seal()
    within = limits()
    within.map_bytes = 5 * 24
    assert world.clean(within) is not None
    assert not has_horizon(world, 0)
    while world.clean(within) is not None:
        pass
    assert has_horizon(world, 0)
    assert world.offsets() == [1, 2, 3]
    world.check()


def test_log_append_time_stays() -> None:
    world = a_world()
    world.put((b"a", None), (b"b", b"1"), (b"c", b"1"), log_append_time=True)
    world.put((b"b", b"2"))
    world.seal()
    before = header_at(world.log, 0)
    world.clean()
    after = header_at(world.log, 0)
    assert after[MAX_TIMESTAMP] == before[MAX_TIMESTAMP]
    assert after[ATTRIBUTES] == before[ATTRIBUTES] | DELETE_HORIZON_MASK
    world.check()


# -- producers ------------------------------------------------------------------------------------


def test_the_last_batch_of_a_known_producer_stays_without_its_records() -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"), producer_id=7, codec=compression.GZIP)
    world.put((b"a", b"2"), (b"b", b"2"))
    world.put((b"a", b"3"), (b"b", b"3"))
    world.seal()
    before = header_at(world.log, 0)
    world.clean()
    after = header_at(world.log, 0)
    assert after[RECORD_COUNT] == 0
    for unchanged in (0, 2, LAST_OFFSET_DELTA, MAX_TIMESTAMP, PRODUCER_ID, 10, BASE_SEQUENCE):
        assert after[unchanged] == before[unchanged]
    assert after[ATTRIBUTES] & CODEC_MASK == 0
    assert after[BASE_TIMESTAMP] == -1
    assert [header[0] for header, _ in world.batches()] == [0, 4]
    world.check()

    world.reopen_killed()
    again = world.log.append(bytearray(batch_of(7, 0)), header_of(7, 0), 0, now_ms=NOW_MS)
    assert (again.duplicate, again.base_offset) == (True, 0), "it is still known to be there"


def batch_of(producer_id: int, sequence: int) -> bytes:
    world = a_world()
    world.sequences[producer_id] = sequence
    world.put((b"a", b"1"), (b"b", b"1"), producer_id=producer_id)
    return next(world.batches())[1]


def header_of(producer_id: int, sequence: int) -> tuple[int, ...]:
    world = a_world()
    world.sequences[producer_id] = sequence
    world.put((b"a", b"1"), (b"b", b"1"), producer_id=producer_id)
    return next(world.batches())[0]


def test_earlier_batches_of_a_producer_go() -> None:
    world = a_world()
    for _ in range(4):
        world.put((b"a", b"1"), producer_id=7)
    world.put((b"a", b"2"))
    world.seal()
    world.clean()
    assert [header[0] for header, _ in world.batches()] == [3, 4]


@pytest.mark.parametrize("since", [1, 4, 9])
def test_the_last_cleaned_batch_of_a_producer_stays_whatever_it_wrote_since(since: int) -> None:
    """When the end of the log is lost, that is what is known of it."""
    world = a_world()
    world.put((b"a", b"1"), producer_id=7)
    world.put((b"a", b"2"), producer_id=7)
    world.put((b"a", b"3"))
    world.seal()
    for _ in range(since):
        world.put((b"a", b"4"), producer_id=7)
    world.clean()
    assert [header[0] for header, _ in world.batches()][:2] == [1, 2]
    world.log.truncate_to(3)
    assert world.log.producers.entries[7].next_sequence == 2


def test_a_producer_that_was_forgotten_keeps_nothing() -> None:
    world = a_world()
    world.put((b"a", b"1"), producer_id=7)
    world.put((b"a", b"2"))
    world.seal()
    world.log.producers.entries.clear()
    world.clean()
    assert [header[0] for header, _ in world.batches()] == [1]


def test_an_empty_batch_goes_with_its_producer() -> None:
    world = a_world()
    world.put((b"a", b"1"), producer_id=7)
    world.put((b"a", b"2"))
    world.seal()
    world.clean()
    assert [header[RECORD_COUNT] for header, _ in world.batches()] == [0, 1]
    clean_again(world)
    assert [header[RECORD_COUNT] for header, _ in world.batches()][:2] == [0, 1]
    world.log.producers.entries.clear()
    clean_again(world)
    assert 0 not in [header[RECORD_COUNT] for header, _ in world.batches()]


# -- transactions ---------------------------------------------------------------------------------


def control_batches(world: CompactingWorld) -> list[int]:
    """Offsets of control batches that still have their record."""
    return [
        header[0]
        for header, _ in world.batches()
        if header[ATTRIBUTES] & CONTROL_MASK and header[RECORD_COUNT]
    ]


def a_world_with_a_transaction(*, aborted: bool) -> CompactingWorld:
    """Offsets 0 and 1 are in it, 2 is its marker."""
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"), producer_id=7, transactional=True)
    world.end(7, aborted=aborted)
    return world


def test_records_of_an_aborted_transaction_go_at_once() -> None:
    world = a_world()
    world.put((b"a", b"0"))
    world.put((b"a", b"1"), producer_id=7, transactional=True)
    world.put((b"x", b"1"))
    world.put((b"b", b"1"), producer_id=7, transactional=True)
    world.end(7, aborted=True)
    world.seal()
    world.clean()
    assert world.offsets() == [0, 2], "and they hide no older value"
    assert control_batches(world) == [4]
    assert world.log.aborted_transactions(0, 10) == [(7, 1)]
    world.check()


def test_records_of_a_committed_one_are_like_others() -> None:
    world = a_world_with_a_transaction(aborted=False)
    world.put((b"a", b"2"))
    world.seal()
    world.clean()
    assert world.offsets() == [1, 3]
    assert header_at(world.log, 0)[ATTRIBUTES] & TRANSACTIONAL_MASK
    assert control_batches(world) == [2]
    world.check()


@pytest.mark.parametrize("aborted", [True, False])
def test_a_marker_goes_after_its_records_and_its_horizon(aborted: bool) -> None:
    world = a_world_with_a_transaction(aborted=aborted)
    world.put((b"a", b"2"), (b"b", b"2"))
    world.put((b"z", b"1"), producer_id=7)
    world.seal()
    world.clean()
    assert world.offsets() == [3, 4, 5]
    assert control_batches(world) == [2]
    assert not has_horizon(world, 2), "its records were there when this cleaning came by"

    clean_again(world)
    assert control_batches(world) == [2]
    assert has_horizon(world, 2)
    assert header_at(world.log, 2)[BASE_TIMESTAMP] == NOW_MS + RETENTION_MS

    world.clock.now_ms += RETENTION_MS - 1
    clean_again(world)
    assert control_batches(world) == [2]
    world.clock.now_ms += 1
    clean_again(world)
    assert control_batches(world) == []
    assert world.log.aborted_transactions(0, 1_000) == []
    world.check()


def test_the_marker_of_a_producer_of_which_nothing_else_is_known_stays() -> None:
    world = a_world()
    world.end_transaction(7, aborted=False)
    world.put((b"a", b"1"))
    world.seal()
    for _ in range(4):
        world.clock.now_ms += RETENTION_MS
        clean_again(world)
    header = header_at(world.log, 0)
    assert header[ATTRIBUTES] & CONTROL_MASK and header[PRODUCER_ID] == 7


def test_an_open_transaction_holds_the_cleaner_back() -> None:
    world = a_world()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.seal()
    world.put((b"a", b"3"), producer_id=7, transactional=True)
    world.put((b"a", b"4"))
    world.seal()
    world.clean()
    assert world.offsets() == [1, 2, 3]
    world.end(7, aborted=True)
    world.seal()
    world.clean()
    assert world.offsets() == [3]
    world.check()


def test_a_marker_in_a_later_segment_tells_of_records_in_this_one() -> None:
    world = a_world()
    world.put((b"a", b"0"))
    world.put((b"a", b"1"), producer_id=7, transactional=True)
    world.seal()
    world.end(7, aborted=True)
    world.clean()
    assert world.offsets() == [0]
    assert world.log.aborted_transactions(0, 10) == [(7, 1)]
    world.check()


def test_the_index_of_aborted_transactions_moves_with_the_markers() -> None:
    world = a_world()
    for number in range(4):
        world.put((b"a", b"%d" % number), producer_id=number, transactional=True)
        world.end(number, aborted=number % 2 == 0)
        world.seal()
    before = world.log.aborted_transactions(0, 100)
    world.clean()
    assert len(world.log.all_segments()) == 2
    assert world.log.aborted_transactions(0, 100) == before == [(0, 0), (2, 4)]
    world.reopen_killed()
    assert world.log.aborted_transactions(0, 100) == before


def test_a_second_transaction_of_the_same_producer_is_another_one() -> None:
    world = a_world()
    world.put((b"a", b"1"), producer_id=7, transactional=True)
    world.end(7, aborted=True)
    world.put((b"b", b"1"), producer_id=7, transactional=True)
    world.end(7, aborted=False)
    world.put((b"c", b"1"), producer_id=7, transactional=True)
    world.end(7, aborted=True)
    world.seal()
    for _ in range(5):
        world.clock.now_ms += RETENTION_MS
        clean_again(world)
        world.check()
    assert 2 in world.offsets()


def test_every_batch_that_is_written_is_intact() -> None:
    world = a_world_with_a_transaction(aborted=True)
    for number, codec in enumerate((0, 1, 2, 3, 4) * 2):
        world.put((b"a", b"%d" % number), (b"b", None), (b"%d" % number, b"v"), codec=codec)
    world.seal()
    world.clean()
    batches = [batch for _, batch in world.batches()]
    assert len(batches) > 8
    assert all(is_intact(batch) for batch in batches)
    world.check()
