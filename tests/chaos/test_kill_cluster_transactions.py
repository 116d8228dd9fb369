"""Goal: in a cluster of three, read_committed output equals input, one to one, whoever is killed
whenever: the job, a leader, the coordinator of its transactions or of its group, all brokers.
Method: as for one node (`test_kill_transactions`), over three brokers in this process with three
replicas of everything; in the end nothing may be left open. OTTLA_CLUSTER_KILLS says how often.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from ottla.client import Admin
from ottla.runtime.key_hash import key_hash
from ottla.testing import Cluster
from tests.chaos.copy_job import Job, KafkasJob
from tests.chaos.nothing_open import until_nothing_is_open
from tests.compat.confluent import new_name, producer, read, send
from tests.seeds import seed_for

KILLS = int(os.environ.get("OTTLA_CLUSTER_KILLS", "6"))
PARTITIONS = 3
INTERNAL_PARTITIONS = 4
RECORDS_A_KILL = 100
SECONDS_MAX = 240
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
    "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
VICTIMS = ("job", "leader", "transactions", "group", "all")
# Its lives are short and begin with a JVM: there are fewer of them.
KAFKAS_VICTIMS = ("transactions", "job", "group", "leader", "all")
KAFKAS_KILLS = max(1, KILLS // 5)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS) as running:
        yield running


class Chaos:
    def __init__(self, cluster: Cluster, directory: Path, kind: type[Job] = Job) -> None:
        self._cluster = cluster
        self._dice = random.Random(seed_for(f"kill transactions in a cluster {kind.__name__}"))
        self.source, self.target = new_name("source"), new_name("target")
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            for topic in (self.source, self.target):
                admin.create_topic(topic, partitions=PARTITIONS)
        self.job = kind(cluster, self.source, self.target, self._dice, directory)
        self.sent = 0

    def feed(self) -> None:
        records = (
            {"value": str(number), "partition": number % PARTITIONS}
            for number in range(self.sent, self.sent + RECORDS_A_KILL)
        )
        # Idempotent: what a leader took along is sent again, and must not come twice.
        sender = producer(self._cluster.bootstrap, {"enable.idempotence": True})
        send(sender, self.source, records)
        self.sent += RECORDS_A_KILL

    def strike(self, who: str) -> None:
        """After a random moment of work; whoever was killed is started again after another."""
        self.job.keep_going()
        time.sleep(self._dice.uniform(0.05, self.job.moment_s_max))
        if who == "job":
            self.job.kill()
            return
        doomed = list(self._cluster.broker_ids) if who == "all" else [self._leader(who)]
        # Nobody leads it at this moment: there is nobody to kill.
        doomed = [broker_id for broker_id in doomed if broker_id > 0]
        for broker_id in doomed:
            self._cluster.kill(broker_id)
        if who != "all":
            time.sleep(self._dice.uniform(0.0, 1.0))
            for broker_id in doomed:
                self._cluster.start(broker_id)
        else:
            self._cluster.start()

    def _leader(self, who: str) -> int:
        if who == "leader":
            return self._cluster.leader(self.target, self._dice.randrange(PARTITIONS))
        topic = "__transaction_state" if who == "transactions" else "__consumer_offsets"
        return self._cluster.leader(topic, key_hash(self.job.name) % INTERNAL_PARTITIONS)

    def copied(self) -> Counter[str]:
        """Nothing while a broker that has just come back sends readers elsewhere."""
        try:
            committed = read(
                self._cluster.bootstrap,
                self.target,
                partitions=range(PARTITIONS),
                settings={"isolation.level": "read_committed"},
            )
        except KafkaException:
            return Counter()
        return Counter(str((message.value() or b"").decode()) for message in committed)


def test_row_65_in_a_cluster_each_record_is_copied_once_whoever_dies(
    cluster: Cluster, tmp_path: Path
) -> None:
    everything_is_copied(cluster, Chaos(cluster, tmp_path), victims_of(VICTIMS, KILLS))


def test_kafkas_copier_copies_each_record_once_whoever_dies(
    cluster: Cluster, tmp_path: Path
) -> None:
    """TransactionalMessageCopier, which aborts at random too, for one partition after the other."""
    victims = victims_of(KAFKAS_VICTIMS, KAFKAS_KILLS)
    everything_is_copied(cluster, Chaos(cluster, tmp_path, KafkasJob), victims)


def victims_of(kinds: Sequence[str], count: int) -> list[str]:
    return [kinds[number % len(kinds)] for number in range(count)]


def everything_is_copied(cluster: Cluster, chaos: Chaos, victims: Sequence[str]) -> None:
    try:
        chaos.feed()
        chaos.job.until(lambda: bool(chaos.copied()), SECONDS_MAX, "the job is at work")
        for who in victims:
            chaos.feed()
            chaos.strike(who)
        copied: Counter[str] = Counter()

        def done() -> bool:
            nonlocal copied
            copied = chaos.copied()
            return copied.total() >= chaos.sent

        chaos.job.until(done, SECONDS_MAX, f"{chaos.sent} records are copied")
    finally:
        chaos.job.kill()
    assert copied == Counter(str(number) for number in range(chaos.sent))
    places = [(chaos.target, index) for index in range(PARTITIONS)]
    places += [("__consumer_offsets", index) for index in range(INTERNAL_PARTITIONS)]
    until_nothing_is_open(cluster.bootstrap, places, SECONDS_MAX)
