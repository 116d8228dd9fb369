"""Goal: the watermark tells the truth about what is committed, whatever the order of events.
Method: a directed case for each refusal, random histories against the definition.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.leader_progress import LeaderProgress


def a_leader(
    in_sync: tuple[int, ...] = (1, 2, 3), high_watermark: int = 10, in_sync_min: int = 2
) -> LeaderProgress:
    return LeaderProgress(
        leader=1,
        epoch=5,
        epoch_start=10,
        high_watermark=high_watermark,
        replicas=(1, 2, 3),
        in_sync=in_sync,
        in_sync_min=in_sync_min,
    )


def fetched(leader: LeaderProgress, replica: int, offset: int, now_ms: int = 0) -> bool:
    return leader.on_follower_fetch(leader.followers[replica], offset, now_ms)


def test_a_member_that_has_not_fetched_holds_it() -> None:
    leader = a_leader(in_sync=(1, 2, 3))
    leader.on_appended(20)
    assert not fetched(leader, 2, 20)
    assert leader.high_watermark == 10
    assert fetched(leader, 3, 15)
    assert leader.high_watermark == 15


def test_it_stands_still_below_min_in_sync() -> None:
    leader = a_leader(in_sync=(1,))
    assert not leader.on_appended(20)
    assert leader.high_watermark == 10
    assert not leader.has_enough_in_sync()


def test_a_lower_min_in_sync_lets_it_move() -> None:
    leader = a_leader(in_sync=(1,))
    leader.on_appended(20)
    assert leader.on_min_in_sync(1)
    assert leader.high_watermark == 20


def test_min_in_sync_is_capped_by_the_replica_count() -> None:
    leader = LeaderProgress(
        leader=1,
        epoch=0,
        epoch_start=0,
        high_watermark=0,
        replicas=(1,),
        in_sync=(1,),
        in_sync_min=2,
    )
    assert leader.has_enough_in_sync()
    assert leader.on_appended(5)
    assert leader.high_watermark == 5


def test_a_proposed_member_counts_until_the_store_says_otherwise() -> None:
    leader = a_leader(in_sync=(1, 2))
    leader.on_in_sync_proposed((1, 2, 3))
    leader.on_appended(30)
    assert not fetched(leader, 2, 30)
    assert leader.on_in_sync_stored((1, 2))
    assert leader.high_watermark == 30


def test_a_proposal_ends_the_shortcut_of_a_lone_leader() -> None:
    leader = a_leader(in_sync=(1,), in_sync_min=1)
    assert leader.on_appended(11)
    leader.on_in_sync_proposed((1, 2))
    assert not leader.on_appended(12)
    assert leader.high_watermark == 11


def test_a_replica_joins_only_past_the_start_of_the_epoch() -> None:
    leader = a_leader(in_sync=(1,), high_watermark=5)
    fetched(leader, 2, 7)
    assert not leader.may_join(leader.followers[2])
    fetched(leader, 2, 10)
    assert leader.may_join(leader.followers[2])


def test_all_proposals_count_until_a_newer_version() -> None:
    leader = a_leader(in_sync=(1, 2), in_sync_min=1)
    leader.on_in_sync_proposed((1, 2, 3))
    leader.on_in_sync_proposed((1,))
    leader.on_appended(30)
    assert not fetched(leader, 2, 30)
    assert fetched(leader, 3, 30)


def test_a_replica_that_is_about_to_join_is_waited_for() -> None:
    leader = a_leader(in_sync=(1, 2))
    leader.on_appended(30)
    leader.on_awaited(frozenset({3}))
    assert not fetched(leader, 2, 30)
    leader.on_awaited(frozenset())
    assert leader.advance()


def test_when_a_follower_was_last_caught_up() -> None:
    leader = a_leader()
    follower = leader.followers[2]
    leader.on_appended(20)
    fetched(leader, 2, 10, now_ms=100)
    assert not follower.is_caught_up
    leader.on_appended(30)
    fetched(leader, 2, 20, now_ms=200)
    assert (follower.caught_up_ms, follower.is_caught_up) == (100, True)
    fetched(leader, 2, 30, now_ms=300)
    assert follower.caught_up_ms == 300


def test_who_is_at_the_end_is_never_behind() -> None:
    leader = a_leader()
    leader.on_appended(20)
    fetched(leader, 2, 20, now_ms=5)
    fetched(leader, 3, 19, now_ms=5)
    assert not leader.is_behind(leader.followers[2], now_ms=90_000, lag_ms_max=30_000)
    assert leader.is_behind(leader.followers[3], now_ms=90_000, lag_ms_max=30_000)
    assert not leader.is_behind(leader.followers[3], now_ms=30_000, lag_ms_max=30_000)


def test_replicas_come_and_go_with_a_newer_state() -> None:
    leader = a_leader(in_sync=(1, 2, 3), in_sync_min=1)
    leader.on_appended(30)
    fetched(leader, 2, 30)
    assert leader.on_in_sync_stored((1, 2), (1, 2, 4))
    assert leader.high_watermark == 30
    assert sorted(leader.followers) == [2, 4]
    assert leader.followers[2].log_end == 30


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(10, 40)),
        st.tuples(st.just("append, not synced"), st.integers(10, 40)),
        st.tuples(st.just("synced"), st.integers(10, 40)),
        st.tuples(st.just("fetch"), st.tuples(st.integers(2, 3), st.integers(0, 40))),
        st.tuples(st.just("propose"), st.sampled_from([(1,), (1, 2), (1, 3), (1, 2, 3)])),
        st.tuples(st.just("stored"), st.sampled_from([(1,), (1, 2), (1, 3), (1, 2, 3)])),
    ),
    max_size=30,
)


@given(STEPS, st.integers(1, 3))
def test_it_never_goes_back_and_never_passes_a_counted_member(
    steps: list[tuple[str, object]], in_sync_min: int
) -> None:
    leader = a_leader(in_sync_min=in_sync_min)
    log_ends, in_sync, proposed = {1: 10}, {1, 2, 3}, set[int]()
    end = 10  # of the leader's log, of which log_ends has what counts
    for kind, value in steps:
        before = leader.high_watermark
        if kind == "append":
            assert isinstance(value, int)
            end = log_ends[1] = max(end, value)  # a leader's log only grows
            leader.on_appended(end)
        elif kind == "append, not synced":
            assert isinstance(value, int)
            end = max(end, value)
            leader.on_appended(end, log_ends[1])
        elif kind == "synced":
            assert isinstance(value, int)
            log_ends[1] = max(log_ends[1], min(value, end))
            leader.on_counted(log_ends[1])
        elif kind == "fetch":
            assert isinstance(value, tuple)
            log_ends[value[0]] = min(value[1], end)  # it can't have more than the leader
            fetched(leader, value[0], log_ends[value[0]])
        elif kind == "propose":
            assert isinstance(value, tuple)
            proposed |= set(value)
            leader.on_in_sync_proposed(value)
        else:
            assert isinstance(value, tuple)
            in_sync, proposed = set(value), set()
            leader.on_in_sync_stored(value)
        assert leader.high_watermark >= before
        if leader.high_watermark > before:
            assert len(in_sync) >= in_sync_min
            assert all(log_ends.get(m, 0) >= leader.high_watermark for m in in_sync | proposed)
