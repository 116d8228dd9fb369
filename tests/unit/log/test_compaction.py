"""Goal: a cleaned log holds the latest record of each key and nothing else has changed.
Method: small logs with many segments, cleaned to the end or interrupted, against what was written.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import StorageError
from ottla.log import compaction
from ottla.log.compaction import LogCleaning
from ottla.log.compaction_batches import CannotClean
from ottla.log.compaction_plan import CleanedGroup, CleaningCancelled, make_plan
from ottla.log.compaction_swap import Cleaning
from ottla.records import compression
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    DELETE_HORIZON_MASK,
    LAST_OFFSET_DELTA,
    PRODUCER_ID,
    RECORD_COUNT,
)
from tests.unit.log.compacting import CompactingWorld, batches_of, header_at, limits

CODECS = (compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD)


def a_world() -> CompactingWorld:
    world = CompactingWorld()
    world.open()
    return world


def test_of_each_key_the_latest_record_stays() -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    world.seal()
    world.put((b"b", b"2"), (b"c", b"1"))
    world.seal()
    world.put((b"c", b"2"))
    result = world.clean()
    assert result is not None
    assert world.offsets() == [2, 3, 4, 5], "the active segment does not count"
    assert (result.records_before, result.records_after, result.end_offset) == (5, 3, 5)
    world.check()


def test_nothing_is_done_where_nothing_is_dirty() -> None:
    world = a_world()
    assert world.clean() is None
    world.put((b"a", b"1"), (b"a", b"2"))
    assert world.clean() is None, "the active segment is left alone"
    world.seal()
    assert world.clean() is not None
    assert world.clean() is None


def test_a_later_cleaning_takes_what_has_become_old_in_the_clean_part() -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"))
    world.seal()
    world.clean_all()
    assert world.offsets() == [0, 1]
    world.put((b"a", b"2"))
    world.seal()
    world.clean_all()
    assert world.offsets() == [1, 2]
    world.check()


@pytest.mark.parametrize("codec", CODECS)
def test_batches_keep_their_borders_whatever_is_taken_out(codec: int) -> None:
    world = a_world()
    world.put(*((b"%d" % n, b"old") for n in range(20)), codec=codec, producer_id=5)
    world.put((b"3", b"new"), (b"19", b"new"), (b"0", b"new"), codec=codec, producer_id=5)
    world.seal()
    before = header_at(world.log, 0)
    world.clean()
    after = header_at(world.log, 0)
    for unchanged in (0, 2, LAST_OFFSET_DELTA, PRODUCER_ID, 10, BASE_SEQUENCE, ATTRIBUTES):
        assert after[unchanged] == before[unchanged]
    assert after[RECORD_COUNT] == 17
    assert len(world.offsets()) == 20
    world.check()


def test_a_batch_of_which_all_stays_is_the_same_bytes() -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"), codec=compression.ZSTD)
    world.put((b"c", b"1"), (b"c", b"2"))
    world.seal()
    first = next(world.batches())
    world.clean()
    assert next(world.batches()) == first
    assert world.offsets() == [0, 1, 3]


def test_a_segment_in_which_nothing_changes_is_not_written() -> None:
    world = a_world()
    for number in range(3):
        world.put((b"%d" % number, bytes(900)))
        world.seal()
    journal_from = len(world.files.journal)
    world.files.record = True
    result = world.clean()
    assert result is not None and result.bytes_written == 0
    assert [one for one in world.files.journal[journal_from:] if one[0] == "create"] == []
    assert len(world.log.all_segments()) == 4


def test_the_beginning_of_a_segment_is_copied_once_something_changes() -> None:
    world = a_world()
    for number in range(8):
        world.put((b"%d" % number, bytes(100)))
    world.put((b"x", b"1"), (b"x", b"2"))
    assert len(world.log.all_segments()) == 2
    world.seal()
    world.configure(segment_bytes=500)
    world.clean(limits(chunk_bytes=250))
    world.check()
    assert world.offsets() == [*range(8), 9]


def test_small_segments_are_merged_up_to_the_segment_size() -> None:
    world = a_world()
    for number in range(12):
        world.put((b"%d" % (number % 3), bytes(150)))
        world.seal()
    assert len(world.log.all_segments()) == 13
    world.clean()
    assert len(world.log.all_segments()) < 6
    assert all(one.size <= world.config.segment_bytes for one in world.log.all_segments())
    world.check()
    assert world.offsets() == [9, 10, 11]
    world.clean_all()
    world.put((b"0", b"again"))
    world.seal()
    world.clean()
    assert [one.base_offset for one in world.log.all_segments()] == [0, 13]


def test_a_map_with_room_for_few_keys_takes_several_passes() -> None:
    world = a_world()
    for number in range(40):
        world.put(*((b"%d" % (key * 7 % 40), b"%d" % number) for key in range(number, number + 5)))
    world.seal()
    passes = world.clean_all(limits(keys=6))
    assert passes > 3
    assert len(world.offsets()) == 40
    world.check()


def test_a_map_with_room_for_one_key_still_gets_on() -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2"))
    world.seal()
    smallest = limits(keys=0)
    assert world.clean_all(smallest) <= 4
    assert world.offsets() == [2, 3]
    world.check()


def test_records_that_the_map_had_no_room_for_stay() -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"), (b"a", b"3"))
    world.seal()
    within = limits()
    within.map_bytes = 5 * 24
    result = world.clean(within)
    assert result is not None and result.end_offset == 2
    assert world.offsets() == [0, 1, 2, 3, 4]
    assert header_at(world.log, 0)[ATTRIBUTES] & DELETE_HORIZON_MASK == 0


def test_records_without_a_key_go() -> None:
    """Only a topic that was compacted later can hold such records; Kafka drops them."""
    world = a_world()
    world.put((None, b"1"), (b"a", b"1"), (None, b"2"))
    world.seal()
    world.put((None, b"3"))
    world.clean()
    assert world.offsets() == [1, 3]


def test_an_empty_key_is_a_key() -> None:
    world = a_world()
    world.put((b"", b"1"), (b"", b"2"))
    world.seal()
    world.clean()
    assert world.offsets() == [1]


# -- ends of segments -----------------------------------------------------------------------------


def test_segments_of_which_nothing_is_left_are_empty() -> None:
    """No batch without records in them: a client that gets many such answers gives up."""
    world = a_world()
    for number in range(14):
        world.put((b"a", b"%d" % number), (b"b", b"1"))
        world.seal()
    world.configure(segment_bytes=100)
    world.clean()
    assert [one.size for one in world.log.all_segments()[:-2]] == [0] * 13
    assert world.offsets() == [26, 27]
    part = world.log.read(0, 1_000, world.log.log_end_offset)
    assert part is not None and part.size == world.log.all_segments()[-2].size
    for reopened in (world.reopen_killed, world.reopen_cleanly):
        reopened()
        assert world.report.corrupt is None
        world.check()
    world.configure(segment_bytes=1_000)
    world.put((b"c", b"1"))
    world.seal()
    world.clean()
    assert len(world.log.all_segments()) == 2


def test_the_last_batch_of_all_stays_without_its_records() -> None:
    world = a_world()
    world.put((b"a", b"1"))
    world.put((None, b"no key"))
    world.seal()
    world.clean()
    assert header_at(world.log, 1)[RECORD_COUNT] == 0
    assert world.log.all_segments()[0].end_offset() == 2


def test_an_empty_batch_is_not_kept_for_ever() -> None:
    world = a_world()
    for number in range(5):
        world.put((b"a", b"%d" % number))
        world.seal()
        world.clean()
    assert [header[RECORD_COUNT] for header, _ in world.batches()] == [1]


# -- interrupted ----------------------------------------------------------------------------------


def a_job(world: CompactingWorld) -> tuple[LogCleaning, Cleaning]:
    candidate = world.candidate()
    assert candidate is not None
    cleaning = Cleaning(world.files)
    world.log.cleaning = cleaning
    plan = make_plan(candidate, world.clock.now_ms)
    return LogCleaning(world.files, plan, limits(), cleaning), cleaning


def leftovers(world: CompactingWorld) -> list[str]:
    return [name for name in world.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


def a_dirty_world() -> CompactingWorld:
    world = a_world()
    for number in range(30):
        world.put((b"%d" % (number % 5), bytes(100)))
    world.seal()
    return world


def test_it_works_in_steps_of_the_wanted_size() -> None:
    job, _ = a_job(a_dirty_world())
    steps = 0
    while isinstance(worked := job.proceed(1), int):
        assert worked <= 2_000
        steps += 1
    assert steps > 5
    assert isinstance(worked, CleanedGroup)


def test_a_cancelled_cleaning_ends_and_leaves_nothing() -> None:
    world = a_dirty_world()
    job, cleaning = a_job(world)
    while not leftovers(world):
        job.proceed(1)
    cleaning.cancelled = True
    with pytest.raises(CleaningCancelled):
        job.proceed(1)
    assert leftovers(world) == []
    world.check()


def test_one_that_is_given_up_leaves_nothing() -> None:
    world = a_dirty_world()
    job, _ = a_job(world)
    while not leftovers(world):
        job.proceed(1)
    job.close()
    assert leftovers(world) == []


def test_remains_of_an_earlier_one_are_removed() -> None:
    world = a_dirty_world()
    world.files.put(world.path(0, ".log.cleaned"), b"remains")
    world.files.put(world.path(99, ".index.cleaned"), b"remains")
    world.clean()
    assert leftovers(world) == []
    world.check()


def test_damage_is_not_cleaned_away() -> None:
    world = a_dirty_world()
    content = world.content(0)
    world.damage(0, 300, b"\xff")
    with pytest.raises(CannotClean, match=r"00000\.log"):
        world.clean()
    assert leftovers(world) == []
    assert len(world.content(0)) == len(content)


def test_a_disk_that_fails_is_told() -> None:
    world = a_dirty_world()
    job, _ = a_job(world)
    world.files.remove(world.path(0))
    with pytest.raises(StorageError):
        job.proceed(1)


def test_a_segment_never_grows_past_what_an_index_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_dirty_world()
    monkeypatch.setattr("ottla.log.compaction_writer.SEGMENT_BYTES_MAX", 500)
    with pytest.raises(CannotClean, match="too large"):
        world.clean()
    assert leftovers(world) == []


# -- files ----------------------------------------------------------------------------------------


def test_the_indexes_are_those_that_a_rebuild_would_make() -> None:
    world = a_dirty_world()
    world.put(*((b"many %d" % n, bytes(100)) for n in range(9)))
    world.seal()
    world.clean()
    for segment in world.log.all_segments()[:-1]:
        found = [world.content(segment.base_offset, suffix) for suffix in (".index", ".timeindex")]
        segment.rebuild_indexes(segment.open_file())
        again = [world.content(segment.base_offset, suffix) for suffix in (".index", ".timeindex")]
        assert found == again


def test_lookups_by_offset_and_time_find_what_is_left() -> None:
    world = a_world()
    for number in range(30):
        world.put((b"%d" % (number % 7), bytes(80)))
        world.clock.now_ms += 1_000
    world.seal()
    world.clean()
    records = world.records()
    for record in records:
        part = world.log.read(record.offset, 10_000, world.log.log_end_offset)
        assert part is not None
        found = world.log.times().first_since(record.timestamp, world.log.log_end_offset).run()
        assert found is not None and found[:2] == (record.timestamp, record.offset)
    part = world.log.read(0, 10_000, world.log.log_end_offset)
    assert part is not None, "a reader at an offset that is gone goes on behind the gap"


def test_a_reader_that_holds_a_part_of_an_old_segment_reads_on() -> None:
    world = a_dirty_world()
    part = world.log.read(0, 400, world.log.log_end_offset)
    assert part is not None
    before = part.file.read_at(part.position, part.size)
    world.clean()
    assert part.file.read_at(part.position, part.size) == before


def test_size_and_snapshots_follow() -> None:
    world = a_world()
    for number in range(6):
        world.put((b"%d" % (number % 2), b"v"), producer_id=3)
        world.seal()
    assert len([name for name in world.names() if name.endswith(".snapshot")]) == 6
    world.clean()
    bases = {segment.base_offset for segment in world.log.all_segments()}
    kept = {int(name[:20]) for name in world.names() if name.endswith(".snapshot")}
    assert kept <= bases
    assert world.log.size == sum(one.size for one in world.log.all_segments())


def test_what_is_flushed_later_does_not_miss_the_old_files() -> None:
    world = a_dirty_world()
    world.put((b"1", b"new"))
    job = world.log.flush_job()
    assert job is not None
    world.clean()
    job.run()
    world.log.flush_done(job)
    world.seal()
    world.check()
    assert list(batches_of(world.log))


def test_the_constant_for_a_full_map_is_small_against_real_maps() -> None:
    assert compaction.ROOM_TO_GO_ON < (128 << 20) // 24 / 1000


@pytest.mark.parametrize(("power_lost", "recovery_point"), [(True, 4), (False, 0)])
def test_a_log_that_kafka_has_cleaned_may_lack_the_ends_of_segments(
    power_lost: bool, recovery_point: int
) -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"))
    end = len(world.content(0))
    world.put((b"a", b"2"), (b"b", b"2"))
    world.seal()
    world.put((b"a", b"3"))
    world.log.close()
    world.files.open(world.path(0)).truncate(end)
    world.open(recovery_point=recovery_point, power_lost=power_lost)
    assert world.report.corrupt is None
    assert world.offsets() == [0, 1, 4]


def test_the_end_of_a_segment_that_was_lost_is_not_taken_for_compacted() -> None:
    world = a_world()
    world.put((b"a", b"1"), (b"b", b"1"))
    end = len(world.content(0))
    world.put((b"a", b"2"), (b"b", b"2"))
    world.seal()
    world.put((b"a", b"3"))
    world.log.close()
    world.files.open(world.path(0)).truncate(end)
    world.open(recovery_point=2, power_lost=True)
    assert world.offsets() == [0, 1], "what follows is cut: the log is one piece"
