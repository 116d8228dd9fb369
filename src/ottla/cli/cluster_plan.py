"""What each broker of a cluster on this machine is started with. Pure.

Ids count from 1. The broker with id N has the N-th port from the one given on, a second listener
on loopback for its peers, and its data in `broker-N`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SERVE = (sys.executable, "-m", "ottla.cli.main", "serve")
CLIENT_LISTENER = "PLAINTEXT"
PEER_LISTENER = "REPLICATION"
METRICS_PORT_FIRST = 9644
REPLICAS = 3
MIN_IN_SYNC = "min.insync.replicas"
SESSION_TIMEOUT_MS = 9_000
"""As long as brokers of Kafka 4 wait for one that is silent. The setting's own default is that of
ZooKeeper's days, twice as long: for machines far apart, which these are not."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """`ports` has one for each broker, in the order of their ids; so do `racks`, or has none."""

    directory: Path
    host: str
    ports: Sequence[int]
    zookeeper: str
    metrics_ports: Sequence[int]
    racks: Sequence[str] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def broker_ids(self) -> range:
        return range(1, len(self.ports) + 1)

    def data_dir(self, broker_id: int) -> Path:
        return self.directory / f"broker-{broker_id}"

    def log_path(self, broker_id: int) -> Path:
        return self.directory / f"broker-{broker_id}.log"

    def address(self, broker_id: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.ports[broker_id - 1]}"

    def settings(self, broker_id: int) -> dict[str, str]:
        """What was given by hand wins over all of it."""
        return {
            **replication_defaults(len(self.ports)),
            "node.id": str(broker_id),
            "log.dirs": str(self.data_dir(broker_id)),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "listeners": (
                f"{CLIENT_LISTENER}://{self.address(broker_id)},{PEER_LISTENER}://127.0.0.1:0"
            ),
            "listener.security.protocol.map": (
                f"{CLIENT_LISTENER}:PLAINTEXT,{PEER_LISTENER}:PLAINTEXT"
            ),
            "inter.broker.listener.name": PEER_LISTENER,
            "ottla.metrics.listener": f"127.0.0.1:{self.metrics_ports[broker_id - 1]}",
            **({"broker.rack": self.racks[broker_id - 1]} if self.racks else {}),
            **self.overrides,
        }

    def command(self, broker_id: int) -> list[str]:
        command = list(SERVE)
        for key, value in self.settings(broker_id).items():
            command += ["--override", f"{key}={value}"]
        return command


def replication_defaults(broker_count: int) -> dict[str, str]:
    """Three replicas and two that must have it, as soon as there are enough brokers for that."""
    replicas = max(1, min(REPLICAS, broker_count))
    in_sync = max(1, replicas - 1) if replicas == REPLICAS else 1
    return {
        "default.replication.factor": str(replicas),
        MIN_IN_SYNC: str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }
