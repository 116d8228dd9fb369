"""Transactions: how many, what each costs, reading past aborted ones, the coordinator's load.

On one node and on three with three replicas, by the same loads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Producer

from bench.brokers import Broker
from bench.case import CLUSTER, RELOAD, Case, Figure, Figures, cpu_per_gib, throughput
from bench.cases.cluster import warm
from bench.clients.transactions import PARTITIONS
from bench.cluster import Cluster
from bench.loads import run_load
from bench.side import Side
from bench.sizes import KIB, Sizes
from bench.topics import create_replicated, create_topic
from bench.transactional_ids import make_ids, wait_until_loaded
from ottla.protocol.api_keys import INIT_PRODUCER_ID

ABORTED_TOPIC = "tenth-aborted"
ABORTED_EVERY = 10
RECORDS_A_TRANSACTION = 100
_WAIT_S = 60.0


def transactions(side: Side, sizes: Sizes) -> Figures:
    with side.topic("transactions", PARTITIONS) as topic:
        return _transact(side.broker.bootstrap, [side.broker.pid], topic, sizes)


def cluster_transactions(side: Side, sizes: Sizes) -> Figures:
    cluster = warm(side, sizes)
    with side.cluster_topic(cluster, "cluster-transactions", PARTITIONS) as topic:
        return _transact(cluster.bootstrap, cluster.pids(), topic, sizes)


def _transact(bootstrap: str, pids: Sequence[int], topic: str, sizes: Sizes) -> Figures:
    return run_load(
        "transactions",
        bootstrap=bootstrap,
        pids=pids,
        topic=topic,
        seconds=sizes.transaction_seconds,
    )


def read_committed(side: Side, sizes: Sizes) -> Figures:
    """By confluent-kafka, which reads what is committed unless it is told otherwise."""

    def prepare(broker: Broker) -> None:
        create_topic(broker.bootstrap, ABORTED_TOPIC)
        _write_transactions(broker.bootstrap, sizes.read_committed_transactions)

    side.prepare_once(ABORTED_TOPIC, prepare)
    return _read_committed(side.broker.bootstrap, [side.broker.pid], sizes)


def cluster_read_committed(side: Side, sizes: Sizes) -> Figures:
    cluster = warm(side, sizes)

    def prepare(cluster: Cluster) -> None:
        create_replicated(cluster.any_node, ABORTED_TOPIC, 1, 3)
        _write_transactions(cluster.bootstrap, sizes.read_committed_transactions)

    side.prepare_cluster_once(ABORTED_TOPIC, prepare)
    return _read_committed(cluster.bootstrap, cluster.pids(), sizes)


def _read_committed(bootstrap: str, pids: Sequence[int], sizes: Sizes) -> Figures:
    count = sizes.read_committed_transactions
    return run_load(
        "rdkafka_consume",
        bootstrap=bootstrap,
        pids=pids,
        topic=ABORTED_TOPIC,
        records=(count - count // ABORTED_EVERY) * RECORDS_A_TRANSACTION,
        size=KIB,
        seconds=sizes.consume_seconds,
    )


def _write_transactions(bootstrap: str, count: int) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "bench", "linger.ms": 0}
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
    wait_until_loaded([broker.bootstrap], count)
    loaded_s = time.monotonic() - begin
    return {"loaded_s": loaded_s, "after_start_s": loaded_s - started_s}


def cluster_ids_load(side: Side, sizes: Sizes) -> Figures:
    """All three nodes are stopped and started; each loads the ids of which it is the coordinator
    then. Ottla's ZooKeeper stays, as it does when brokers are restarted."""
    cluster = warm(side, sizes)
    count = sizes.reload_transactional_ids
    side.prepare_cluster_once("ids", lambda made: make_ids(made.any_node, count))
    started_s = cluster.restart()
    begin = time.monotonic()
    wait_until_loaded([node.bootstrap for node in cluster.nodes.values()], count)
    after_start_s = time.monotonic() - begin
    return {"loaded_s": started_s + after_start_s, "after_start_s": after_start_s}


TRANSACTION_FIGURES = (
    Figure("transactions_per_s", "transactions", "1/s", at_least=1.5),
    Figure("cpu_us_per_transaction", "broker CPU", "µs/transaction", at_most=0.35),
    Figure("commit_p50_ms", "commit, p50", "ms", at_most=0.7),
)
LOAD_FIGURES = (
    Figure("loaded_s", "process start to all loaded", "s", at_most=1.1),
    Figure("after_start_s", "first metadata to all loaded", "s"),
)
READ_COMMITTED_FIGURES = (throughput(at_least=0.95), cpu_per_gib())

TRANSACTION_CASES = (
    Case(
        "transactions",
        "transactions of 10 x 100 B over 3 partitions",
        6,
        TRANSACTION_FIGURES,
        transactions,
        needs_api=INIT_PRODUCER_ID,
    ),
    Case(
        "read_committed",
        "read_committed 1 KB, a tenth aborted",
        6,
        READ_COMMITTED_FIGURES,
        read_committed,
        needs_api=INIT_PRODUCER_ID,
    ),
    Case(
        "cluster_transactions",
        "three nodes: transactions of 10 x 100 B over 3 partitions",
        6,
        TRANSACTION_FIGURES,
        cluster_transactions,
        needs_api=INIT_PRODUCER_ID,
        block=CLUSTER,
    ),
    Case(
        "cluster_read_committed",
        "three nodes: read_committed 1 KB, a tenth aborted",
        6,
        READ_COMMITTED_FIGURES,
        cluster_read_committed,
        needs_api=INIT_PRODUCER_ID,
        block=CLUSTER,
    ),
    Case(
        "ids_load",
        "100,000 transactional ids loaded after a restart",
        6,
        LOAD_FIGURES,
        ids_load,
        needs_api=INIT_PRODUCER_ID,
        block=RELOAD,
    ),
    Case(
        "cluster_ids_load",
        "three nodes: 100,000 transactional ids loaded after a restart",
        6,
        LOAD_FIGURES,
        cluster_ids_load,
        needs_api=INIT_PRODUCER_ID,
        block=CLUSTER,
    ),
)
