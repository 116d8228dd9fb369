"""Three nodes under measurement: Ottla's brokers with a ZooKeeper, or three KRaft nodes of Kafka.

The same settings on both sides: three replicas, two that must have a record, and one session
time-out. Processor time and memory are the sum over all processes that a cluster needs, ZooKeeper
counted in. Every process is ended by its pid, always.
"""

from __future__ import annotations

import base64
import os
import signal
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from bench.brokers import START_SECONDS_MAX, Broker, BrokerFailed, Kafka, free_port, ottla_command
from bench.kafka_properties import node_of
from bench.processes import cpu_seconds_of, resident_bytes
from bench.topics import leaders_of
from bench.wire import AnswerError, Connection
from ottla.protocol.api_keys import METADATA
from ottla.runtime.zookeeper_server import ZooKeeperServers

NODES = (1, 2, 3)
SESSION_MS = "6000"
_POLL_S = 0.01
# Both sides: what a cluster of three wants.
REPLICATED: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class OttlaNode(Broker):
    kind = "ottla"

    def __init__(self, directory: Path, settings: Mapping[str, str], node_id: int) -> None:
        super().__init__(directory, settings)
        self._node_id = node_id

    def command(self) -> list[str]:
        listeners = f"PLAINTEXT://{self.bootstrap},REPLICATION://127.0.0.1:0"
        settings = {
            "node.id": str(self._node_id),
            "listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
            "inter.broker.listener.name": "REPLICATION",
            "log.dirs": str(self.data),
            "ottla.metrics.listener": "127.0.0.1:0",
            **self.settings,
        }
        overrides = [word for pair in settings.items() for word in ("--override", "=".join(pair))]
        return [*ottla_command(), "serve", *overrides]


class KafkaNode(Kafka):
    def __init__(
        self, directory: Path, settings: Mapping[str, str], node_id: int, quorum: Mapping[int, str]
    ) -> None:
        super().__init__(directory, settings)
        self._node_id = node_id
        self._quorum = quorum

    def properties(self) -> str:
        return node_of(self._quorum, self._node_id, self.bootstrap, self.data, self.settings)


class Cluster:
    """Not started yet; `directory` is its own."""

    def __init__(self, kind: str, directory: Path, settings: Mapping[str, str]) -> None:
        self.kind = kind
        self.directory = directory
        self._zookeeper: ZooKeeperServers | None = None
        directory.mkdir(parents=True)
        self.nodes: dict[int, Broker] = {}
        wanted = {**REPLICATED, **settings}
        if kind == "ottla":
            self._zookeeper = ZooKeeperServers(directory / "zookeeper")
            self._wanted = {**wanted, "zookeeper.session.timeout.ms": SESSION_MS}
        else:
            quorum = {node: f"127.0.0.1:{free_port()}" for node in NODES}
            wanted["broker.session.timeout.ms"] = SESSION_MS
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            for node in NODES:
                one = KafkaNode(directory / f"node-{node}", wanted, node, quorum)
                one.cluster_id = cluster_id
                self.nodes[node] = one

    def start(self) -> float:
        """Seconds until each node knows all three. ZooKeeper's start is part of it."""
        for node in self.nodes.values():
            node.prepare()
        begin = time.monotonic()
        if self._zookeeper is not None:
            self._zookeeper.start()
            connect = {"zookeeper.connect": f"{self._zookeeper.connect}/ottla"}
            for number in NODES:
                place = self.directory / f"node-{number}"
                self.nodes[number] = OttlaNode(place, {**self._wanted, **connect}, number)
        for node in self.nodes.values():
            node.launch()
        for number in NODES:
            self.until_complete(number)
        return time.monotonic() - begin

    def until_complete(self, number: int) -> None:
        """Until this node knows all three."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while self._known_to(number) < len(NODES):
            self.nodes[number].expect_alive()
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{self.kind} node {number} does not know the others")
            time.sleep(_POLL_S)

    def _known_to(self, number: int) -> int:
        try:
            with Connection(self.nodes[number].bootstrap, 1.0) as connection:
                fields = {"topics": [], "allow_auto_topic_creation": False}
                return len(connection.call(METADATA, 4, fields).brokers)
        except (OSError, AnswerError):
            return 0

    def restart(self) -> float:
        """All nodes stopped and started again; seconds until each knows all three."""
        self._stop_nodes()
        begin = time.monotonic()
        for node in self.nodes.values():
            node.launch()
        for number in NODES:
            self.until_complete(number)
        return time.monotonic() - begin

    def _stop_nodes(self) -> None:
        for node in self.nodes.values():
            node.ask_to_stop()
        for node in self.nodes.values():
            node.stop()

    def stop(self) -> None:
        self._stop_nodes()
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def expect_alive(self) -> None:
        for node in self.nodes.values():
            node.expect_alive()

    # -- what the cases ask -----------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def any_node(self) -> str:
        return self.nodes[NODES[0]].bootstrap

    def leader_of(self, topic: str) -> int:
        """Of its first partition."""
        return leaders_of(self.any_node, topic)[0]

    def pids(self) -> list[int]:
        own = [node.pid for node in self.nodes.values()]
        servers = [] if self._zookeeper is None else self._zookeeper.servers
        return own + [one.process.pid for one in servers if one.process is not None]

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.pids())

    def resident_bytes(self) -> int:
        return sum(resident_bytes(pid) for pid in self.pids())

    def kill(self, number: int) -> None:
        os.kill(self.nodes[number].pid, signal.SIGKILL)

    def terminate(self, number: int) -> None:
        os.kill(self.nodes[number].pid, signal.SIGTERM)

    def bring_back(self, number: int) -> None:
        """After a kill or a stop; returns when it knows the others."""
        self.nodes[number].stop()
        self.nodes[number].launch()
        self.until_complete(number)
