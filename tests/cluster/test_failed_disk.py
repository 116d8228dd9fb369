"""Goal: every broker tells which replicas are on a disk that has failed, for as long as it is so.
Method: three broker processes on a real ZooKeeper, each with two log dirs; from some moment on one
of them may not write files beyond a size, so that the kernel refuses its appends to one topic as a
broken disk would.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.cluster import raw
from tests.cluster.waiting import until
from tests.cluster.zookeeper import ZooKeeper
from tests.compat.confluent import admin_client, read_values, result_of, send_values
from tests.compat.nodes import OttlaNode
from tests.patience import SHORT_SESSION_MS

FILE_BYTES_MAX = 1 << 20
FAILING = 1


class Brokers:
    """Three of them, as `ottla serve` starts them."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.broker_ids = [1, 2, 3]
        self.nodes = {
            broker_id: OttlaNode(
                directory / str(broker_id),
                {
                    "node.id": str(broker_id),
                    "zookeeper.connect": zookeeper,
                    "zookeeper.session.timeout.ms": str(SHORT_SESSION_MS),
                    "log.dirs": ",".join(map(str, self.dirs_of(directory, broker_id))),
                },
            )
            for broker_id in self.broker_ids
        }

    @staticmethod
    def dirs_of(directory: Path, broker_id: int) -> list[Path]:
        return [directory / str(broker_id) / name for name in ("one", "two")]

    def port(self, broker_id: int) -> int:
        return self.nodes[broker_id].port

    def told(self, topic: str) -> list[tuple[int, set[int], set[int]]]:
        """Leader, in-sync set and offline replicas, as each broker tells them."""
        told = [raw.partition_of(self, broker_id, topic) for broker_id in self.broker_ids]
        return [
            (
                int(one.leader_id),
                set(map(int, one.isr_nodes)),
                set(map(int, one.offline_replicas)),
            )
            for one in told
        ]


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Brokers]:
    three = Brokers(tmp_path, zookeeper.connect)
    for node in three.nodes.values():
        node.start()
    yield three
    for node in three.nodes.values():
        if node.process is not None:
            node.stop()


def create(brokers: Brokers, topic: str, *replicas: int) -> None:
    admin = admin_client(brokers.nodes[2].bootstrap)
    result_of(admin.create_topics([NewTopic(topic, 1, replica_assignment=[list(replicas)])]))
    raw.until_told(brokers, topic)


def test_replicas_on_a_failed_disk_are_told_by_every_broker(brokers: Brokers) -> None:
    bootstrap = brokers.nodes[2].bootstrap
    # New ones go where the fewest are: the first and the last share a disk of broker 1.
    create(brokers, "large", FAILING, 2, 3)
    create(brokers, "kept", FAILING, 2, 3)
    create(brokers, "alone", FAILING)
    failing = brokers.nodes[FAILING]
    assert failing.process is not None
    pid = f"--pid={failing.process.pid}"
    subprocess.run(["prlimit", pid, f"--fsize={FILE_BYTES_MAX}"], check=True)
    values = [f"{index:05}".encode() * 20_000 for index in range(20)]
    send_values(bootstrap, "large", values, {"enable.idempotence": True})

    nobody: set[int] = set()
    lost = [(2, {2, 3}, {FAILING})] * 3
    until(lambda: brokers.told("large") == lost, "all tell that its disk has failed")
    waits = [(-1, nobody, {FAILING})] * 3
    until(lambda: brokers.told("alone") == waits, "nobody leads what is there only")
    assert brokers.told("kept") == [(FAILING, {1, 2, 3}, nobody)] * 3

    failing.stop()
    failing.start()  # without the limit, so on a disk that works again
    well = [(2, {1, 2, 3}, nobody)] * 3
    until(lambda: brokers.told("large") == well, "it is copied again, and all tell so")
    until(lambda: brokers.told("alone") == [(1, {1}, nobody)] * 3, "it is led again")
    assert read_values(bootstrap, "large") == values
