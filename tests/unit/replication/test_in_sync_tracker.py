"""Goal: the leader proposes the right in-sync set at the right time, and forgets no proposal early.
Method: a leader of three replicas over a log in memory; a case for each rule.
"""

from __future__ import annotations

from ottla.replication.effects import Outcome
from ottla.replication.leader_progress import Pulse
from tests.unit.replication.replicas import LAG_MS, Replica, assigned


def test_a_follower_that_has_all_joins() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce(3)
    leader.fetched_by(2, 3)
    assert leader.fetched_by(3, 2) is None
    proposal = leader.fetched_by(3, 3, broker_epoch=71)
    assert proposal is not None
    assert proposal.in_sync == (1, 2, 3)
    assert proposal.joining == ((3, 71),)
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 0)


def test_not_before_the_start_of_the_epoch() -> None:
    leader = Replica()
    leader.world.fill(4)
    leader.lead(in_sync=(1, 2))
    assert leader.partition.high_watermark == 0
    assert leader.fetched_by(3, 3) is None
    assert leader.fetched_by(3, 4) is not None


def test_not_if_the_store_would_not_have_it() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce(1)
    assert leader.fetched_by(3, 1, may_be_member=False) is None


def test_one_proposal_at_a_time() -> None:
    leader = Replica().lead(in_sync=(1,))
    leader.produce(1)
    first = leader.fetched_by(2, 1)
    assert first is not None
    assert leader.fetched_by(3, 1) is None
    assert leader.check(90_000) is None
    leader.assume(assigned(version=1, in_sync=(1, 2)))
    second = leader.fetched_by(3, 1)
    assert second is not None
    assert second.in_sync == (1, 2, 3)
    assert second.partition_epoch == 1


def test_who_lags_leaves() -> None:
    leader = Replica().lead()
    leader.produce(2)
    leader.fetched_by(2, 2, now_ms=1_000)
    leader.fetched_by(3, 1, now_ms=1_000)
    assert leader.check(LAG_MS) is None
    proposal = leader.check(LAG_MS + 1)
    assert proposal is not None
    assert proposal.in_sync == (1, 2)
    assert proposal.joining == ()


def test_who_was_idle_does_not_lag_when_there_is_more() -> None:
    leader = Replica().lead()
    pulse = Pulse(1_000)
    leader.produce()
    for replica in (2, 3):
        leader.partition.on_follower_fetch(replica, 70, 1, 0, pulse, lambda broker, epoch: True)
    pulse.fetched_ms = 3_600_000  # it went on asking for other partitions
    leader.produce()
    assert leader.check(3_600_000 + LAG_MS) is None
    proposal = leader.check(3_600_000 + LAG_MS + 1)
    assert proposal is not None
    assert proposal.in_sync == (1,)


def test_who_could_not_join_then_joins_later() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce()
    assert leader.fetched_by(3, 1, may_be_member=False) is None
    proposal = leader.check(5)
    assert proposal is not None
    assert (proposal.in_sync, proposal.joining) == ((1, 2, 3), ((3, 70),))


def test_who_fetches_no_more_does_not_join() -> None:
    leader = Replica().lead(in_sync=(1,))
    leader.produce()
    assert leader.fetched_by(3, 1, may_be_member=False) is None
    assert leader.check(LAG_MS + 1) is None


def test_who_never_fetched_leaves_too() -> None:
    leader = Replica().lead()
    proposal = leader.check(LAG_MS + 1)
    assert proposal is not None
    assert proposal.in_sync == (1,)


def test_a_member_that_lost_what_is_committed_leaves_at_once() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce(2)
    assert leader.fetched_by(2, 2) is None
    assert leader.partition.high_watermark == 2
    proposal = leader.fetched_by(2, 1)
    assert proposal is not None
    assert proposal.in_sync == (1,)


def test_a_refused_member_is_counted_until_a_newer_state() -> None:
    leader = Replica(in_sync_min=1).lead(in_sync=(1,))
    leader.produce(1)
    proposal = leader.fetched_by(2, 1)
    assert proposal is not None
    assert leader.partition.on_proposal_outcome(proposal, Outcome.REFUSED)
    leader.produce(1)
    assert leader.check(0, frozenset({2})) is None
    assert leader.partition.high_watermark == 1
    leader.assume(assigned(version=1, in_sync=(1,)))
    assert leader.partition.high_watermark == 2


def test_what_was_lost_is_asked_again_so_that_the_version_grows() -> None:
    leader = Replica(in_sync_min=1).lead(in_sync=(1,))
    leader.produce(1)
    proposal = leader.fetched_by(2, 1)
    assert proposal is not None
    assert leader.partition.propose_again() is None  # its answer is not known yet
    assert leader.partition.on_proposal_outcome(proposal, Outcome.UNKNOWN)
    again = leader.partition.propose_again()
    assert again is not None
    assert again.in_sync == (1,)
    assert again.partition_epoch == proposal.partition_epoch
    leader.produce(1)
    assert leader.partition.high_watermark == 1
    assert not leader.partition.on_proposal_outcome(proposal, Outcome.REFUSED)
    leader.assume(assigned(version=1, in_sync=(1, 2)))
    assert leader.partition.propose_again() is None


def test_a_stored_proposal_waits_for_its_state() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce(1)
    proposal = leader.fetched_by(3, 1)
    assert proposal is not None
    assert not leader.partition.on_proposal_outcome(proposal, Outcome.STORED)
    assert leader.fetched_by(3, 1) is None
    assert leader.partition.propose_again() is None


def test_the_watermark_waits_for_who_is_about_to_join() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce(1)
    leader.fetched_by(2, 1, now_ms=1)
    leader.fetched_by(3, 0, now_ms=2)
    leader.produce(1)
    assert leader.fetched_by(3, 1, now_ms=3) is not None  # all there was when it last asked
    leader.assume(assigned(version=1, in_sync=(1, 2)))  # refused; another state came
    leader.produce(1)
    leader.fetched_by(2, 3, now_ms=4)
    assert leader.partition.high_watermark == 1
    leader.check(4, frozenset({3}))
    assert leader.partition.high_watermark == 3


def test_a_busy_leader_does_not_outrun_a_follower_for_ever() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce(10)
    leader.fetched_by(2, 10)
    leader.fetched_by(3, 0)
    for step in range(10, 20):
        leader.produce(1)
        leader.fetched_by(2, step + 1)
        if leader.fetched_by(3, step) is not None:
            break
    else:
        raise AssertionError("it never joined")
