"""Goal: rows 4, 5, 16 to 22 and 26 to 31 of the feature list: who leads, what epochs are for, who
is in sync, and what a leader that dies takes with it.
Method: brokers over real sockets, of `ottla.testing` or processes (see conftest);
confluent-kafka, and raw questions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from ottla.client import Admin
from tests.cluster import raw
from tests.cluster.processes import Clusters
from tests.cluster.replicated import TOPIC, Replicated
from tests.cluster.waiting import until
from tests.compat.wire import batches_in, stored_bytes
from tests.patience import SECONDS_MAX


@pytest.fixture
def orders(clusters: Clusters) -> Iterator[Replicated]:
    with clusters(3) as cluster:
        yield Replicated(cluster)


@pytest.fixture
def steady_orders(clusters: Clusters) -> Iterator[Replicated]:
    """The preferred leader does not come back by itself, in the midst of what is looked at."""
    with clusters(3, {"auto.leader.rebalance.enable": "false"}) as cluster:
        yield Replicated(cluster)


def epoch(orders: Replicated) -> int:
    return int(raw.partition_of(orders.cluster, orders.leader(), TOPIC).leader_epoch)


def others(orders: Replicated, *but: int) -> list[int]:
    return [one for one in orders.cluster.broker_ids if one not in but]


def test_rows_4_5_and_27_offsets_go_on_and_bytes_stay_over_elections(
    steady_orders: Replicated,
) -> None:
    orders = steady_orders
    orders.create()
    producer = orders.producer()
    epochs, before = [], b""
    for _ in range(3):
        orders.send(producer, 10)
        orders.flush(producer)
        epochs.append(epoch(orders))
        with raw.wire_to(orders.cluster, orders.leader()) as wire:
            served = stored_bytes(wire, TOPIC, len(orders.acked))
        assert served.startswith(before), "what could be read is read again, byte for byte"
        before = served
        orders.cluster.start(orders.kill_leader())
        orders.until_in_sync(1, 2, 3)
    assert sorted(orders.acked.values()) == list(range(30))
    assert epochs == sorted(set(epochs)), "an election raises the epoch"
    written = [one.leader_epoch for one in batches_in(before)]
    assert written == sorted(written)
    assert set(written) == set(epochs), "each batch has the epoch of the leader that took it"


def test_row_27_an_epoch_that_is_not_the_leaders_is_refused(steady_orders: Replicated) -> None:
    orders = steady_orders
    orders.create()
    orders.cluster.start(orders.kill_leader())
    orders.until_in_sync(1, 2, 3)
    leader, current = orders.leader(), epoch(orders)
    assert current >= 1
    answers = [
        int(raw.fetch(orders.cluster, leader, TOPIC, 0, epoch=one).error_code)
        for one in (current - 1, current, current + 1)
    ]
    assert answers == [raw.FENCED_LEADER_EPOCH, raw.NONE, raw.UNKNOWN_LEADER_EPOCH]
    told = raw.latest(orders.cluster, leader, TOPIC, epoch=current - 1)
    assert int(told.error_code) == raw.FENCED_LEADER_EPOCH


def alone_ahead(orders: Replicated) -> int:
    """One broker in sync that has more than the others, and then is killed; the others are back."""
    orders.create(min_insync_replicas="1")
    producer = orders.producer()
    orders.send(producer, 10)
    orders.flush(producer)
    last = orders.leader()
    for one in others(orders, last):
        orders.cluster.stop(one)
    orders.until_in_sync(last)
    orders.send(producer, 10)
    orders.flush(producer)
    assert len(orders.acked) == 20
    orders.cluster.kill(last)
    for one in others(orders, last):
        orders.cluster.start(one)
    return last


def test_rows_16_19_and_30_without_the_last_in_sync_a_partition_waits(orders: Replicated) -> None:
    last = alone_ahead(orders)
    witness = others(orders, last)[0]
    until(lambda: orders.leader() == -1, "nobody leads")
    assert orders.cluster.in_sync(TOPIC) == {last}, "the last member stays in the set"
    told = raw.partition_of(orders.cluster, witness, TOPIC)
    assert (int(told.error_code), int(told.leader_id)) == (raw.LEADER_NOT_AVAILABLE, -1)
    assert list(told.isr_nodes) == [], "but nobody is told to be in sync with nobody, as by Kafka"
    orders.cluster.start(last)
    until(lambda: orders.leader() == last, "it leads again")
    assert last in orders.cluster.in_sync(TOPIC)
    orders.check_nothing_lost()
    orders.until_in_sync(1, 2, 3)
    orders.until_alike(1, 2, 3)


def test_rows_17_and_18_unclean_election_by_a_setting_of_the_topic(orders: Replicated) -> None:
    last = alone_ahead(orders)
    until(lambda: orders.leader() == -1, "nobody leads")
    admin = AdminClient(orders.client())
    entry = ConfigEntry(
        "unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource("topic", TOPIC, incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(SECONDS_MAX)
    leader = orders.until_led(not_by=last)
    assert epoch(orders) >= 1
    until(lambda: raw.watermark(orders.cluster, leader, TOPIC) == 10, "what it has")
    beyond = raw.fetch(orders.cluster, leader, TOPIC, 15)
    assert int(beyond.error_code) == raw.OFFSET_OUT_OF_RANGE
    # A consumer that knows the epoch of what it read learns where the log parted.
    told = raw.end_of_epoch(orders.cluster, leader, TOPIC, 0)
    assert int(told.end_offset) == 10
    orders.cluster.start(last)
    orders.until_in_sync(1, 2, 3)
    orders.until_alike(1, 2, 3)


def test_row_20_an_idle_follower_stays_in_sync_however_long(orders: Replicated) -> None:
    orders.create()
    producer = orders.producer()
    orders.send(producer, 5)
    orders.flush(producer)
    until(
        lambda: all(raw.end_of_log(orders.cluster, one, TOPIC) == 5 for one in (1, 2, 3)), "copied"
    )
    for _ in range(5):
        orders.cluster.advance(seconds=7)
        assert orders.cluster.in_sync(TOPIC) == {1, 2, 3}


def test_rows_20_and_22_who_does_not_fetch_leaves_and_comes_back(clusters: Clusters) -> None:
    # It lags long before anybody could take it for dead.
    settings = {"replica.lag.time.max.ms": 6_000, "zookeeper.session.timeout.ms": 60_000}
    with clusters(3, settings) as cluster:
        leaves_and_comes_back(Replicated(cluster))


def leaves_and_comes_back(orders: Replicated) -> None:
    orders.create()
    leader = orders.leader()
    slow = others(orders, leader)[0]
    orders.cluster.cut(leader, slow)
    producer = orders.producer()
    orders.send(producer, 5)
    until(lambda: raw.end_of_log(orders.cluster, leader, TOPIC) == 5, "written")

    def gone() -> bool:
        orders.cluster.advance(seconds=5)
        return slow not in orders.cluster.in_sync(TOPIC)

    until(gone, "it leaves after replica.lag.time.max.ms")
    orders.flush(producer)
    orders.cluster.heal()
    orders.until_in_sync(1, 2, 3)
    assert not orders.failed


def test_row_26_the_watermark_comes_back_after_a_failover(orders: Replicated) -> None:
    orders.create()
    producer = orders.producer()
    orders.send(producer, 25)
    orders.flush(producer)
    orders.kill_leader()
    until(
        lambda: raw.watermark(orders.cluster, orders.leader(), TOPIC) == 25,
        "the new leader commits what the old one had",
    )
    orders.check_nothing_lost()


def test_row_28_replicas_do_not_part_whoever_dies_when(clusters: Clusters) -> None:
    with clusters(2, {"min.insync.replicas": 1}) as cluster:
        orders = Replicated(cluster)
        orders.create(replicas=2)
        for _ in range(4):
            producer = orders.producer(acks="1", **{"message.timeout.ms": 3_000})
            orders.send(producer, 20)
            producer.poll(0)
            killed = orders.leader()
            cluster.kill(killed)
            orders.send(producer, 20)
            orders.until_led(not_by=killed)
            producer.flush(5)
            cluster.start(killed)
            orders.until_in_sync(1, 2)
        orders.until_alike(1, 2)


def test_row_29_a_clean_stop_fails_no_write(orders: Replicated) -> None:
    orders.create()
    producer = orders.producer()
    for _ in range(3):
        leader = orders.leader()
        orders.send(producer, 20)
        orders.cluster.stop(leader)
        assert orders.leader() not in (-1, leader), "it has handed over before it ended"
        orders.send(producer, 20)
        orders.flush(producer)
        orders.cluster.start(leader)
        orders.until_in_sync(1, 2, 3)
    assert not orders.failed
    orders.check_nothing_lost()


def test_row_31_the_preferred_leader_comes_back_when_it_is_told_to(orders: Replicated) -> None:
    orders.create()
    preferred = orders.kill_leader()
    orders.cluster.start(preferred)
    orders.until_in_sync(1, 2, 3)
    with Admin(bootstrap_servers=orders.cluster.bootstrap) as admin:
        admin.elect_leaders([(TOPIC, 0)])
    until(lambda: orders.leader() == preferred, "elected at once")


def test_row_31_the_preferred_leader_comes_back_by_itself(orders: Replicated) -> None:
    orders.create()
    preferred = orders.kill_leader()
    orders.cluster.start(preferred)
    orders.until_in_sync(1, 2, 3)

    def restored() -> bool:
        orders.cluster.advance(seconds=5)
        return orders.leader() == preferred

    until(restored, "within leader.imbalance.check.interval.seconds")
