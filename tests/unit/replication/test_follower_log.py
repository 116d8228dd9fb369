"""Goal: a follower's log becomes its leader's, byte for byte, and loses nothing that was committed.
Method: pairs of logs in memory with histories that part in every way; the cuts are exchanged by
hand until the follower's end is in the leader's log.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import ProtocolError
from ottla.protocol.error_codes import CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR
from ottla.replication import follower_log
from tests.unit.log.world import batch
from tests.unit.replication.replicas import Replica, assigned

Epochs = list[int]


def a_log(broker_id: int, epochs: Epochs) -> Replica:
    """One record for each entry, written in that epoch."""
    replica = Replica(broker_id)
    for epoch in epochs:
        replica.world.epoch = epoch
        replica.world.append(batch(size=10 + broker_id * epoch))
    return replica


def parted(leader: Replica, follower: Replica) -> tuple[int, int] | None:
    """What a leader would answer to the follower's fetch."""
    last_epoch = follower.log.leader_epochs.latest
    if last_epoch < 0:
        return None
    epoch, end = leader.partition.end_offset_for_epoch(last_epoch)
    if epoch < last_epoch or end < follower.log.log_end_offset:
        return epoch, end
    return None


@pytest.mark.parametrize(
    ("leads", "follows", "common"),
    [
        ([0, 0, 0], [0, 0, 0, 0, 0], 3),
        ([0, 0, 2, 2], [0, 0, 1, 1, 1], 2),
        ([0, 1, 3], [0, 1, 2, 2], 2),
        ([0, 0, 4], [1, 1, 2, 3], 0),
        ([0, 1, 1, 1], [0, 2, 2, 3], 1),
        ([3, 3], [0, 1, 2], 0),
        ([0, 2, 2, 2, 5], [0, 2, 2, 3, 4], 3),
    ],
)
def test_it_cuts_to_where_the_logs_part(leads: Epochs, follows: Epochs, common: int) -> None:
    leader, follower = a_log(1, leads), a_log(2, follows)
    leader.lead(epoch=9)
    follower.assume(assigned(1, 9))
    rounds = 0
    while (difference := parted(leader, follower)) is not None:
        follower_log.cut_to_common(follower.partition, follower.log, *difference)
        rounds += 1
        assert rounds < 10
    assert follower.log.log_end_offset == common


def test_a_cut_below_the_watermark_stops_the_replica() -> None:
    leader, follower = a_log(1, [0, 2]), a_log(2, [0, 1, 1])
    leader.lead(epoch=2)
    follower.partition.high_watermark = 2
    follower.assume(assigned(1, 2))
    difference = parted(leader, follower)
    assert difference is not None
    with pytest.raises(ProtocolError) as refused:
        follower_log.cut_to_common(follower.partition, follower.log, *difference)
    assert refused.value.code == KAFKA_STORAGE_ERROR
    assert follower.alarms[0].startswith("R11")
    assert follower.log.log_end_offset == 3
    assert follower.partition.log is None


def test_an_unclean_election_explains_the_loss() -> None:
    leader, follower = a_log(1, [0, 2]), a_log(2, [0, 1, 1])
    leader.lead(epoch=2)
    follower.partition.high_watermark = 3
    follower.assume(assigned(1, 2, unclean_epoch=2))
    difference = parted(leader, follower)
    assert difference is not None
    follower_log.cut_to_common(follower.partition, follower.log, *difference)
    assert not follower.alarms
    assert follower.partition.high_watermark == 1


def test_an_unclean_election_of_before_explains_nothing() -> None:
    leader, follower = a_log(1, [0, 3, 4]), a_log(2, [0, 3, 3])
    leader.lead(epoch=4)
    follower.partition.high_watermark = 3
    follower.assume(assigned(1, 4, unclean_epoch=2))
    difference = parted(leader, follower)
    assert difference is not None
    with pytest.raises(ProtocolError):
        follower_log.cut_to_common(follower.partition, follower.log, *difference)


def test_a_lower_recovery_point_is_told() -> None:
    leader, follower = a_log(1, [0, 2]), a_log(2, [0, 1, 1])
    leader.lead(epoch=2)
    follower.assume(assigned(1, 2))
    follower.world.flush()
    assert follower_log.cut_to_common(follower.partition, follower.log, 0, 1)
    assert not follower_log.cut_to_common(follower.partition, follower.log, 0, 1)


def test_it_stores_what_it_is_sent() -> None:
    leader, follower = a_log(1, [0, 0, 1]), a_log(2, [])
    follower.assume(assigned(1, 5))
    stored = follower_log.store_fetched(follower.partition, follower.log, leader.content())
    assert stored == len(leader.content())
    assert follower.content() == leader.content()
    assert follower.log.leader_epochs.entries() == [(0, 0), (1, 2)]


def test_a_changed_byte_is_not_stored() -> None:
    leader, follower = a_log(1, [0]), a_log(2, [])
    content = bytearray(leader.content())
    content[-1] ^= 1
    with pytest.raises(ProtocolError) as refused:
        follower_log.store_fetched(follower.partition, follower.log, content)
    assert refused.value.code == CORRUPT_MESSAGE
    assert follower.log.log_end_offset == 0


def test_the_watermark_follows_but_never_goes_back() -> None:
    follower = a_log(2, [0, 0, 0])
    follow = follower_log.follow_ends
    follow(follower.partition, follower.log, 2, 0)
    assert follower.partition.high_watermark == 2
    follow(follower.partition, follower.log, 9, 0)
    assert follower.partition.high_watermark == 3
    assert follower.partition.lag() == 6
    follow(follower.partition, follower.log, 1, 0)
    assert follower.partition.high_watermark == 3
    assert follower.partition.lag() == 0


def test_the_log_start_follows_up_to_the_watermark() -> None:
    follower = a_log(2, [0, 0, 0])
    follower_log.follow_ends(follower.partition, follower.log, 2, 3)
    assert follower.log.log_start_offset == 2


def test_a_log_below_the_leaders_start_starts_over() -> None:
    follower = a_log(2, [0, 0, 0])
    follower_log.start_over(follower.partition, follower.log, 40)
    assert follower.log.log_start_offset == follower.log.log_end_offset == 40
    assert follower.partition.high_watermark == 40
