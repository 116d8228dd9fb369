"""Goal: consumers of a cluster read what is committed, from whom they should, and hear who leads.
Method: the handler over a real replica that leads or follows, with followers that the test plays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.base.limits import FETCH_WAIT_MS_MAX
from ottla.handlers import api_01_fetch
from ottla.metadata.configs.replica_selectors import RACK_AWARE
from ottla.protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication import follower_log
from tests.unit.handlers.cluster_fakes import ClusterBroker, decoded
from tests.unit.replication.replicas import TOPIC_ID, Replica

EPOCH = 5


def fetch(
    broker: ClusterBroker,
    offset: int = 0,
    *,
    version: int = 17,
    epoch: int = -1,
    rack: str = "",
    min_bytes: int = 1,
    wait_ms: int = 0,
    index: int = 0,
    last_epoch: int = -1,
    isolation_level: int = 0,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    also: Sequence[int] = (),
) -> Any:
    """`also`: more partitions, named before that of `index`."""
    return broker.ask(
        api_01_fetch,
        version,
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[
            {
                "topic": "topic",
                "topic_id": TOPIC_ID,
                "partitions": [
                    {
                        "partition": asked,
                        "current_leader_epoch": epoch,
                        "fetch_offset": offset,
                        "last_fetched_epoch": last_epoch,
                        "log_start_offset": -1,
                        "partition_max_bytes": partition_bytes,
                    }
                    for asked in (*also, index)
                ],
            }
        ],
        forgotten_topics_data=[],
        rack_id=rack,
    )


def of_one(answer: Any) -> Any:
    [topic] = answer.responses
    [partition] = topic.partitions
    return partition


def records(answer: Any) -> bytes:
    return bytes(of_one(answer).records or b"")


def a_follower(watermark: int) -> ClusterBroker:
    """It has three records of its leader, broker 2."""
    broker = ClusterBroker(leader=2)
    leader = Replica(2).lead()
    leader.produce(3)
    log = broker.replica.log
    follower_log.store_fetched(broker.replica.partition, log, leader.content())
    follower_log.follow_ends(broker.replica.partition, log, watermark, 0)
    return broker


def test_only_what_is_committed_is_read() -> None:
    broker = ClusterBroker()
    broker.replica.produce(3)
    assert records(fetch(broker)) == b""
    for replica in (2, 3):
        broker.replica.fetched_by(replica, 3)
    assert records(fetch(broker)) == broker.replica.content()


@pytest.mark.parametrize("watermark", [0, 2, 3])
def test_a_follower_serves_up_to_its_watermark(watermark: int) -> None:
    broker = a_follower(watermark)
    answer = fetch(broker)
    assert of_one(answer).error_code == 0
    assert of_one(answer).high_watermark == watermark
    assert len(records(answer)) == len(broker.replica.content()) * watermark // 3


def test_old_consumers_are_sent_to_the_leader() -> None:
    assert of_one(fetch(a_follower(3), version=10)).error_code == NOT_LEADER_OR_FOLLOWER


def test_an_offset_that_a_follower_has_not_got() -> None:
    assert of_one(fetch(a_follower(2), 3)).error_code == 0
    assert of_one(fetch(a_follower(2), 4)).error_code == OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_a_partition_that_is_not_known_has_no_aborted_transactions(version: int) -> None:
    unknown = of_one(fetch(ClusterBroker(), index=9, version=version))
    assert (unknown.error_code, unknown.aborted_transactions) == (3, [])
    beyond = of_one(fetch(ClusterBroker(), 99, version=version))
    assert (beyond.error_code, beyond.aborted_transactions) == (1, None)


def test_what_nobody_knows_is_told_with_what_is_waited_for() -> None:
    """Told at once it would be asked for again at once, and again."""
    broker = ClusterBroker()
    waiting = fetch(broker, also=[9], wait_ms=500)
    assert isinstance(waiting, Deferred)
    broker.time.advance(499)
    assert not waiting.done
    broker.time.advance(1)
    [told] = decoded(waiting.result(), 1, 17).responses
    codes = {partition.partition_index: partition.error_code for partition in told.partitions}
    assert codes == {9: UNKNOWN_TOPIC_OR_PARTITION, 0: 0}


def test_what_nobody_knows_is_waited_for_by_nobody() -> None:
    told = of_one(fetch(ClusterBroker(), index=9, wait_ms=500))
    assert told.error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_what_can_not_be_read_is_told_at_once() -> None:
    [told] = fetch(ClusterBroker(), 99, also=[9], wait_ms=500).responses
    assert [partition.error_code for partition in told.partitions] == [
        UNKNOWN_TOPIC_OR_PARTITION,
        OFFSET_OUT_OF_RANGE,
    ]


@pytest.mark.parametrize("level", [-1, 2])
@pytest.mark.parametrize("version", [4, 7, 12, 13, 18])
def test_an_isolation_level_that_nobody_knows(version: int, level: int) -> None:
    """It must not get what it may not want: records of open transactions."""
    answer = fetch(ClusterBroker(), version=version, isolation_level=level)
    if version >= 7:
        assert (answer.error_code, answer.session_id) == (UNKNOWN_SERVER_ERROR, 0)
    if version < 13:
        told = of_one(answer)
        assert (told.error_code, told.high_watermark) == (UNKNOWN_SERVER_ERROR, -1)
        assert told.aborted_transactions == []
    else:
        assert answer.responses == []


@pytest.mark.parametrize(
    ("epoch", "code"), [(4, FENCED_LEADER_EPOCH), (6, UNKNOWN_LEADER_EPOCH), (-1, 0), (-2, 0)]
)
def test_followers_know_epochs_too(epoch: int, code: int) -> None:
    assert of_one(fetch(a_follower(3), epoch=epoch)).error_code == code


@pytest.mark.parametrize(
    ("offset", "last_epoch", "code", "diverging"),
    [
        (2, EPOCH, 0, (-1, -1)),
        (3, EPOCH, 0, (-1, -1)),
        (4, EPOCH, 0, (EPOCH, 3)),
        (2, EPOCH - 1, 0, (EPOCH - 1, 0)),
        # The leader's epoch has risen, and nothing of it has come here.
        (2, EPOCH + 1, OFFSET_OUT_OF_RANGE, (-1, -1)),
        (2, EPOCH + 9, OFFSET_OUT_OF_RANGE, (-1, -1)),
        (3, -2, 0, (-1, -1)),
    ],
)
def test_a_follower_compares_the_last_fetched_epoch_with_its_own_log(
    offset: int, last_epoch: int, code: int, diverging: tuple[int, int]
) -> None:
    """As Kafka 4.3.1 does, whoever leads."""
    broker = a_follower(3)
    broker.become(2, EPOCH + 1, 1)
    told = of_one(fetch(broker, offset, last_epoch=last_epoch))
    end = told.diverging_epoch
    assert (told.error_code, (end.epoch, end.end_offset)) == (code, diverging)
    assert not (told.records and diverging != (-1, -1))


def test_a_waiting_consumer_hears_of_a_followers_progress() -> None:
    broker = a_follower(1)
    waiting = fetch(broker, 1, wait_ms=500)
    assert isinstance(waiting, Deferred)
    follower_log.follow_ends(broker.replica.partition, broker.replica.log, 3, 0)
    broker.turn_ends()
    assert waiting.done


def test_nobodys_partition_serves_nothing() -> None:
    broker = a_follower(3)
    broker.become(-1, 6, 1)
    assert of_one(fetch(broker)).error_code == NOT_LEADER_OR_FOLLOWER


def test_a_replica_that_has_moved_away_is_no_failed_disk() -> None:
    """Whoever asks may have found it a moment ago."""
    partition = ClusterBroker().replica.partition
    partition.go_away()
    partition.log = None
    for check in (partition.check_leader, partition.check_replica):
        assert check(-1) == check(5) == NOT_LEADER_OR_FOLLOWER


def test_who_leads_is_told() -> None:
    broker = ClusterBroker(leader=3, epoch=9)
    answer = fetch(broker, index=1)
    leader = of_one(answer).current_leader
    assert of_one(answer).error_code == NOT_LEADER_OR_FOLLOWER
    assert (leader.leader_id, leader.leader_epoch) == (3, 9)
    [node] = answer.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (3, "host3", 9094, "rack3")
    assert of_one(fetch(broker, index=1, version=15)).current_leader.leader_id == -1


def test_a_fenced_reader_is_told_too() -> None:
    answer = fetch(ClusterBroker(), epoch=3)
    assert of_one(answer).error_code == FENCED_LEADER_EPOCH
    assert of_one(answer).current_leader.leader_id == 1


def test_a_lost_leadership_ends_the_wait_and_names_the_next() -> None:
    broker = ClusterBroker()
    waiting = fetch(broker, epoch=5, wait_ms=500)
    broker.become(2, 6, 1)
    answer = decoded(waiting.result(), 1, 17)
    assert of_one(answer).error_code == FENCED_LEADER_EPOCH
    assert of_one(answer).current_leader.leader_id == 2


class TestNearest:
    """The leader is in rack1, followers in rack2 and rack3."""

    def a_leader(self) -> ClusterBroker:
        broker = ClusterBroker(settings={"replica.selector.class": RACK_AWARE})
        broker.replica.produce(3)
        for replica in (2, 3):
            broker.replica.fetched_by(replica, 3)
        return broker

    def test_the_replica_of_the_same_rack_is_named_at_once(self) -> None:
        answer = fetch(self.a_leader(), rack="rack3", wait_ms=500)
        assert of_one(answer).preferred_read_replica == 3
        assert records(answer) == b""
        assert of_one(answer).high_watermark == 3

    def test_in_the_leaders_rack_the_leader_serves(self) -> None:
        answer = fetch(self.a_leader(), rack="rack1")
        assert of_one(answer).preferred_read_replica == -1
        assert records(answer)

    def test_where_nobody_is_the_leader_serves(self) -> None:
        assert records(fetch(self.a_leader(), rack="rack9"))

    def test_who_is_not_in_sync_is_not_named(self) -> None:
        broker = self.a_leader()
        broker.become(1, 5, 1, in_sync=(1, 2))
        assert of_one(fetch(broker, rack="rack3")).preferred_read_replica == -1

    def test_who_has_not_got_it_is_not_named(self) -> None:
        broker = self.a_leader()
        broker.replica.produce()
        broker.replica.fetched_by(2, 4)
        assert of_one(fetch(broker, 4, rack="rack3")).preferred_read_replica == -1
        assert of_one(fetch(broker, 4, rack="rack2")).preferred_read_replica == 2

    def test_without_the_setting_the_leader_serves(self) -> None:
        broker = ClusterBroker()
        broker.replica.produce(3)
        for replica in (2, 3):
            broker.replica.fetched_by(replica, 3)
        assert records(fetch(broker, rack="rack3"))


def test_a_consumer_waits_for_as_many_bytes_as_it_wants() -> None:
    broker = ClusterBroker()
    size = 100
    waiting = fetch(broker, wait_ms=500, min_bytes=3 * size)
    for offset in range(1, 6):
        broker.replica.produce()
        for replica in (2, 3):
            broker.replica.fetched_by(replica, offset)
        broker.turn_ends()
        committed = len(broker.replica.content())
        assert waiting.done == (committed >= 3 * size)


def twenty_committed(settings: dict[str, str] | None = None) -> ClusterBroker:
    broker = ClusterBroker(settings=settings)
    broker.replica.produce(20)
    for replica in (2, 3):
        broker.replica.fetched_by(replica, 20)
    return broker


@pytest.mark.parametrize(
    ("settings", "max_bytes"), [({}, 150), ({"fetch.max.bytes": "1024"}, 9999)]
)
def test_nobody_waits_for_more_bytes_than_it_can_get(
    settings: dict[str, str], max_bytes: int
) -> None:
    broker = twenty_committed(settings)
    assert records(fetch(broker, wait_ms=500, min_bytes=5000, max_bytes=max_bytes))


def test_the_batch_that_does_not_fit_counts_for_who_waits() -> None:
    """Only whole batches are handed out: of the last bytes that it wants there may be none."""
    broker = twenty_committed()
    size = len(broker.replica.content()) // 20
    least = 2 * size + 1
    told = records(fetch(broker, wait_ms=500, min_bytes=least, partition_bytes=least))
    assert len(told) == 2 * size
    waiting = fetch(broker, wait_ms=500, min_bytes=least + 1, partition_bytes=least)
    assert isinstance(waiting, Deferred), "it takes less of this partition than it wants in all"
    waiting = fetch(broker, 18, wait_ms=500, min_bytes=least, partition_bytes=least)
    assert isinstance(waiting, Deferred), "there is no more"


def test_who_woke_a_waiting_fetch_is_answered_before_it() -> None:
    broker = ClusterBroker()
    waiting = fetch(broker, wait_ms=500)
    for offset in (1, 2):
        broker.replica.produce()
        for replica in (2, 3):
            broker.replica.fetched_by(replica, offset)
    assert not waiting.done, "whoever produced has no answer yet"
    broker.turn_ends()
    [read] = decoded(waiting.result(), 1, 17).responses[0].partitions
    assert len(read.records) == len(broker.replica.content()), "all that came in the turn"


def test_a_fetch_that_is_woken_and_then_let_go_answers_nobody() -> None:
    broker = ClusterBroker()
    waiting = fetch(broker, wait_ms=500)
    broker.replica.produce()
    for replica in (2, 3):
        broker.replica.fetched_by(replica, 1)
    waiting.abandon()
    broker.turn_ends()
    assert not waiting.done


def test_a_fetch_that_nobody_waits_for_any_more_is_let_go() -> None:
    broker = ClusterBroker()
    waiting = fetch(broker, wait_ms=5_000)
    assert list(broker.replica.partition._waiters)
    waiting.abandon()
    assert not list(broker.replica.partition._waiters)
    broker.replica.produce(3)
    for replica in (2, 3):
        broker.replica.fetched_by(replica, 3)
    broker.time.advance(10_000)
    assert not waiting.done


def test_nobody_waits_for_weeks() -> None:
    broker = ClusterBroker()
    waiting = fetch(broker, wait_ms=2**31 - 1)
    broker.time.advance(FETCH_WAIT_MS_MAX - 1)
    assert not waiting.done
    broker.time.advance(1)
    assert records(decoded(waiting.result(), 1, 17)) == b""
