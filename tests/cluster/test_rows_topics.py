"""Goal: rows 3, 6, 7 and 70 to 73 of the feature list: what a cluster tells of itself, where it
puts partitions, and what goes on while some of it is away.
Method: brokers over real sockets, of `ottla.testing` or processes (see conftest);
confluent-kafka, and raw questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.cluster import raw
from tests.cluster.processes import AnyCluster, Clusters
from tests.cluster.replicated import TOPIC, Replicated
from tests.cluster.waiting import until
from tests.patience import SECONDS_MAX

INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR = 37, 38


@pytest.fixture
def cluster(clusters: Clusters) -> Iterator[AnyCluster]:
    with clusters(3) as running:
        yield running


def admin_of(cluster: AnyCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def create(cluster: AnyCluster, name: str, partitions: int, replicas: int) -> None:
    # Held by a name: a client that nobody holds ends, and what it was asked with it.
    admin = admin_of(cluster)
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(SECONDS_MAX)
    raw.until_told(cluster, name)


def until_all_know(cluster: AnyCluster, *brokers: int) -> None:
    """Each of these knows that these are there, and nobody else: any may place a new topic."""

    def know() -> bool:
        told = [raw.metadata(cluster, one, TOPIC).brokers for one in brokers]
        return all({int(one.node_id) for one in each} == set(brokers) for each in told)

    until(know, f"{brokers} are there")


def refusal_code(call: object) -> int:
    with pytest.raises(KafkaException) as refused:
        call()  # type: ignore[operator]
    return int(refused.value.args[0].code())


def test_row_3_metadata_tells_brokers_controller_leaders_and_who_is_away(
    cluster: AnyCluster,
) -> None:
    create(cluster, TOPIC, 1, 3)
    told = raw.metadata(cluster, 2, TOPIC)
    assert sorted((int(one.node_id), int(one.port)) for one in told.brokers) == [
        (broker_id, cluster.port(broker_id)) for broker_id in (1, 2, 3)
    ]
    assert {one.host for one in told.brokers} == {"127.0.0.1"}
    assert all(one.rack for one in told.brokers)
    assert told.cluster_id
    assert int(told.controller_id) in (1, 2, 3)
    one = raw.partition_of(cluster, 2, TOPIC)
    assert int(one.leader_id) == cluster.leader(TOPIC)
    assert int(one.leader_epoch) == 0
    assert set(map(int, one.replica_nodes)) == set(map(int, one.isr_nodes)) == {1, 2, 3}
    assert one.offline_replicas == ()
    cluster.kill(3)
    until(
        lambda: tuple(map(int, raw.partition_of(cluster, 2, TOPIC).offline_replicas)) == (3,),
        "3 is told to be away",
    )


def test_row_6_partitions_are_spread_and_only_grow(cluster: AnyCluster) -> None:
    create(cluster, "six", 6, 1)
    leads = Counter(cluster.leader("six", index) for index in range(6))
    assert leads == {1: 2, 2: 2, 3: 2}
    admin = admin_of(cluster)
    admin.create_partitions([NewPartitions("six", 9)])["six"].result(SECONDS_MAX)
    until(lambda: len(raw.metadata(cluster, 1, "six").topics[0].partitions) == 9, "nine")
    fewer = admin.create_partitions([NewPartitions("six", 3)])["six"]
    assert refusal_code(lambda: fewer.result(SECONDS_MAX)) == INVALID_PARTITIONS


def test_row_7_replicas_are_on_different_brokers(cluster: AnyCluster) -> None:
    create(cluster, "three", 3, 3)
    for one in raw.metadata(cluster, 1, "three").topics[0].partitions:
        assert sorted(map(int, one.replica_nodes)) == [1, 2, 3]
    admin = admin_of(cluster)
    four = admin.create_topics([NewTopic("four", 1, 4)])["four"]
    assert refusal_code(lambda: four.result(SECONDS_MAX)) == INVALID_REPLICATION_FACTOR


def test_row_7_replicas_are_in_different_racks(clusters: Clusters) -> None:
    racks = ["a", "a", "b", "b"]
    with clusters(4, racks=racks) as cluster:
        create(cluster, "spread", 8, 2)
        for one in raw.metadata(cluster, 1, "spread").topics[0].partitions:
            assert {racks[int(each) - 1] for each in one.replica_nodes} == {"a", "b"}


def test_row_70_topics_settings_and_records_survive_a_stop_of_everybody(
    cluster: AnyCluster,
) -> None:
    orders = Replicated(cluster)
    orders.create(retention_ms="123456789")
    producer = orders.producer()
    orders.send(producer, 20)
    orders.flush(producer)
    cluster.stop()
    cluster.start()
    orders.until_led()
    orders.check_nothing_lost()
    assert len(orders.acked) == 20
    (told,) = raw.metadata(cluster, 1, TOPIC).topics
    assert len(told.partitions) == 1


def test_rows_70_and_71_another_controller_takes_over_while_records_flow(
    cluster: AnyCluster,
) -> None:
    orders = Replicated(cluster)
    orders.create()
    producer = orders.producer()
    orders.send(producer, 20)
    before = cluster.controller()
    cluster.kill(before)
    orders.send(producer, 20)
    until(lambda: cluster.controller() not in (-1, before), "another controller")
    create(cluster, "afterwards", 2, 2)
    orders.flush(producer)
    assert not orders.failed
    orders.check_nothing_lost()
    told = int(raw.metadata(cluster, cluster.controller(), TOPIC).controller_id)
    assert told != before


def test_row_72_a_new_broker_gets_new_topics_and_nothing_else_by_itself(
    clusters: Clusters,
) -> None:
    with clusters(4, {"default.replication.factor": 3, "min.insync.replicas": 2}) as cluster:
        cluster.stop(4)
        until_all_know(cluster, 1, 2, 3)
        create(cluster, "old", 4, 3)
        cluster.start(4)
        until_all_know(cluster, 1, 2, 3, 4)
        create(cluster, "new", 4, 3)
        old, new = (
            [set(map(int, one.replica_nodes)) for one in told.partitions]
            for told in (raw.metadata(cluster, 1, name).topics[0] for name in ("old", "new"))
        )
        assert all(replicas == {1, 2, 3} for replicas in old)
        assert any(4 in replicas for replicas in new)


def test_row_73_partitions_led_elsewhere_go_on(cluster: AnyCluster) -> None:
    create(cluster, "alone", 3, 1)
    owners = {cluster.leader("alone", index): index for index in range(3)}
    cluster.kill(3)
    producer = Replicated(cluster).producer()
    outcomes: list[object] = []
    for broker_id in (1, 2):
        for _ in range(20):
            producer.produce(
                "alone",
                b"x",
                partition=owners[broker_id],
                on_delivery=lambda error, message: outcomes.append(error),
            )
    assert producer.flush(SECONDS_MAX) == 0
    assert outcomes == [None] * 40
