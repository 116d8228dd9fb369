"""Leaders that move between three brokers, each behind a proxy that misbehaves: exact, in order.

Each seed is a client with settings of its own, and moves of its own among its records.
"""

from __future__ import annotations

import random

from ottla.client import Admin, Delivery, Producer
from ottla.client.admin_values import PartitionDescription
from tests.client.admin_calls import is_there
from tests.client.proxied import BROKERS, Proxied
from tests.client.reading import stored
from tests.client.test_faults import HASTE, PARTITIONS, PATIENCE_S, RECORDS, by_partition, seeds_on
from tests.compat.nodes import wait_until
from tests.seeds import seed_for

MOVED_EVERY = 8  # records


def described(admin: Admin, topic: str, partition: int) -> PartitionDescription:
    [found] = admin.describe_topics([topic])
    return found.partitions[partition]


def move(admin: Admin, topic: str, chance: random.Random) -> None:
    """The leader of one partition goes to another broker that is in sync."""
    partition = chance.randrange(PARTITIONS)
    place = (topic, partition)

    def all_are_in_sync() -> bool:
        return len(described(admin, topic, partition).in_sync) == len(BROKERS)

    wait_until(all_are_in_sync, PATIENCE_S, "all in sync")
    leader = described(admin, topic, partition).leader
    assert leader is not None
    others = [broker for broker in BROKERS if broker != leader]
    chance.shuffle(others)
    assert admin.alter_reassignments({place: [*others, leader]}) == {place: None}
    assert admin.elect_leaders([place]) == {place: None}
    # The controller has decided; the broker that is asked may hear of it later.
    wait_until(
        lambda: described(admin, topic, partition).leader == others[0], PATIENCE_S, "a new leader"
    )


def test_idempotent_output_is_exact_while_leaders_move(proxied_three: Proxied, topic: str) -> None:
    proxied = proxied_three
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with Admin(bootstrap_servers=proxied.direct) as admin:
        admin.create_topic(topic, PARTITIONS, len(BROKERS), {"min.insync.replicas": "2"})
        wait_until(lambda: is_there(admin, topic, PARTITIONS), PATIENCE_S, "the topic")
        for number in range(max(5, seeds_on(proxied) // 10)):
            seed = seed_for(f"moving leaders {number}")
            chance = random.Random(seed)
            proxied.misbehave(seed, *(chance.choice([0.0, 0.05, 0.1]) for _ in BROKERS))
            settings = {
                **HASTE,
                "bootstrap.servers": proxied.bootstrap,
                "linger.ms": chance.choice([0, 1, 5]),
                "batch.size": chance.choice([100, 16384]),
                "max.in.flight.requests.per.connection": chance.choice([1, 5]),
            }
            with Producer(settings) as producer:
                sent: list[tuple[int, bytes, Delivery]] = []
                for index in range(RECORDS):
                    if index % MOVED_EVERY == 0:
                        move(admin, topic, chance)
                    place, value = chance.randrange(PARTITIONS), b"%d.%d" % (number, index)
                    sent.append((place, value, producer.send(topic, value, partition=place)))
                for place, value, delivery in sent:
                    assert delivery.result(PATIENCE_S * 2).partition == place
                    expected[place].append(value)
    proxied.quiet()
    assert by_partition(stored(proxied.direct, topic)) == expected
