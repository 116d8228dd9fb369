"""Brokers for the client's tests: every test that asks for `cluster` runs on Ottla and on Kafka.

Each broker is a process of its own, started once in a test process; the tests of Kafka's share one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from ottla.testing import Cluster
from tests.client.proxied import (
    KafkaCluster,
    Proxied,
    ProxiedCluster,
    proxied_ottla,
)
from tests.client.secure_kafka import Authority, SecureKafka
from tests.compat.nodes import Node, OttlaNode

KAFKA = pytest.param(
    "kafka", marks=[pytest.mark.kafka, pytest.mark.java, pytest.mark.xdist_group("client-kafka")]
)
KAFKA_THREE = pytest.param(
    "kafka_three",
    marks=[pytest.mark.kafka, pytest.mark.java, pytest.mark.xdist_group("client-kafka-three")],
)
ONE_NODE = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "num.partitions": "1",
}

THREE_NODES = {
    "default.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
# `make chaos` runs all of it on three brokers, too.
THREE = bool(os.environ.get("OTTLA_CLIENT_THREE"))
MORE = ["three", KAFKA_THREE] if THREE else []
# Leaders move by the tests' word only.
KAFKA_STAYS = {"auto.leader.rebalance.enable": "false"}

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def ottla_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = OttlaNode(tmp_path_factory.mktemp("client-ottla"), ONE_NODE)
    node.start()
    yield node
    node.close()


@pytest.fixture(scope="session")
def kafka_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    node = SecureKafka(tmp_path_factory.mktemp("client-kafka"), ONE_NODE, authority)
    node.start()
    yield node
    node.kill()  # how it stops is of no interest here, and takes it seconds
    node.proxy.close()


@pytest.fixture(scope="session")
def three_node() -> Iterator[Cluster]:
    """Three brokers with three replicas of everything."""
    with Cluster(3, ONE_NODE | THREE_NODES) as brokers:
        yield brokers


@pytest.fixture(scope="session")
def kafka_three_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    settings = ONE_NODE | THREE_NODES | KAFKA_STAYS
    brokers = KafkaCluster(tmp_path_factory.mktemp("client-kafka-three"), settings)
    brokers.start()
    yield brokers
    brokers.close()


@pytest.fixture(scope="session")
def proxied_ottla_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    with proxied_ottla(tmp_path_factory.mktemp("proxied")) as node:
        yield node


@pytest.fixture(scope="session")
def proxied_kafka_node(kafka_node: SecureKafka) -> Proxied:
    return Proxied(kafka_node.bootstrap, [kafka_node.proxy], is_kafka=True)


@pytest.fixture(scope="session")
def proxied_three_node() -> Iterator[Proxied]:
    brokers = ProxiedCluster(THREE_NODES)
    with brokers:
        yield Proxied(brokers.direct, list(brokers.proxies.values()))


@pytest.fixture(scope="session")
def proxied_kafka_three_node(kafka_three_node: KafkaCluster) -> Proxied:
    brokers = kafka_three_node
    return Proxied(brokers.bootstrap, list(brokers.proxies.values()), is_kafka=True)


@pytest.fixture(scope="session", params=["ottla", KAFKA, *MORE])
def proxied(request: pytest.FixtureRequest) -> Proxied:
    """Brokers behind proxies, of each kind in turn."""
    found: Proxied = request.getfixturevalue(f"proxied_{request.param}_node")
    return found


@pytest.fixture(scope="session", params=["three", *([KAFKA_THREE] if THREE else [])])
def proxied_three(request: pytest.FixtureRequest) -> Proxied:
    """Three of them always; three JVMs take too long to start for every run."""
    found: Proxied = request.getfixturevalue(f"proxied_{request.param}_node")
    return found


@pytest.fixture(scope="session", params=["ottla", KAFKA, *MORE])
def cluster(request: pytest.FixtureRequest) -> str:
    """The address of a broker, of each kind in turn."""
    node: Node | Cluster | KafkaCluster = request.getfixturevalue(f"{request.param}_node")
    return node.bootstrap


_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A name that nobody has used."""
    return f"t{next(_numbers)}-{os.getpid()}"
