"""Three nodes, three replicas, acks=all (issue 5): three brokers of Ottla with their ZooKeeper
against three KRaft nodes, warm, with one session time-out."""

from __future__ import annotations

import time

from bench.case import CLUSTER, Case, Figure, Figures, cpu_per_gib, throughput
from bench.cluster import Cluster
from bench.errors import BenchError
from bench.gaps import SteadyWriter
from bench.kafka_tools import end_to_end_latency, producer_performance
from bench.loads import run_load
from bench.side import Side
from bench.sizes import KIB, Sizes
from bench.topics import create_replicated, in_sync_counts, leaders_of

SIZE = 200
ACKS_BEFORE = 200
ACKS_AFTER = 200
HEAL_SECONDS_MAX = 180
_POLL_S = 0.02


def warm(side: Side, sizes: Sizes) -> Cluster:
    def prepare(cluster: Cluster) -> None:
        create_replicated(cluster.any_node, "warm", 12, 3)
        producer_performance(cluster, "warm", records=sizes.cluster_warm_records, size=KIB)

    return side.cluster(prepare)


def produce_1k(side: Side, sizes: Sizes) -> Figures:
    return _produce(side, sizes, "cluster-1k", 1)


def produce_12(side: Side, sizes: Sizes) -> Figures:
    return _produce(side, sizes, "cluster-12", 12)


def _produce(side: Side, sizes: Sizes, name: str, partitions: int) -> Figures:
    cluster = warm(side, sizes)
    with side.cluster_topic(cluster, name, partitions) as topic:
        return producer_performance(cluster, topic, records=sizes.cluster_records, size=KIB)


def produce_rdkafka(side: Side, sizes: Sizes) -> Figures:
    cluster = warm(side, sizes)
    size = sizes.cluster_records * KIB
    with side.cluster_topic(cluster, "cluster-rdkafka", room=size) as topic:
        leader = cluster.nodes[cluster.leader_of(topic)]
        before = cluster.cpu_seconds()
        figures = run_load(
            "rdkafka_produce",
            bootstrap=leader.bootstrap,
            pid=leader.pid,
            topic=topic,
            records=sizes.cluster_records,
            size=KIB,
        )
        used = cluster.cpu_seconds() - before
    # The load knows of one process only.
    return {**figures, "cpu_s_per_gib": used / (size / 2**30)}


def latency(side: Side, sizes: Sizes) -> Figures:
    cluster = warm(side, sizes)
    with side.cluster_topic(cluster, "cluster-latency") as topic:
        return end_to_end_latency(cluster, topic, records=sizes.latency_java_rounds, size=SIZE)


def start_and_idle(side: Side, sizes: Sizes) -> Figures:
    cluster = side.new_cluster("cluster-start")
    try:
        started_s = cluster.start()
        time.sleep(sizes.settle_seconds)
        before, begin = cluster.cpu_seconds(), time.monotonic()
        time.sleep(sizes.idle_seconds)
        used, seconds = cluster.cpu_seconds() - before, time.monotonic() - begin
        return {
            "start_s": started_s,
            "resident_mb": cluster.resident_bytes() / 2**20,
            "cpu_percent": used / seconds * 100,
        }
    finally:
        side.discard(cluster)


def failover(side: Side, sizes: Sizes) -> Figures:
    """The leader is killed, then, when all are in sync again, the next one is stopped cleanly."""
    cluster = warm(side, sizes)
    with side.cluster_topic(cluster, "cluster-failover") as topic:
        with SteadyWriter(cluster.bootstrap, topic) as writer:
            writer.wait_for(ACKS_BEFORE)
            killed = cluster.leader_of(topic)
            begin = time.monotonic()
            cluster.kill(killed)
            writer.wait_for(ACKS_AFTER)
            kill_gap_s = writer.longest_gap_s(begin)
            cluster.bring_back(killed)
            _until_in_sync(cluster, topic, 3)
            writer.wait_for(ACKS_BEFORE)
            stopped = cluster.leader_of(topic)
            begin = time.monotonic()
            cluster.terminate(stopped)
            _until_led_by_others(cluster, topic, stopped)
            writer.wait_for(ACKS_AFTER)
            stop_gap_s = writer.longest_gap_s(begin)
            cluster.bring_back(stopped)
            _until_in_sync(cluster, topic, 3)
        failures = writer.failures
    return {
        "kill_gap_s": kill_gap_s,
        "stop_gap_ms": stop_gap_s * 1e3,
        "failed_writes": float(failures),
    }


def many_partitions(side: Side, sizes: Sizes) -> Figures:
    """How long until the last of many partitions of a killed node has another leader."""
    cluster = warm(side, sizes)
    with side.cluster_topic(cluster, "cluster-many", sizes.cluster_partitions) as topic:
        _until_in_sync(cluster, topic, 3)
        victim = cluster.leader_of(topic)
        begin = time.monotonic()
        cluster.kill(victim)
        _until_led_by_others(cluster, topic, victim)
        taken_s = time.monotonic() - begin
        cluster.bring_back(victim)
        _until_in_sync(cluster, topic, 3)
    return {"failover_s": taken_s}


def _other_node(cluster: Cluster, but: int) -> str:
    return next(node.bootstrap for number, node in cluster.nodes.items() if number != but)


def _until_led_by_others(cluster: Cluster, topic: str, gone: int) -> None:
    deadline = time.monotonic() + HEAL_SECONDS_MAX
    while {gone, -1} & set(leaders_of(_other_node(cluster, gone), topic)):
        if time.monotonic() > deadline:
            raise BenchError(f"{topic} still waits for leaders after {HEAL_SECONDS_MAX} s")
        time.sleep(_POLL_S)


def _until_in_sync(cluster: Cluster, topic: str, count: int) -> None:
    deadline = time.monotonic() + HEAL_SECONDS_MAX
    while min(in_sync_counts(cluster.any_node, topic)) < count:
        if time.monotonic() > deadline:
            raise BenchError(f"{topic} is not in sync after {HEAL_SECONDS_MAX} s")
        time.sleep(_POLL_S)


P99 = Figure("p99_ms", "p99", "ms")

CLUSTER_CASES = (
    Case(
        "cluster_produce_1k",
        "three nodes: produce 1 KB, Java defaults, one partition",
        5,
        (throughput(at_least=2.5), cpu_per_gib(at_most=0.25), P99),
        produce_1k,
        block=CLUSTER,
    ),
    Case(
        "cluster_produce_12",
        "three nodes: produce 1 KB on 12 partitions",
        5,
        (throughput(at_least=1.8), cpu_per_gib(at_most=0.4), P99),
        produce_12,
        block=CLUSTER,
    ),
    Case(
        "cluster_rdkafka",
        "three nodes: produce 1 KB by confluent-kafka",
        5,
        (throughput(at_least=1.3), cpu_per_gib(at_most=0.4)),
        produce_rdkafka,
        block=CLUSTER,
    ),
    Case(
        "cluster_latency",
        "three nodes: end-to-end latency 200 B, EndToEndLatency",
        5,
        (Figure("average_ms", "average", "ms", at_most=0.6), Figure("p99_ms", "p99", "ms")),
        latency,
        block=CLUSTER,
    ),
    Case(
        "cluster_start",
        "three nodes: start, then idle",
        5,
        (
            Figure("start_s", "up and serving", "s", at_most=0.5),
            Figure("resident_mb", "idle memory", "MB", at_most=0.35),
            Figure("cpu_percent", "idle CPU", "% of a core", at_most=0.3),
        ),
        start_and_idle,
        block=CLUSTER,
    ),
    Case(
        "cluster_failover",
        "three nodes: the leader is killed, then another one is stopped",
        5,
        (
            Figure("kill_gap_s", "gap after kill -9", "s", at_most=1.1),
            Figure("stop_gap_ms", "gap after a clean stop", "ms", at_most=0.5),
            Figure("failed_writes", "failed writes", "", own=True),
        ),
        failover,
        block=CLUSTER,
    ),
    Case(
        "cluster_many",
        "three nodes: failover of many partitions",
        5,
        (Figure("failover_s", "until all are led", "s", at_most=1.1),),
        many_partitions,
        block=CLUSTER,
    ),
)
