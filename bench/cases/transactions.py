"""Transactions: how many, what each costs, reading past aborted ones, the coordinator's load."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from bench.brokers import Broker
from bench.case import RELOAD, Case, Figure, Figures, cpu_per_gib, throughput
from bench.clients.transactions import PARTITIONS
from bench.loads import run_load
from bench.side import Side
from bench.sizes import KIB, Sizes
from bench.topics import create_topic
from bench.transactional_ids import make_ids, wait_until_loaded
from ottla.protocol.api_keys import INIT_PRODUCER_ID

ABORTED_TOPIC = "tenth-aborted"
ABORTED_EVERY = 10
RECORDS_A_TRANSACTION = 100
_WAIT_S = 60.0


def transactions(side: Side, sizes: Sizes) -> Figures:
    with side.topic("transactions", PARTITIONS) as topic:
        return run_load(
            "transactions",
            bootstrap=side.broker.bootstrap,
            pid=side.broker.pid,
            topic=topic,
            seconds=sizes.transaction_seconds,
        )


def read_committed(side: Side, sizes: Sizes) -> Figures:
    """By confluent-kafka, which reads what is committed unless it is told otherwise."""
    count = sizes.read_committed_transactions
    side.prepare_once(ABORTED_TOPIC, lambda broker: _write_transactions(broker, count))
    return run_load(
        "rdkafka_consume",
        bootstrap=side.broker.bootstrap,
        pid=side.broker.pid,
        topic=ABORTED_TOPIC,
        records=(count - count // ABORTED_EVERY) * RECORDS_A_TRANSACTION,
        size=KIB,
        seconds=sizes.consume_seconds,
    )


def _write_transactions(broker: Broker, count: int) -> None:
    create_topic(broker.bootstrap, ABORTED_TOPIC)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "bench", "linger.ms": 0}
    )
    producer.init_transactions(_WAIT_S)
    payload = bytes(KIB)
    for number in range(1, count + 1):
        producer.begin_transaction()
        for _ in range(RECORDS_A_TRANSACTION):
            producer.produce(ABORTED_TOPIC, payload, partition=0)
        if number % ABORTED_EVERY == 0:
            # What is not sent yet would be dropped, and nothing would be aborted.
            producer.flush(_WAIT_S)
            producer.abort_transaction(_WAIT_S)
        else:
            producer.commit_transaction(_WAIT_S)


def ids_load(side: Side, sizes: Sizes) -> Figures:
    count = sizes.reload_transactional_ids
    broker = side.beside("ids", lambda made: make_ids(made.bootstrap, count))
    broker.stop()
    begin = time.monotonic()
    started_s = broker.start()
    wait_until_loaded(broker.bootstrap, count)
    loaded_s = time.monotonic() - begin
    return {"loaded_s": loaded_s, "after_start_s": loaded_s - started_s}


TRANSACTION_CASES = (
    Case(
        "transactions",
        "transactions of 10 x 100 B over 3 partitions",
        6,
        (
            Figure("transactions_per_s", "transactions", "1/s", at_least=1.5),
            Figure("cpu_us_per_transaction", "broker CPU", "µs/transaction", at_most=0.35),
            Figure("commit_p50_ms", "commit, p50", "ms", at_most=0.7),
        ),
        transactions,
        needs_api=INIT_PRODUCER_ID,
    ),
    Case(
        "read_committed",
        "read_committed 1 KB, a tenth aborted",
        6,
        (throughput(at_least=0.95), cpu_per_gib()),
        read_committed,
        needs_api=INIT_PRODUCER_ID,
    ),
    Case(
        "ids_load",
        "100,000 transactional ids loaded after a restart",
        6,
        (
            Figure("loaded_s", "process start to all loaded", "s", at_most=1.1),
            Figure("after_start_s", "first metadata to all loaded", "s"),
        ),
        ids_load,
        needs_api=INIT_PRODUCER_ID,
        block=RELOAD,
    ),
)
