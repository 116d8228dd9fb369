"""Goal: what is cleaned, and when, follows the settings and never passes the bounds.
Method: small logs with chosen times, and the candidate that is made of them.
"""

from __future__ import annotations

from ottla.log.compaction_plan import Candidate, find_candidate, group_sources, make_plan
from ottla.log.offset_index import RELATIVE_OFFSET_MAX
from tests.unit.log.compacting import CompactingWorld


def a_world(segments: int = 4) -> CompactingWorld:
    """Segments of one batch with three records each, and an empty active one."""
    world = CompactingWorld()
    world.open()
    for number in range(segments):
        world.put((b"a", b"%d" % number), (b"b", b"1"), (b"c", b"1"))
        world.clock.now_ms += 1_000
        world.seal()
    return world


def found(world: CompactingWorld, stable: int | None = None) -> Candidate | None:
    end = world.log.log_end_offset if stable is None else stable
    return find_candidate(world.log, end, world.clock.now_ms)


def end_of(candidate: Candidate | None) -> int:
    assert candidate is not None
    return candidate.end_offset


def test_everything_but_the_active_segment() -> None:
    world = a_world()
    world.put((b"a", b"active"))
    candidate = found(world)
    assert candidate is not None
    assert (candidate.first_dirty, candidate.end_offset) == (0, 12)
    assert candidate.clean_bytes == 0
    assert candidate.dirty_bytes == sum(one.size for one in world.log.all_segments()[:-1])
    assert candidate.dirty_ratio() == 1.0


def test_no_segment_that_reaches_above_the_last_stable_offset() -> None:
    world = a_world()
    assert end_of(found(world, 12)) == 12
    assert end_of(found(world, 11)) == 9
    assert end_of(found(world, 9)) == 9
    assert found(world, 2) is None


def test_no_segment_that_is_not_on_the_disk() -> None:
    world = a_world()
    world.log.recovery_point = 7
    assert end_of(found(world)) == 6


def test_the_clean_part_ends_where_the_last_cleaning_did() -> None:
    world = a_world()
    world.log.cleaned_to = 6
    candidate = found(world)
    assert candidate is not None
    assert (candidate.first_dirty, candidate.end_offset) == (6, 12)
    assert candidate.dirty_ratio() == 0.5
    world.log.cleaned_to = 12
    assert found(world) is None


def test_a_note_that_can_not_be_right_counts_for_nothing() -> None:
    world = a_world()
    world.log.cleaned_to = 13
    assert end_of(found(world)) == 12
    world.log.advance_log_start(5)
    world.log.cleaned_to = 4
    candidate = found(world)
    assert candidate is not None and candidate.first_dirty == 5


def test_it_is_worth_it_when_more_than_the_ratio_is_dirty() -> None:
    world = a_world()
    world.log.cleaned_to = 6
    for ratio, worth in ((0.4, True), (0.5, False), (0.6, False)):
        world.configure(min_cleanable_dirty_ratio=ratio)
        candidate = found(world)
        assert candidate is not None and candidate.is_worth_it() is worth


def test_young_segments_wait_for_the_lag_and_hold_later_ones_back() -> None:
    world = a_world()
    world.configure(min_compaction_lag_ms=2_500)
    assert end_of(found(world)) == 6
    world.clock.now_ms += 1_000
    assert end_of(found(world)) == 9
    world.clock.now_ms -= 3_500
    assert found(world) is None


def test_what_has_waited_too_long_is_cleaned_whatever_the_ratio() -> None:
    world = a_world()
    world.configure(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5_000)
    assert world.clock.now_ms - world.written[0].timestamp_ms == 4_000
    for later_ms, worth in ((900, False), (200, True)):
        world.clock.now_ms += later_ms
        candidate = found(world)
        assert candidate is not None and candidate.is_worth_it() is worth
    world.log.cleaned_to = 9
    candidate = found(world)
    assert candidate is not None and not candidate.is_worth_it(), "the oldest is clean"


def test_the_lag_bounds_how_long_a_segment_is_active() -> None:
    world = a_world(0)
    world.configure(max_compaction_lag_ms=5_000)
    world.put((b"a", b"1"))
    assert not world.log.maybe_roll(world.clock.now_ms + 5_000)
    assert world.log.maybe_roll(world.clock.now_ms + 5_001)
    world.configure(cleanup_policy=frozenset({"delete"}))
    world.put((b"a", b"1"))
    assert not world.log.maybe_roll(world.clock.now_ms + 5_001)


def test_the_plan_holds_what_the_pool_must_know() -> None:
    world = a_world(2)
    world.put((b"a", b"1"), producer_id=4, transactional=True)
    world.end(4, aborted=True)
    world.end_transaction(5, aborted=False)
    world.seal()
    world.put((b"z", b"1"), producer_id=6)
    candidate = found(world)
    assert candidate is not None
    plan = make_plan(candidate, 77)
    assert [(one.base_offset, one.end_offset) for one in plan.sources] == [(0, 3), (3, 6), (6, 9)]
    assert plan.txn_index_paths == [world.path(6, ".txnindex")]
    assert plan.producers.last_offsets == {4: 6}
    assert plan.producers.marker_epochs == {5: 0}
    assert plan.producers.unknown == set(), "all that producer 6 ever wrote is in the active one"
    for _ in range(4):
        world.put((b"z", b"1"), producer_id=6)
    assert make_plan(candidate, 77).producers.unknown == {6}
    assert (plan.first_dirty, plan.end_offset, plan.now_ms) == (0, 9, 77)


# -- groups ---------------------------------------------------------------------------------------


def groups(world: CompactingWorld) -> list[list[int]]:
    candidate = found(world)
    assert candidate is not None
    sources = make_plan(candidate, 0).sources
    grouped = group_sources(world.files, sources, world.log.config)
    return [[one.base_offset for one in group] for group in grouped]


def test_neighbours_are_grouped_up_to_the_segment_size() -> None:
    world = a_world()
    size = world.log.all_segments()[0].size
    world.configure(segment_bytes=2 * size)
    assert groups(world) == [[0, 3], [6, 9]]
    world.configure(segment_bytes=2 * size - 1)
    assert groups(world) == [[0], [3], [6], [9]]
    world.configure(segment_bytes=1)
    assert groups(world) == [[0], [3], [6], [9]], "one that is too large is cleaned alone"


def test_groups_are_bounded_by_their_indexes() -> None:
    world = a_world()
    for segment in world.log.all_segments()[:-1]:
        world.files.put(segment.path(".timeindex"), bytes(24))
    world.configure(segment_index_bytes=72)
    assert groups(world) == [[0, 3, 6], [9]]
    world.files.remove(world.path(6, ".timeindex"))
    assert groups(world) == [[0, 3, 6, 9]]


def test_a_group_spans_no_more_offsets_than_an_index_can_say() -> None:
    world = a_world()
    candidate = found(world)
    assert candidate is not None
    sources = make_plan(candidate, 0).sources
    sources[2].end_offset = sources[0].base_offset + RELATIVE_OFFSET_MAX + 1
    sources[3].end_offset = sources[2].end_offset + 1
    grouped = group_sources(world.files, sources, world.log.config)
    assert [[one.base_offset for one in group] for group in grouped] == [[0, 3, 6], [9]]
