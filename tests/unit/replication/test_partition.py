"""Goal: a replica is what the newest state says, tells everybody who waits, and trusts no other.
Method: partitions over logs in memory, told of states in all orders.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.errors import ProtocolError
from ottla.log.log_config import LogConfig
from ottla.protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
)
from ottla.records.batch_header import LEADER_EPOCH, read_header
from ottla.replication.counted import must_sync
from ottla.replication.effects import Assignment, Outcome
from ottla.replication.leader_progress import Pulse
from tests.unit.log.world import NOW_MS, batch
from tests.unit.replication.replicas import LAG_MS, Replica, Waiting, assigned


def test_a_leader_answers_in_its_epoch_only() -> None:
    partition = Replica().lead(epoch=5).partition
    assert partition.check_leader(-1) == NONE
    assert partition.check_leader(5) == NONE
    assert partition.check_leader(4) == FENCED_LEADER_EPOCH
    assert partition.check_leader(6) == UNKNOWN_LEADER_EPOCH


def test_a_follower_answers_readers_but_not_writers() -> None:
    replica = Replica(2)
    assert replica.assume(assigned(1, 5))
    partition = replica.partition
    assert partition.check_leader(5) == NOT_LEADER_OR_FOLLOWER
    assert partition.check_replica(5) == NONE
    assert partition.check_replica(4) == FENCED_LEADER_EPOCH
    with pytest.raises(ProtocolError):
        replica.produce()


def test_nobodys_partition_answers_nobody() -> None:
    replica = Replica(2)
    assert replica.assume(assigned(-1, 6))
    assert replica.partition.check_replica(6) == NOT_LEADER_OR_FOLLOWER
    assert replica.partition.check_leader(6) == NOT_LEADER_OR_FOLLOWER


def test_who_waits_is_told_when_the_role_changes() -> None:
    leader = Replica().lead()
    leader.produce()
    poll, produce, reader = Waiting(), Waiting(0), Waiting()
    leader.partition.add_waiter(poll)
    leader.partition.add_commit_waiter(produce)
    leader.partition.add_reader(reader)
    assert leader.assume(assigned(2, 6))
    assert poll.told == ["gone"]
    assert produce.told == ["gone"]
    assert reader.told == ["news"]


def test_who_waits_goes_on_waiting_when_the_leader_stays() -> None:
    leader = Replica().lead()
    leader.produce()
    produce = Waiting(0)
    leader.partition.add_commit_waiter(produce)
    assert leader.assume(assigned(1, 6))
    assert produce.told == []
    leader.fetched_by(2, 1)
    leader.fetched_by(3, 1)
    assert produce.told == ["committed 0"]


def test_commits_are_told_in_order_and_only_what_is_committed() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce(3)
    waiting = [Waiting(offset) for offset in range(3)]
    for one in waiting:
        leader.partition.add_commit_waiter(one)
    leader.fetched_by(2, 2)
    assert [one.told for one in waiting] == [["committed 0"], ["committed 1"], []]
    leader.partition.remove_commit_waiter(waiting[2])
    leader.fetched_by(2, 3)
    assert waiting[2].told == []


def test_a_long_poll_hears_of_bytes_when_they_are_committed() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    poll = Waiting()
    leader.partition.add_waiter(poll)
    leader.produce()
    assert poll.told == []
    leader.fetched_by(2, 1)
    assert poll.told == ["progress 1 True"]


def test_followers_hear_of_what_is_appended_at_once() -> None:
    leader = Replica().lead()
    reader = Waiting()
    leader.partition.add_reader(reader)
    leader.produce()
    assert reader.told == ["news"]
    leader.fetched_by(2, 1)
    leader.fetched_by(3, 1)
    assert reader.told == ["news", "watermark"]
    leader.partition.remove_reader(reader)
    leader.produce()
    assert reader.told == ["news", "watermark"]


def test_a_run_of_batches_is_told_of_like_each_of_them() -> None:
    """Followers count what is new batch by batch, who polls hears of all of it once."""
    leader = Replica(in_sync_min=1).lead(in_sync=(1,))
    leader.produce()
    reader, poll = Waiting(), Waiting()
    leader.partition.add_reader(reader)
    leader.partition.add_waiter(poll)
    content = batch()
    run = [memoryview(bytearray(content)) for _ in range(3)]
    stored = leader.partition.append_run(run, [read_header(content)] * 3, NOW_MS)
    assert [at.base_offset for at in stored] == [1, 2, 3]
    assert read_header(run[1])[LEADER_EPOCH] == 5
    assert leader.partition.high_watermark == 4
    assert poll.told == ["progress 4 True"]
    assert reader.told == ["watermark", "news", "news", "news"]


def test_a_run_is_refused_by_who_does_not_lead() -> None:
    follower = Replica(2)
    follower.assume(assigned(1, 5))
    content = batch()
    run = [memoryview(bytearray(content)) for _ in range(2)]
    assert follower.partition.append_run(run, [read_header(content)] * 2, NOW_MS) == []
    follower.partition.go_offline()
    assert follower.partition.append_run(run, [read_header(content)] * 2, NOW_MS) == []


def test_the_same_state_twice_changes_nothing() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce()
    proposal = leader.fetched_by(3, 1)
    assert proposal is not None
    assert not leader.assume(assigned(in_sync=(1, 2)))
    assert leader.partition.on_proposal_outcome(proposal, Outcome.REFUSED)


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (assigned(1, 4, 9), "R2"),
        (assigned(1, 5, 2), "R2"),
        (assigned(2, 5, 4), "R1"),
    ],
)
def test_a_state_that_cannot_be_stops_the_replica(state: Assignment, rule: str) -> None:
    leader = Replica()
    leader.assume(assigned(1, 5, 3))
    poll = Waiting()
    leader.partition.add_waiter(poll)
    assert leader.assume(state)
    assert leader.alarms[0].startswith(rule)
    assert poll.told == ["gone"]
    assert leader.partition.check_leader(-1) == KAFKA_STORAGE_ERROR
    assert not leader.assume(assigned(1, 9, 9))
    assert leader.partition.check_leader(-1) == KAFKA_STORAGE_ERROR


def test_a_watermark_beyond_the_log_stops_the_replica() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce(2)
    leader.log.truncate_to(1)  # the ground is cut away under it
    leader.fetched_by(2, 2)
    assert leader.alarms[0].startswith("L5")
    assert leader.partition.log is None


def test_a_leader_that_is_told_of_a_newer_epoch_steps_down() -> None:
    leader = Replica().lead(epoch=5)
    leader.produce()
    produce = Waiting(0)
    leader.partition.add_commit_waiter(produce)
    leader.partition.step_down(5)
    assert leader.partition.check_leader(-1) == NONE
    leader.partition.step_down(6)
    assert produce.told == ["gone"]
    assert leader.partition.check_leader(-1) == NOT_LEADER_OR_FOLLOWER
    assert not leader.assume(assigned(1, 5, 1, in_sync=(1,)))  # it was on its way
    assert leader.partition.check_leader(-1) == NOT_LEADER_OR_FOLLOWER
    assert leader.assume(assigned(1, 6, 2))
    assert leader.partition.check_leader(-1) == NONE


def in_doubt(in_sync: tuple[int, ...] = (1, 2, 3)) -> Replica:
    """A leader of two records, of which one is committed, that was told of a newer epoch."""
    leader = Replica().lead(in_sync)
    leader.produce(2)
    for replica in in_sync[1:]:
        leader.fetched_by(replica, 1)
    assert leader.partition.step_down(6)
    return leader


def test_a_leader_that_stepped_down_for_nothing_leads_on_with_what_it_knew() -> None:
    leader = in_doubt()
    partition = leader.partition
    assert partition.is_in_doubt()
    times_led = partition.times_led
    assert partition.resume(NOW_MS) is None
    assert partition.check_leader(-1) == NONE
    assert not partition.is_in_doubt()
    assert partition.times_led == times_led + 1
    assert (partition.high_watermark, partition.epoch_start_offset) == (1, 0)
    leader.fetched_by(2, 2)
    assert partition.high_watermark == 1, "the other has not said more than before"
    leader.fetched_by(3, 2)
    assert partition.high_watermark == 2
    leader.produce()
    assert leader.alarms == []


def test_who_could_not_fetch_from_a_leader_in_doubt_does_not_lag() -> None:
    leader = in_doubt()
    leader.partition.resume(LAG_MS * 2)
    assert leader.check(LAG_MS * 3) is None
    proposal = leader.check(LAG_MS * 3 + 1)
    assert proposal is not None
    assert proposal.in_sync == (1,)


def test_who_leads_on_counts_whom_it_had_proposed_until_a_newer_state() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    leader.produce()
    leader.fetched_by(2, 1)
    lost = leader.fetched_by(3, 1)
    assert lost is not None
    leader.partition.step_down(6)
    again = leader.partition.resume(NOW_MS)
    assert again is None, "it is still under way"
    leader.produce()
    leader.fetched_by(2, 2)
    assert leader.partition.high_watermark == 1, "R7: perhaps 3 is in the set by now"
    assert not leader.assume(assigned(1, 5, 1, in_sync=(1, 2), replicas=(1, 2)))
    assert leader.partition.high_watermark == 2


def test_a_proposal_that_is_lost_while_the_leader_is_in_doubt_is_made_good() -> None:
    leader = Replica().lead(in_sync=(1, 2))
    lost = leader.fetched_by(3, 0)
    assert lost is not None
    leader.partition.step_down(6)
    assert leader.partition.on_proposal_outcome(lost, Outcome.UNKNOWN)
    assert leader.partition.propose_again() is None, "who does not lead proposes nothing"
    again = leader.partition.resume(NOW_MS)
    assert again is not None
    assert again.in_sync == (1, 2)


def test_what_changes_while_a_leader_is_in_doubt_holds_when_it_leads_on() -> None:
    leader = in_doubt()
    partition = leader.partition
    assert not leader.assume(assigned(1, 5, 1, in_sync=(1,)))
    assert partition.high_watermark == 1
    partition.resume(NOW_MS)
    assert partition.high_watermark == 1, "R8: one is not enough"
    leader.partition.step_down(6)
    leader.log.config = LogConfig(min_insync_replicas=1)
    partition.on_config_changed()
    partition.resume(NOW_MS)
    assert partition.high_watermark == 2


def test_a_leader_in_doubt_learns_first_how_many_are_enough_and_then_how_many_there_are() -> None:
    leader = in_doubt()
    leader.log.config = LogConfig(min_insync_replicas=1)
    leader.partition.resume(NOW_MS)
    leader.partition.step_down(6)
    leader.log.config = LogConfig(min_insync_replicas=2)
    leader.partition.on_config_changed()
    assert not leader.assume(assigned(1, 5, 1, in_sync=(1,)))
    leader.partition.resume(NOW_MS)
    assert leader.partition.high_watermark == 1, "R8: two are wanted, and were when one left"


def test_nothing_is_committed_while_a_leader_is_in_doubt() -> None:
    leader = in_doubt()
    leader.log.config = LogConfig(min_insync_replicas=1)
    leader.partition.on_config_changed()
    assert not leader.assume(assigned(1, 5, 1, in_sync=(1,)))
    leader.log.config = LogConfig(min_insync_replicas=2)
    leader.partition.on_config_changed()
    leader.partition.resume(NOW_MS)
    assert leader.partition.high_watermark == 1, "R8: two are wanted by now"
    leader.log.config = LogConfig(min_insync_replicas=1)
    leader.partition.on_config_changed()
    assert leader.partition.high_watermark == 2


def test_a_newer_epoch_ends_the_doubt() -> None:
    leader = in_doubt()
    assert leader.assume(assigned(2, 6, 1))
    assert not leader.partition.is_in_doubt()
    assert leader.partition.resume(NOW_MS) is None
    assert leader.partition.check_leader(-1) == NOT_LEADER_OR_FOLLOWER


def test_a_failed_disk_ends_the_doubt() -> None:
    leader = in_doubt()
    leader.partition.go_offline()
    assert leader.partition.resume(NOW_MS) is None
    assert leader.partition.check_leader(-1) == KAFKA_STORAGE_ERROR


def test_a_new_leader_keeps_its_watermark_and_waits_for_its_followers() -> None:
    replica = Replica(2)
    replica.world.fill(5)
    replica.partition.high_watermark = 3
    replica.assume(assigned(2, 6, in_sync=(2, 3)))
    assert replica.partition.high_watermark == 3
    assert replica.partition.epoch_start_offset == 5
    replica.fetched_by(3, 5)
    assert replica.partition.high_watermark == 5


def test_what_was_decided_below_the_watermark_is_stable_at_once() -> None:
    """Nothing may ever be appended again that would move the watermark."""
    replica = Replica()
    replica.world.append(batch(producer_id=7, transactional=True))
    replica.world.end_transaction(7, aborted=False)
    replica.partition.log = replica.world.reopen_killed()
    replica.partition.high_watermark = 2
    replica.lead(in_sync=(1, 2))
    assert replica.partition.last_stable_offset == 2


def test_what_is_stable_is_never_below_the_start_of_the_log() -> None:
    """Records of an open transaction can be deleted; nobody may be sent to where they were."""
    replica = Replica()
    replica.world.append(batch(3, producer_id=7, transactional=True))
    replica.lead(in_sync=(1,))
    assert replica.partition.last_stable_offset == 0
    replica.log.advance_log_start(2)
    assert replica.partition.last_stable_offset == 2


def test_where_an_epoch_without_a_batch_ends() -> None:
    replica = Replica()
    replica.world.epoch = 3
    replica.world.fill(4)
    replica.assume(assigned(1, 6))
    assert replica.partition.end_offset_for_epoch(6) == (6, 4)
    assert replica.partition.end_offset_for_epoch(5) == (3, 4)
    assert replica.partition.end_offset_for_epoch(3) == (3, 4)
    assert replica.partition.end_offset_for_epoch(7) == (-1, -1)


def test_the_low_watermark_is_that_of_the_living() -> None:
    leader = Replica().lead()
    leader.produce(3)
    for replica, log_start in ((2, 2), (3, 1)):
        leader.partition.on_follower_fetch(
            replica, 70, 3, log_start, Pulse(0), lambda broker, epoch: True
        )
    assert leader.partition.delete_records_before(3) == 3
    assert leader.partition.low_watermark(lambda replica: True) == 1
    assert leader.partition.low_watermark(lambda replica: replica != 3) == 2


def test_only_a_leader_alone_in_sync_commits_at_once() -> None:
    alone = Replica(in_sync_min=1).lead(in_sync=(1,))
    assert alone.partition.commits_at_once()
    alone.log.config = replace(alone.log.config, flush_messages=1)
    assert not alone.partition.commits_at_once()
    assert not Replica(in_sync_min=1).lead(in_sync=(1, 2)).partition.commits_at_once()
    assert not Replica(in_sync_min=2).lead(in_sync=(1,)).partition.commits_at_once()
    assert not Replica().partition.commits_at_once()


@pytest.mark.parametrize("in_sync", [(1,), (1, 2)])
def test_what_has_to_be_synced_first_is_not_committed_before(in_sync: tuple[int, ...]) -> None:
    """Readers would have seen what a loss of power takes back, once nobody else is in the set who
    has it (seed 75351853)."""
    leader = Replica(in_sync_min=1)
    leader.log.config = replace(leader.log.config, flush_messages=2)
    leader.lead(in_sync)
    waiting = Waiting(1)
    leader.partition.add_commit_waiter(waiting)
    for offset in (1, 2):
        leader.produce()
        leader.fetched_by(2, offset)
    assert leader.partition.high_watermark == 1, "of two, the first need not be on the disk"
    assert must_sync(leader.log)
    leader.produce()
    leader.fetched_by(2, 3)
    assert (leader.partition.high_watermark, waiting.told) == (1, [])
    leader.flush()
    assert (leader.partition.high_watermark, waiting.told) == (3, ["committed 1"])
    leader.produce()
    leader.fetched_by(2, 4)
    assert leader.partition.high_watermark == 4


def test_what_was_copied_and_not_synced_is_not_committed_by_leading() -> None:
    replica = Replica(in_sync_min=1)
    replica.log.config = replace(replica.log.config, flush_messages=1)
    replica.world.fill(3)
    replica.lead(in_sync=(1,))
    assert replica.partition.high_watermark == 0
    replica.flush()
    assert replica.partition.high_watermark == 3


def test_what_was_synced_while_it_was_in_doubt_counts_when_it_leads_on() -> None:
    leader = Replica(in_sync_min=1)
    leader.log.config = replace(leader.log.config, flush_messages=1)
    leader.lead(in_sync=(1,))
    leader.produce()
    assert leader.partition.step_down(6)
    leader.flush()
    assert leader.partition.high_watermark == 0
    leader.partition.resume(0)
    assert leader.partition.high_watermark == 1


def test_a_setting_that_is_lowered_lets_the_watermark_move() -> None:
    leader = Replica(in_sync_min=2).lead(in_sync=(1,))
    leader.produce()
    assert not leader.partition.has_enough_in_sync()
    assert leader.partition.high_watermark == 0
    leader.log.config = replace(leader.log.config, min_insync_replicas=1)
    leader.partition.on_config_changed()
    assert leader.partition.high_watermark == 1


def test_while_somebody_is_eligible_nothing_is_committed_whatever_the_setting() -> None:
    """It would lead next, and nobody would know of what was committed without it. The setting may
    have been lowered by somebody who did not know yet who is eligible (seed 3300022053)."""
    leader = Replica(in_sync_min=2)
    leader.assume(assigned(in_sync=(1,), eligible=(2,)))
    leader.log.config = replace(leader.log.config, min_insync_replicas=1)
    leader.partition.on_config_changed()
    leader.produce(3)
    assert leader.partition.high_watermark == 0
    assert not leader.partition.has_enough_in_sync()
    leader.assume(assigned(version=1, in_sync=(1,)))
    assert leader.partition.high_watermark == 3
    assert leader.partition.has_enough_in_sync()
    leader.assume(assigned(version=2, in_sync=(1,), eligible=(3,)))
    leader.produce(1)
    assert leader.partition.high_watermark == 3


def test_who_comes_back_to_a_deleted_partition_is_not_told_of_a_failed_disk() -> None:
    """A produce whose batch was looked at in the pool meanwhile: its client is to ask where the
    topic is."""
    replica = Replica().lead((1,))
    replica.partition.go_away()
    replica.partition.log = None
    with pytest.raises(ProtocolError) as refused:
        replica.produce()
    assert refused.value.code == NOT_LEADER_OR_FOLLOWER
    failed = Replica().lead((1,))
    failed.partition.go_offline()
    with pytest.raises(ProtocolError) as refused:
        failed.produce()
    assert refused.value.code == KAFKA_STORAGE_ERROR
