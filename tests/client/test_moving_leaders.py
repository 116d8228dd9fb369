"""Leaders that move between three brokers, each behind a proxy that misbehaves: exact, in order.

Each seed is a client with settings of its own, and moves of its own among its records.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ottla.client import Admin, Delivery, Producer
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.testing import Cluster
from ottla.testing.cluster import CLIENTS, PEERS, Member
from tests.client.proxy import Proxy
from tests.client.reading import stored
from tests.client.test_faults import HASTE, PARTITIONS, PATIENCE_S, RECORDS, SEEDS, by_partition
from tests.compat.nodes import wait_until
from tests.seeds import seed_for

BROKERS = (1, 2, 3)
MOVING_SEEDS = max(5, SEEDS // 10)
MOVED_EVERY = 8  # records


class ProxiedCluster(Cluster):
    """Clients are sent to the proxies; who asks where brokers meet reaches them without."""

    def __init__(self) -> None:
        super().__init__(len(BROKERS), {"min.insync.replicas": "2"})
        self.proxies = {broker: Proxy() for broker in BROKERS}
        for broker, proxy in self.proxies.items():
            proxy.lead_to(self.port(broker))

    def _config(self, member: Member) -> BrokerConfig:
        proxy = self.proxies[member.broker_id]
        self._settings["advertised.listeners"] = (
            f"{CLIENTS}://{proxy.bootstrap},{PEERS}://127.0.0.1:{member.ports[PEERS]}"
        )
        return super()._config(member)

    @property
    def proxied(self) -> str:
        return ",".join(proxy.bootstrap for proxy in self.proxies.values())

    @property
    def direct(self) -> str:
        return ",".join(f"127.0.0.1:{one.ports[PEERS]}" for one in self._members.values())

    def close(self) -> None:
        super().close()
        for proxy in self.proxies.values():
            proxy.close()


@pytest.fixture(scope="module")
def brokers() -> Iterator[ProxiedCluster]:
    cluster = ProxiedCluster()
    with cluster:
        yield cluster


def move(cluster: ProxiedCluster, admin: Admin, topic: str, chance: random.Random) -> None:
    """The leader of one partition goes to another broker that is in sync."""
    partition = chance.randrange(PARTITIONS)
    order = list(BROKERS)
    wait_until(lambda: len(cluster.in_sync(topic, partition)) == 3, PATIENCE_S, "all in sync")
    order.remove(cluster.leader(topic, partition))
    chance.shuffle(order)
    wanted = [*order, cluster.leader(topic, partition)]
    assert admin.alter_reassignments({(topic, partition): wanted}) == {(topic, partition): None}
    assert admin.elect_leaders([(topic, partition)]) == {(topic, partition): None}
    assert cluster.leader(topic, partition) == wanted[0]


def test_idempotent_output_is_exact_while_leaders_move(brokers: ProxiedCluster, topic: str) -> None:
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with Admin(bootstrap_servers=brokers.direct) as admin:
        admin.create_topic(topic, PARTITIONS, len(BROKERS))
        for number in range(MOVING_SEEDS):
            seed = seed_for(f"moving leaders {number}")
            chance = random.Random(seed)
            for broker, proxy in brokers.proxies.items():
                proxy.misbehave(seed + broker, chance.choice([0.0, 0.05, 0.1]))
            settings = {
                **HASTE,
                "request.timeout.ms": 500,  # of which every answer that is lost takes one
                "bootstrap.servers": brokers.proxied,
                "linger.ms": chance.choice([0, 1, 5]),
                "batch.size": chance.choice([100, 16384]),
                "max.in.flight.requests.per.connection": chance.choice([1, 5]),
            }
            with Producer(settings) as producer:
                sent: list[tuple[int, bytes, Delivery]] = []
                for index in range(RECORDS):
                    if index % MOVED_EVERY == 0:
                        move(brokers, admin, topic, chance)
                    place, value = chance.randrange(PARTITIONS), b"%d.%d" % (number, index)
                    sent.append((place, value, producer.send(topic, value, partition=place)))
                for place, value, delivery in sent:
                    assert delivery.result(PATIENCE_S * 2).partition == place
                    expected[place].append(value)
    for proxy in brokers.proxies.values():
        proxy.quiet()
    assert by_partition(stored(brokers.direct, topic)) == expected
