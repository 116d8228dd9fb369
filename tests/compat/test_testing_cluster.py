"""Goal: a test gets a cluster that can be killed, stopped, paused and moved in time, and whose
brokers lead what they should.
Method: the cluster itself and confluent-kafka's admin client. What is waited for has two minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster
from tests.patience import SECONDS_MAX


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.01)


def create(cluster: Cluster, name: str, partitions: int = 3) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 3)])[name].result(SECONDS_MAX)
    return admin


def leaders(cluster: Cluster, name: str = "t") -> list[int]:
    return [cluster.leader(name, index) for index in range(3)]


def test_every_broker_leads_its_share(cluster: Cluster) -> None:
    admin = create(cluster, "t")
    assert sorted(leaders(cluster)) == [1, 2, 3]
    told = admin.list_topics("t", timeout=SECONDS_MAX)
    assert sorted(told.brokers) == [1, 2, 3]
    assert [told.topics["t"].partitions[index].leader for index in range(3)] == leaders(cluster)
    assert cluster.controller() in (1, 2, 3)


def test_who_is_killed_is_replaced_and_comes_back_on_its_port(cluster: Cluster) -> None:
    create(cluster, "t")
    port = cluster.port(1)
    cluster.kill(1)
    until(lambda: not {1, -1} & set(leaders(cluster)))
    cluster.start(1)
    assert cluster.port(1) == port
    assert 1 not in leaders(cluster), "it has to catch up first"


def test_the_controller_is_replaced_too(cluster: Cluster) -> None:
    for _ in range(2):
        controller = cluster.controller()
        cluster.kill(controller)
        until(lambda controller=controller: cluster.controller() not in (controller, -1))  # type: ignore[misc]


def test_who_stops_hands_over_first(cluster: Cluster) -> None:
    create(cluster, "t")
    cluster.stop(2)
    assert not {2, -1} & set(leaders(cluster))
    assert all(2 not in cluster.in_sync("t", index) for index in range(3))
    cluster.start(2)


def test_a_pause_ends_the_session_when_time_passes(cluster: Cluster) -> None:
    create(cluster, "t")
    cluster.pause(3)
    assert 3 in leaders(cluster)
    cluster.advance(seconds=10)
    until(lambda: not {3, -1} & set(leaders(cluster)))
    cluster.resume(3)
    create(cluster, "u")
    until(lambda: cluster.leader("u", 0) != -1)


def test_a_cluster_that_was_stopped_has_what_it_had(cluster: Cluster) -> None:
    create(cluster, "t")
    cluster.stop()
    cluster.start()
    until(lambda: -1 not in leaders(cluster))


def test_what_can_not_be_done_is_said(cluster: Cluster) -> None:
    with pytest.raises(RuntimeError, match="running already"):
        cluster.start(1)
    cluster.kill(1)
    with pytest.raises(RuntimeError, match="not running"):
        cluster.kill(1)
    with pytest.raises(KeyError):
        cluster.leader("nope")


def test_an_acknowledged_record_outlives_its_leader(cluster: Cluster) -> None:
    create(cluster, "t", 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(100):
        producer.produce("t", str(number).encode())
        if number == 50:
            cluster.kill(cluster.leader("t"))
    assert producer.flush(120) == 0


def test_a_follower_that_is_cut_off_leaves_the_in_sync_set_and_comes_back(
    cluster: Cluster,
) -> None:
    create(cluster, "t", 1)
    leader = cluster.leader("t")
    follower = next(iter(cluster.in_sync("t") - {leader}))
    cluster.cut(leader, follower)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "1", "log_level": 0})
    producer.produce("t", b"unseen by one")
    assert producer.flush(SECONDS_MAX) == 0

    def has_left() -> bool:
        cluster.advance(seconds=5)
        return follower not in cluster.in_sync("t")

    until(has_left)
    assert cluster.leader("t") == leader
    cluster.heal()
    until(lambda: follower in cluster.in_sync("t"))


@pytest.mark.ottla(brokers=2, num_partitions=4)
def test_the_fixture_takes_settings(ottla_cluster: Cluster) -> None:
    assert ottla_cluster.broker_ids == [1, 2]
    admin = AdminClient({"bootstrap.servers": ottla_cluster.bootstrap})
    admin.create_topics([NewTopic("t")])["t"].result(SECONDS_MAX)
    assert ottla_cluster.leader("t", 3) in (1, 2)
