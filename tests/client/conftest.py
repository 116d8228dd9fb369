"""Brokers for the client's tests: every test that asks for `cluster` runs on Ottla and on Kafka.

Each broker is a process of its own, started once in a test process; the tests of Kafka's share one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from ottla.testing import Cluster
from tests.client.secure_kafka import Authority, SecureKafka
from tests.compat.nodes import Node, OttlaNode

KAFKA = pytest.param(
    "kafka", marks=[pytest.mark.kafka, pytest.mark.java, pytest.mark.xdist_group("client-kafka")]
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
MORE = ["three"] if os.environ.get("OTTLA_CLIENT_THREE") else []

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


@pytest.fixture(scope="session")
def three_node() -> Iterator[Cluster]:
    """Three brokers with three replicas of everything."""
    with Cluster(3, ONE_NODE | THREE_NODES) as brokers:
        yield brokers


@pytest.fixture(scope="session", params=["ottla", KAFKA, *MORE])
def cluster(request: pytest.FixtureRequest) -> str:
    """The address of a broker, of each kind in turn."""
    node: Node | Cluster = request.getfixturevalue(f"{request.param}_node")
    return node.bootstrap


_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A name that nobody has used."""
    return f"t{next(_numbers)}-{os.getpid()}"
