"""Goal: rows 8, 10 to 15 and 23 to 25 of the feature list: what an acknowledgement means, who gives
one, and what consumers may see.
Method: brokers over real sockets, of `ottla.testing` or processes (see conftest);
confluent-kafka, and raw requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import raw
from tests.cluster.processes import Clusters
from tests.cluster.replicated import TOPIC, Replicated
from tests.cluster.waiting import until
from tests.compat.wire import Wire, batch_of, produce, produce_request

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
def orders(clusters: Clusters) -> Iterator[Replicated]:
    with clusters(3) as cluster:
        yield Replicated(cluster)


@pytest.fixture
def lasting_orders(clusters: Clusters, lasting_sessions: dict[str, object]) -> Iterator[Replicated]:
    """For tests in which one of three is paused, and still counts."""
    with clusters(3, lasting_sessions) as cluster:
        yield Replicated(cluster)


def followers(orders: Replicated) -> list[int]:
    return [one for one in orders.cluster.broker_ids if one != orders.leader()]


def to_leader(orders: Replicated, acks: int, value: bytes = b"x") -> Any:
    with raw.wire_to(orders.cluster, orders.leader()) as wire:
        return produce(wire, TOPIC, batch_of([value]), acks=acks)


def test_row_8_a_follower_takes_no_writes_and_tells_who_does(orders: Replicated) -> None:
    orders.create()
    follower = followers(orders)[0]
    with raw.wire_to(orders.cluster, follower) as wire:
        request = produce_request(TOPIC, batch_of([b"x"]), version=10)
        answer = wire.call(request)
    refused = answer.responses[0].partition_responses[0]
    assert int(refused.error_code) == raw.NOT_LEADER_OR_FOLLOWER
    assert int(refused.current_leader.leader_id) == orders.leader()
    assert int(refused.current_leader.leader_epoch) == 0
    (where,) = answer.node_endpoints
    assert (int(where.node_id), int(where.port)) == (
        orders.leader(),
        orders.cluster.port(orders.leader()),
    )


def test_row_8_consumers_read_from_the_nearest_replica(clusters: Clusters) -> None:
    settings = {"replica.selector.class": RACK_AWARE}
    with clusters(3, settings, racks=["a", "b", "c"]) as cluster:
        orders = Replicated(cluster)
        orders.create()
        producer = orders.producer()
        orders.send(producer, 5)
        orders.flush(producer)
        near = followers(orders)[0]
        rack = "abc"[near - 1]
        until(
            lambda: (
                int(raw.fetch(cluster, orders.leader(), TOPIC, 0, rack=rack).preferred_read_replica)
                == near
            ),
            "the leader points to the nearest",
        )
        until(
            lambda: bool(raw.fetch(cluster, near, TOPIC, 0, rack=rack).records),
            "the nearest serves what is committed",
        )


def test_row_8_the_nearest_replica_serves_what_is_committed_at_once(clusters: Clusters) -> None:
    hour_ms = 3_600_000
    settings = {
        "replica.selector.class": RACK_AWARE,
        "replica.fetch.wait.max.ms": str(hour_ms),
        "replica.lag.time.max.ms": str(2 * hour_ms),
        "replica.socket.timeout.ms": str(2 * hour_ms),
    }
    with clusters(3, settings, racks=["a", "b", "c"]) as cluster:
        orders = Replicated(cluster)
        orders.create()
        assert int(to_leader(orders, acks=-1).error_code) == raw.NONE
        until(
            lambda: all(raw.fetch(cluster, near, TOPIC, 0).records for near in followers(orders)),
            "their watermarks, though they wait for records",
        )


def test_row_10_acks_0_is_never_answered_and_an_error_closes(orders: Replicated) -> None:
    orders.create()
    with raw.wire_to(orders.cluster, orders.leader()) as wire:
        wire.send(produce_request(TOPIC, batch_of([b"silent"]), acks=0))
        # The answer that comes first is the one to the second request.
        answer = produce(wire, TOPIC, batch_of([b"loud"]), acks=1)
        assert (int(answer.error_code), int(answer.base_offset)) == (raw.NONE, 1)
    with raw.wire_to(orders.cluster, followers(orders)[0]) as wire:
        wire.send(produce_request(TOPIC, batch_of([b"lost"]), acks=0))
        assert wire.receive_frame() is None


def test_rows_11_23_and_24_acks_1_moves_the_log_and_not_the_watermark(orders: Replicated) -> None:
    orders.create()
    leader = orders.leader()
    for one in followers(orders):
        orders.cluster.pause(one)
    answer = to_leader(orders, acks=1)
    assert (int(answer.error_code), int(answer.base_offset)) == (raw.NONE, 0)
    assert raw.end_of_log(orders.cluster, leader, TOPIC) == 1
    assert raw.watermark(orders.cluster, leader, TOPIC) == 0
    assert not raw.fetch(orders.cluster, leader, TOPIC, 0).records
    assert raw.lag(orders.cluster, leader, TOPIC) == 0
    for one in followers(orders):
        orders.cluster.resume(one)
    until(lambda: raw.watermark(orders.cluster, leader, TOPIC) == 1, "all have it")


def test_row_12_acks_all_waits_for_everybody_in_sync(lasting_orders: Replicated) -> None:
    orders = lasting_orders
    orders.create()
    leader, slow = orders.leader(), followers(orders)[0]
    orders.cluster.pause(slow)
    with raw.wire_to(orders.cluster, leader) as wire:
        request = produce_request(TOPIC, batch_of([b"x"]))
        number = wire.send(request)
        until(lambda: raw.end_of_log(orders.cluster, leader, TOPIC) == 1, "the leader has it")
        # Two of three have it or will; that is enough for min.insync.replicas, and not for acks.
        assert raw.watermark(orders.cluster, leader, TOPIC) == 0
        orders.cluster.resume(slow)
        answer = wire.receive(request, number).responses[0].partition_responses[0]
    assert int(answer.error_code) == raw.NONE
    assert raw.watermark(orders.cluster, leader, TOPIC) == 1


def test_row_13_no_other_number_of_acks(orders: Replicated) -> None:
    orders.create()
    assert int(to_leader(orders, acks=2).error_code) == raw.INVALID_REQUIRED_ACKS


def test_row_14_too_few_in_sync_refuse_before_anything_is_written(orders: Replicated) -> None:
    orders.create()
    leader = orders.leader()
    for one in followers(orders):
        orders.cluster.stop(one)
    orders.until_in_sync(leader)
    refused = to_leader(orders, acks=-1)
    assert int(refused.error_code) == raw.NOT_ENOUGH_REPLICAS
    assert raw.end_of_log(orders.cluster, leader, TOPIC) == 0
    assert int(to_leader(orders, acks=1).error_code) == raw.NONE
    assert raw.end_of_log(orders.cluster, leader, TOPIC) == 1
    assert raw.watermark(orders.cluster, leader, TOPIC) == 0, "held while too few are in sync"
    for one in (1, 2, 3):
        if one != leader:
            orders.cluster.start(one)
    orders.until_in_sync(1, 2, 3)
    until(lambda: raw.watermark(orders.cluster, orders.leader(), TOPIC) == 1, "seen at last")


def test_row_15_a_topic_needs_no_more_in_sync_than_it_has_replicas(orders: Replicated) -> None:
    orders.create(replicas=1, min_insync_replicas="3")
    assert int(to_leader(orders, acks=-1).error_code) == raw.NONE


def test_row_25_who_is_not_in_sync_holds_nothing_back(orders: Replicated) -> None:
    orders.create()
    gone = followers(orders)[0]
    orders.cluster.kill(gone)
    until(lambda: gone not in orders.cluster.in_sync(TOPIC), "it left the set")
    assert int(to_leader(orders, acks=-1).error_code) == raw.NONE
    assert raw.watermark(orders.cluster, orders.leader(), TOPIC) == 1


def test_a_client_that_claims_to_be_a_replica_changes_nothing(lasting_orders: Replicated) -> None:
    orders = lasting_orders
    orders.create()
    leader, slow = orders.leader(), followers(orders)[0]
    orders.cluster.pause(slow)
    assert int(to_leader(orders, acks=1).error_code) == raw.NONE
    # Whoever fetched at offset 1 as `slow` would let the watermark pass what `slow` does not have.
    with Wire(f"127.0.0.1:{orders.cluster.port(leader)}"):
        answer = raw.fetch(orders.cluster, leader, TOPIC, 1, replica_id=slow)
    assert int(answer.error_code) != raw.NONE
    assert raw.watermark(orders.cluster, leader, TOPIC) == 0
    assert orders.cluster.in_sync(TOPIC) == {1, 2, 3}
    orders.cluster.resume(slow)
    until(lambda: raw.watermark(orders.cluster, leader, TOPIC) == 1, "the real one fetched")
