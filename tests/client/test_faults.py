"""Clients behind a proxy that misbehaves: exact, in order, and nothing left behind.

Each seed is a client with settings of its own. `OTTLA_FAULT_SEEDS` says how many there are, on
Ottla and on Apache Kafka.
"""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import pytest

from ottla.client import Consumer, Delivery, Output, Producer, process
from ottla.client.consumer_errors import CommitFailedError
from tests.client.admin_calls import create_topic
from tests.client.proxied import Proxied
from tests.client.reading import Stored, stored
from tests.compat.nodes import wait_until
from tests.seeds import seed_for

SEEDS = int(os.environ.get("OTTLA_FAULT_SEEDS", "100"))
# It answers more slowly, and has its time in `make chaos`.
KAFKA_SEEDS = int(os.environ.get("OTTLA_FAULT_SEEDS", "20"))
GROUP_SEEDS = max(2, SEEDS // 50)
PARTS = 4  # each has its topic, and a part of the seeds
PATIENCE_S = 60
PARTITIONS = 3
RECORDS = 40
# Time-outs that are short, so that a seed is; delivery keeps its two minutes.
HASTE = {
    "request.timeout.ms": 500,  # of which every answer that is lost takes one
    "socket.connection.setup.timeout.ms": 1000,
    "socket.connection.setup.timeout.max.ms": 1000,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 2,
    "reconnect.backoff.max.ms": 50,
}


def seeds_on(proxied: Proxied) -> int:
    return KAFKA_SEEDS if proxied.is_kafka else SEEDS


def by_partition(records: list[Stored]) -> list[list[bytes]]:
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for record in records:
        values[record.partition].append(record.value or b"")
    return values


def nobody_is_left(proxied: Proxied, before: set[threading.Thread]) -> None:
    wait_until(lambda: proxied.open_connections == 0, PATIENCE_S, "closed connections")
    # Brokers of other tests may live in this process; their threads come and go as they please.
    left = {one for one in threading.enumerate() if not one.name.startswith("ottla-handler")}
    assert left <= before


@pytest.mark.parametrize("part", range(PARTS))
def test_idempotent_output_is_exact_and_in_order(proxied: Proxied, topic: str, part: int) -> None:
    create_topic(proxied.bootstrap, topic, PARTITIONS)
    before = set(threading.enumerate())
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for number in range(part, seeds_on(proxied), PARTS):
        seed = seed_for(f"proxy {number}")
        chance = random.Random(seed)
        proxied.misbehave(seed, chance.choice([0.02, 0.1, 0.25]))
        settings = {
            **HASTE,
            "bootstrap.servers": proxied.bootstrap,
            "linger.ms": chance.choice([0, 1, 5]),
            "batch.size": chance.choice([100, 1000, 16384]),
            "compression.type": chance.choice(["none", "zstd"]),
            "max.in.flight.requests.per.connection": chance.choice([1, 5]),
        }
        with Producer(settings) as producer:
            sent: list[tuple[int, bytes, Delivery]] = []
            for index in range(RECORDS):
                partition = chance.randrange(PARTITIONS)
                value = b"%d.%d" % (number, index)
                sent.append((partition, value, producer.send(topic, value, partition=partition)))
            for partition, value, delivery in sent:
                assert delivery.result(PATIENCE_S * 2).partition == partition
                expected[partition].append(value)
    proxied.quiet()
    assert by_partition(stored(proxied.bootstrap, topic)) == expected
    nobody_is_left(proxied, before)


def test_transactions_are_whole_or_not_there(proxied: Proxied, topic: str) -> None:
    create_topic(proxied.bootstrap, topic, PARTITIONS)
    before = set(threading.enumerate())
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for number in range(0, seeds_on(proxied), 5):
        seed = seed_for(f"proxied transactions {number}")
        chance = random.Random(seed)
        proxied.misbehave(seed, chance.choice([0.02, 0.1, 0.2]))
        settings = {**HASTE, "bootstrap.servers": proxied.bootstrap, "transactional.id": topic}
        with Producer(settings) as producer:
            for index in range(4):
                producer.begin_transaction()
                values = [(place, b"%d.%d" % (number, index)) for place in range(PARTITIONS)]
                for partition, value in values:
                    producer.send(topic, value, partition=partition)
                if chance.random() < 0.3:
                    producer.abort_transaction(PATIENCE_S)
                    continue
                producer.commit_transaction(PATIENCE_S)
                for partition, value in values:
                    expected[partition].append(value)
    proxied.quiet()
    assert by_partition(stored(proxied.bootstrap, topic, decided=True)) == expected
    nobody_is_left(proxied, before)


def as_member(bootstrap: str, group: str, chance: random.Random) -> dict[str, Any]:
    settings = {
        **HASTE,
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": chance.choice(["classic", "consumer"]),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "max.poll.interval.ms": 2_000,  # a join whose answer is lost takes a bit more
        "fetch.max.wait.ms": 50,
    }
    if settings["group.protocol"] == "classic":
        settings["heartbeat.interval.ms"] = 200
    return settings


def fill(bootstrap: str, topic: str) -> list[list[bytes]]:
    create_topic(bootstrap, topic, PARTITIONS)
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS):
            values[number % PARTITIONS].append(b"%d" % number)
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    return values


def offsets_of(consumer: Consumer, topic: str) -> dict[int, int]:
    """What its group has committed, by partition."""
    found = consumer.committed([(topic, partition) for partition in range(PARTITIONS)])
    return {key[1]: one.offset for key, one in found.items() if one is not None}


def committed_values(consumer: Consumer, topic: str, values: list[list[bytes]]) -> set[bytes]:
    offsets = offsets_of(consumer, topic)
    return {one for place, offset in offsets.items() for one in values[place][:offset]}


@pytest.mark.parametrize("number", range(GROUP_SEEDS))
def test_a_member_reads_all_in_order_and_its_commits_count(
    proxied: Proxied, topic: str, number: int
) -> None:
    proxied.quiet()
    expected = fill(proxied.bootstrap, topic)
    seed = seed_for(f"proxied members {number}")
    chance = random.Random(seed)
    settings = as_member(proxied.bootstrap, f"group of {topic}", chance)
    found: list[dict[bytes, None]] = [{} for _ in range(PARTITIONS)]
    committed: set[bytes] = set()
    proxied.misbehave(seed, chance.choice([0.02, 0.05, 0.1]))
    while len(committed) < RECORDS:  # several in turn: each goes on where the last one ended
        wanted = min(len(committed) + RECORDS // 2, RECORDS)
        with Consumer(settings) as consumer:
            consumer.subscribe(topic)
            while len(committed) < wanted:
                records = consumer.poll(0.1, max_records=5)
                assert not committed & {record.value for record in records}
                for record in records:
                    found[record.partition][record.value] = None
                try:
                    consumer.commit(records)
                except CommitFailedError:
                    # The group went on without it: these come again, unless the commit had arrived
                    # and only its answer was lost.
                    committed |= committed_values(consumer, topic, expected)
                    continue
                committed |= {record.value for record in records}
    proxied.quiet()
    assert [list(values) for values in found] == expected


@pytest.mark.parametrize("number", range(GROUP_SEEDS))
def test_the_loop_is_exact(proxied: Proxied, topic: str, number: int) -> None:
    proxied.quiet()
    expected = fill(proxied.bootstrap, topic)
    create_topic(proxied.bootstrap, f"{topic}-copy", PARTITIONS)
    seed = seed_for(f"proxied loop {number}")
    chance = random.Random(seed)
    settings = as_member(proxied.bootstrap, f"group of {topic}", chance)
    writes = {**HASTE, "bootstrap.servers": proxied.bootstrap, "transactional.id": topic}
    proxied.misbehave(seed, chance.choice([0.02, 0.05, 0.1]))
    with Consumer(settings) as consumer, Producer(writes) as producer:
        consumer.subscribe(topic)
        process(
            consumer,
            producer,
            lambda one: Output(f"{topic}-copy", one.value, None, None, one.partition),
            is_over=lambda: sum(offsets_of(consumer, topic).values()) == RECORDS,
            max_records=7,
        )
        proxied.quiet()
    assert by_partition(stored(proxied.bootstrap, f"{topic}-copy", decided=True)) == expected


def test_every_fault_has_happened(proxied: Proxied, topic: str) -> None:
    """Else the seeds would prove less than they seem to."""
    proxied.misbehave(seed_for("every fault"), 0.3)
    with Producer({**HASTE, "bootstrap.servers": proxied.bootstrap, "linger.ms": 0}) as producer:
        while not proxied.had_every_fault:
            producer.send(topic, b"v").result(PATIENCE_S * 2)
    proxied.quiet()
