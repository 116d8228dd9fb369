"""The server.properties of Apache Kafka nodes: broker and controller in one (KRaft).

The bench starts them as peers, and the compatibility tests as a judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def node_of(
    quorum: Mapping[int, str], node_id: int, bootstrap: str, data: Path, settings: Mapping[str, str]
) -> str:
    """`quorum` are the addresses of all controllers; clients find this node at `bootstrap`."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{one}@{at}" for one, at in quorum.items()),
        "listeners": f"PLAINTEXT://{bootstrap},CONTROLLER://{quorum[node_id]}",
        "advertised.listeners": f"PLAINTEXT://{bootstrap}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        **settings,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def one_node(bootstrap: str, controller: str, data: Path, settings: Mapping[str, str]) -> str:
    # One node cannot hold the three copies that are the default.
    alone = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return node_of({1: controller}, 1, bootstrap, data, {**alone, **settings})
