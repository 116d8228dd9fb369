"""How much of everything: a full run, from which a verdict may be read, and a quick one.

Full sizes keep each side busy for at least five seconds a case on two cores; the quick ones serve
to see that all cases work and roughly where they stand, in six minutes altogether.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
ROUNDS = 5
QUICK_ROUNDS = 1
QUICK_SECONDS_MAX = 360


@dataclass(frozen=True)
class Sizes:
    # Warm-up, which also leaves the topics that are read afterwards.
    kept_1k_records: int
    kept_100b_records: int
    cold_1k_records: int
    warm_12_records: int
    warm_small_records: int
    warm_seconds: float
    # Records a case.
    produce_1k_records: int
    produce_100b_records: int
    produce_12_records: int
    produce_small_records: int
    produce_rdkafka_records: int
    latency_java_rounds: int
    # Seconds and counts.
    consume_seconds: float
    latency_seconds: float
    busy_seconds: float
    settle_seconds: float
    idle_seconds: float
    connections: int
    partitions: int
    # Groups (issue 4).
    commit_seconds: float
    rebalances_classic: int
    rebalances_consumer: int
    reload_commits: int
    lag_groups: int
    compaction_records: int
    # Three nodes (issue 5).
    cluster_warm_records: int
    cluster_records: int
    cluster_partitions: int
    # Transactions (issue 6).
    transaction_seconds: float
    read_committed_transactions: int
    reload_transactional_ids: int

    def warm_up_bytes(self) -> int:
        one_kib = self.kept_1k_records + self.cold_1k_records + self.warm_12_records
        return one_kib * KIB + (self.kept_100b_records + self.warm_small_records) * 100


FULL = Sizes(
    kept_1k_records=1_500_000,
    kept_100b_records=7_000_000,
    cold_1k_records=1_000_000,
    warm_12_records=300_000,
    warm_small_records=150_000,
    warm_seconds=4,
    produce_1k_records=800_000,
    produce_100b_records=3_500_000,
    produce_12_records=800_000,
    produce_small_records=500_000,
    produce_rdkafka_records=2_000_000,
    latency_java_rounds=5_000,
    consume_seconds=6,
    latency_seconds=8,
    busy_seconds=6,
    settle_seconds=5,
    idle_seconds=10,
    connections=1_000,
    partitions=10_000,
    commit_seconds=6,
    rebalances_classic=100,
    rebalances_consumer=6,
    reload_commits=1_000_000,
    lag_groups=1_000,
    compaction_records=1_000_000,
    cluster_warm_records=1_000_000,
    cluster_records=400_000,
    cluster_partitions=2_000,
    transaction_seconds=6,
    read_committed_transactions=5_000,
    reload_transactional_ids=100_000,
)

QUICK = Sizes(
    kept_1k_records=200_000,
    kept_100b_records=800_000,
    cold_1k_records=250_000,
    warm_12_records=100_000,
    warm_small_records=30_000,
    warm_seconds=1,
    produce_1k_records=200_000,
    produce_100b_records=1_000_000,
    produce_12_records=200_000,
    produce_small_records=100_000,
    produce_rdkafka_records=400_000,
    latency_java_rounds=1_000,
    consume_seconds=1.5,
    latency_seconds=2,
    busy_seconds=2,
    settle_seconds=2,
    idle_seconds=4,
    connections=1_000,
    partitions=2_000,
    commit_seconds=2,
    rebalances_classic=20,
    rebalances_consumer=2,
    reload_commits=200_000,
    lag_groups=200,
    compaction_records=100_000,
    cluster_warm_records=150_000,
    cluster_records=80_000,
    cluster_partitions=200,
    transaction_seconds=2,
    read_committed_transactions=1_000,
    reload_transactional_ids=20_000,
)
