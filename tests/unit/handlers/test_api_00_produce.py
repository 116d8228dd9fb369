"""Goal: what a cluster owes a producer: committed, refused before or after the append, or sent to
who leads.
Method: the handler over a real replica, with followers that the test plays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.handlers import api_00_produce
from ottla.handlers.reply import CloseConnection
from ottla.protocol.error_codes import (
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.records.batch_header import MAGIC_POSITION, read_header
from tests.unit.handlers.cluster_fakes import ClusterBroker, decoded
from tests.unit.log.world import NOW_MS, batch
from tests.unit.replication.replicas import TOPIC_ID

VERSION = 13


def ask(broker: ClusterBroker, version: int, acks: int, name: str, batches: list[bytes]) -> Any:
    """One batch for each partition, and no transactional id."""
    data = [{"index": index, "records": records} for index, records in enumerate(batches)]
    topic = {"name": name, "topic_id": TOPIC_ID, "partition_data": data}
    return broker.ask(
        api_00_produce,
        version,
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topic_data=[topic],
    )


def produce(
    broker: ClusterBroker, *, acks: int = -1, version: int = VERSION, records: bytes | None = None
) -> Any:
    return ask(broker, version, acks, "topic", [records or batch()])


def of_one(answer: Any, version: int = VERSION) -> Any:
    if isinstance(answer, Deferred):
        answer = decoded(answer.result(), 0, version)
    [topic] = answer.responses
    [partition] = topic.partition_responses
    return partition


@pytest.fixture
def broker() -> ClusterBroker:
    return ClusterBroker()


def test_acknowledged_when_all_in_sync_have_it(broker: ClusterBroker) -> None:
    waiting = produce(broker)
    broker.replica.fetched_by(2, 1)
    assert not waiting.done
    broker.replica.fetched_by(3, 1)
    assert (of_one(waiting).error_code, of_one(waiting).base_offset) == (0, 0)


def test_acks_1_waits_for_nobody(broker: ClusterBroker) -> None:
    answer = of_one(produce(broker, acks=1))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert broker.replica.partition.high_watermark == 0


def test_too_few_in_sync_before_the_append(broker: ClusterBroker) -> None:
    broker.become(1, 5, 1, in_sync=(1,))
    refused = of_one(produce(broker))
    assert refused.error_code == NOT_ENOUGH_REPLICAS
    assert (refused.base_offset, refused.log_start_offset) == (-1, 0), "as Kafka tells it"
    assert broker.replica.log.log_end_offset == 0
    assert of_one(produce(broker, acks=1)).error_code == 0
    assert broker.replica.partition.high_watermark == 0


def test_too_few_in_sync_after_the_append(broker: ClusterBroker) -> None:
    waiting = produce(broker)
    broker.become(1, 5, 1, in_sync=(1,))
    assert not waiting.done, "the watermark stands still"
    broker.time.advance(1000)
    assert of_one(waiting).error_code == REQUEST_TIMED_OUT


def test_committed_by_a_set_that_is_too_small_by_now(broker: ClusterBroker) -> None:
    waiting = produce(broker)
    partition = broker.replica.partition
    broker.replica.fetched_by(2, 1)
    progress = partition._progress
    assert progress is not None
    progress.followers[3].log_end = 1
    assert progress.advance()
    progress.on_min_in_sync(4)
    progress._has_enough = False
    partition._progress_made(0)
    assert of_one(waiting).error_code == NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_time_is_up(broker: ClusterBroker) -> None:
    waiting = produce(broker)
    broker.time.advance(999)
    assert not waiting.done
    broker.time.advance(1)
    told = of_one(waiting)
    assert told.error_code == REQUEST_TIMED_OUT
    assert (told.base_offset, told.log_start_offset) == (0, 0), "it is in the log all the same"
    for replica in (2, 3):
        broker.replica.fetched_by(replica, 1)
    assert broker.replica.partition.high_watermark == 1


def test_a_lost_leadership_is_told_with_the_next_leader(broker: ClusterBroker) -> None:
    waiting = produce(broker)
    broker.become(3, 6, 1)
    answer = of_one(waiting)
    assert answer.error_code == NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (3, 6)
    [node] = decoded(waiting.result(), 0, VERSION).node_endpoints
    assert (node.node_id, node.host, node.port) == (3, "host3", 9094)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("still_leads", [True, False])
def test_who_has_lost_the_leadership_during_a_flush_acknowledges_nothing(
    broker: ClusterBroker, acks: int, still_leads: bool
) -> None:
    """The one who leads now may have begun without this batch: the producer is to ask there."""
    flush: Deferred[None] = Deferred()
    broker.services.request_flush = lambda partition: flush
    log = broker.replica.partition.log
    assert log is not None
    log.config = replace(log.config, flush_messages=1)
    waiting = produce(broker, acks=acks)
    for replica in (2, 3):
        broker.replica.fetched_by(replica, 1)
    if not still_leads:
        broker.become(3, 6, 1)
    broker.replica.flush()
    flush.resolve(None)
    told = of_one(waiting)
    assert told.error_code == (NONE if still_leads else NOT_LEADER_OR_FOLLOWER)
    assert told.base_offset == 0, "it is in this log all the same"


@pytest.mark.parametrize("joins", [False, True])
def test_alone_it_is_acknowledged_when_it_is_synced_however_long_that_takes(joins: bool) -> None:
    """But not if somebody has come into the set meanwhile who may not have it."""
    broker = ClusterBroker()
    broker.become(1, 5, 1, in_sync=(1,))
    flush: Deferred[None] = Deferred()
    broker.services.request_flush = lambda partition: flush
    partition = broker.replica.partition
    assert partition.log is not None
    partition.log.config = replace(partition.log.config, flush_messages=1, min_insync_replicas=1)
    partition.on_config_changed()
    waiting = produce(broker)
    assert partition.high_watermark == 0
    if joins:
        broker.become(1, 5, 2, in_sync=(1, 2))
    else:
        broker.time.advance(10_000)
    assert not waiting.done
    broker.replica.flush()
    flush.resolve(None)
    assert waiting.done == (not joins)
    if joins:
        broker.replica.fetched_by(2, 1)
    assert of_one(waiting).error_code == NONE


@pytest.mark.parametrize(("version", "leader"), [(9, -1), (10, 2), (13, 2)])
def test_a_follower_names_its_leader(version: int, leader: int) -> None:
    answer = of_one(produce(ClusterBroker(leader=2), version=version), version)
    assert answer.error_code == NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == leader


def test_a_topic_that_is_deleted_meanwhile_is_told_as_gone(broker: ClusterBroker) -> None:
    waiting = produce(broker)
    broker.services.image = replace(broker.image, topics={}, topic_names_by_id={})
    broker.replica.partition.go_away()
    assert of_one(waiting).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_without_a_leader_its_last_epoch_is_told() -> None:
    answer = of_one(produce(ClusterBroker(leader=-1, epoch=6)))
    assert answer.error_code == NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (-1, 6)


def test_a_failed_disk_is_told(broker: ClusterBroker) -> None:
    waiting = produce(broker)
    broker.replica.partition.go_offline()
    assert of_one(waiting).error_code == KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("acks", [1, -1])
def test_a_disk_in_its_reserve_takes_nothing_of_producers(broker: ClusterBroker, acks: int) -> None:
    partition = broker.replica.partition
    partition.is_short_of_room = True
    answer = of_one(produce(broker, acks=acks))
    assert (answer.error_code, answer.base_offset) == (KAFKA_STORAGE_ERROR, -1)
    assert "almost full" in answer.error_message
    assert broker.replica.log.log_end_offset == 0
    # A coordinator's batch, a marker of a transaction: they have the reserve.
    content = batch()
    partition.append(bytearray(content), read_header(content), NOW_MS, from_client=False)
    assert broker.replica.log.log_end_offset == 1
    partition.is_short_of_room = False
    assert of_one(produce(broker, acks=1)).base_offset == 1


@pytest.mark.parametrize("acks", [1, -1])
def test_a_retry_is_told_when_the_batch_was_stored(broker: ClusterBroker, acks: int) -> None:
    """By the short way of what needs no waiting, and by the long one."""
    log = broker.replica.log
    log.config = replace(log.config, message_timestamp_type="LogAppendTime")
    records = batch(producer_id=7, timestamp_ms=broker.time.wall_ms() - 9)
    first = produce(broker, acks=acks, records=records)
    for replica in (2, 3):
        broker.replica.fetched_by(replica, 1)
    broker.time.advance(5_000)
    retry = of_one(produce(broker, acks=acks, records=records))
    assert (retry.error_code, retry.base_offset) == (0, 0)
    assert retry.log_append_time_ms == of_one(first).log_append_time_ms > 0


@pytest.mark.parametrize("version", [3, 9, 13])
def test_of_a_partition_that_is_named_twice_the_last_batch_counts(
    broker: ClusterBroker, version: int
) -> None:
    def topic(*batches: bytes) -> dict[str, Any]:
        data = [{"index": 0, "records": records} for records in batches]
        return {"name": "topic", "topic_id": TOPIC_ID, "partition_data": data}

    def told(*topics: dict[str, Any], acks: int = 1) -> tuple[int, int, int]:
        answer = broker.ask(
            api_00_produce,
            version,
            transactional_id=None,
            acks=acks,
            timeout_ms=1000,
            topic_data=list(topics),
        )
        one = of_one(answer, version)
        return one.error_code, one.base_offset, broker.replica.log.log_end_offset

    assert told(topic(batch(3), batch(2))) == (NONE, 0, 2)
    assert told(topic(batch(3)), topic(batch(1))) == (NONE, 2, 3)
    assert told(topic(b"broken", batch(1))) == (NONE, 3, 4)
    assert told(topic(batch(1), b"broken")) == (INVALID_RECORD, -1, 4)
    assert told(topic(batch(1), batch(1)), acks=2) == (INVALID_REQUIRED_ACKS, -1, 4)
    assert told(topic(), topic(batch(1))) == (NONE, 4, 5)


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("acks", [1, -1, 2])
def test_with_a_batch_of_a_transaction_that_is_not_named_nothing_is_stored(
    broker: ClusterBroker, version: int, acks: int
) -> None:
    batches = [batch(), batch(producer_id=7, transactional=True)]
    for wanted in (batches, batches[::-1], batches[1:]):
        [topic] = ask(broker, version, acks, "topic", wanted).responses
        told = [(one.error_code, one.log_start_offset) for one in topic.partition_responses]
        assert told == [(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)] * len(wanted)
    with pytest.raises(CloseConnection):
        ask(broker, version, 0, "topic", batches)
    assert broker.replica.log.log_end_offset == 0


def test_what_is_no_batch_belongs_to_no_transaction(broker: ClusterBroker) -> None:
    """Where the attributes of a batch are, older formats have a part of the time."""
    older = bytearray(batch(producer_id=7, transactional=True))
    older[MAGIC_POSITION] = 1
    for broken in (bytes(older), bytes(older[:20])):
        assert of_one(produce(broker, records=broken)).error_code == INVALID_RECORD


@pytest.mark.parametrize("version", [3, 9, 12])
def test_an_internal_topic_is_refused_where_it_is(broker: ClusterBroker, version: int) -> None:
    def told() -> list[int]:
        [topic] = ask(broker, version, 1, "__consumer_offsets", [batch()] * 3).responses
        return [one.error_code for one in topic.partition_responses]

    assert told() == [UNKNOWN_TOPIC_OR_PARTITION] * 3
    topics = {"__consumer_offsets": broker.image.topics["topic"]}
    broker.services.image = replace(broker.image, topics=topics)
    assert told() == [*[INVALID_TOPIC_EXCEPTION] * 2, UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_without_partitions_is_not_told(broker: ClusterBroker) -> None:
    topic = {"name": "topic", "topic_id": TOPIC_ID, "partition_data": []}
    answer = broker.ask(
        api_00_produce, 13, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[topic]
    )
    assert answer.responses == []
