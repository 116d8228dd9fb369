"""Transactions one after the other by confluent-kafka: 10 records of 100 B over 3 partitions each.

The commit is what the application waits for: it includes what was not sent yet.
"""

from __future__ import annotations

import time

from confluent_kafka import Producer

from bench.clients.command import run_as_command
from bench.percentiles import percentile
from bench.processes import cpu_seconds_of

RECORDS = 10
PARTITIONS = 3
SIZE = 100
_WAIT_S = 60.0
_TRANSACTIONS_BEFORE = 20


def transact(*, bootstrap: str, pids: list[int], topic: str, seconds: float) -> dict[str, float]:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": topic,
            "linger.ms": 0,
            "socket.nagle.disable": True,
        }
    )
    producer.init_transactions(_WAIT_S)
    payload = bytes(SIZE)
    for _ in range(_TRANSACTIONS_BEFORE):
        _transaction(producer, topic, payload)
    commits_s: list[float] = []
    before, begin = cpu_seconds_of(pids), time.perf_counter()
    while time.perf_counter() < begin + seconds:
        commits_s.append(_transaction(producer, topic, payload))
    took_s, used = time.perf_counter() - begin, cpu_seconds_of(pids) - before
    return {
        "transactions_per_s": len(commits_s) / took_s,
        "cpu_us_per_transaction": used / len(commits_s) * 1e6,
        "commit_p50_ms": percentile(sorted(commits_s), 0.5) * 1e3,
    }


def _transaction(producer: Producer, topic: str, payload: bytes) -> float:
    """Seconds of its commit."""
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, payload, partition=number % PARTITIONS)
    begin = time.perf_counter()
    producer.commit_transaction(_WAIT_S)
    return time.perf_counter() - begin


if __name__ == "__main__":
    run_as_command(transact)
