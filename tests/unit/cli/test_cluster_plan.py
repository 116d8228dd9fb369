"""What each broker of a cluster on one machine is started with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ottla.broker.config_file import load_broker_config
from ottla.cli.cluster_plan import SERVE, ClusterPlan, replication_defaults
from ottla.metadata.configs.listeners import parse_listeners

PLAN = ClusterPlan(
    directory=Path("/data"),
    host="127.0.0.1",
    ports=[9092, 9093, 9094],
    zookeeper="127.0.0.1:2181",
    metrics_ports=[9644, 9645, 9646],
)


def test_a_broker_has_its_id_its_port_its_directory_and_a_listener_for_its_peers() -> None:
    command = PLAN.command(2)
    assert tuple(command[: len(SERVE)]) == SERVE
    overrides = command[len(SERVE) + 1 :: 2]
    config = load_broker_config(None, overrides).config
    assert config.get_int("node.id") == 2
    assert config.get_int("zookeeper.session.timeout.ms") == 9_000
    assert config.get_list("log.dirs") == ["/data/broker-2"]
    listeners = parse_listeners(config)
    assert [(one.name, one.host, one.port) for one in listeners.listening] == [
        ("PLAINTEXT", "127.0.0.1", 9093),
        ("REPLICATION", "127.0.0.1", 0),
    ]
    assert listeners.inter_broker_name == "REPLICATION"


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (7, "3", "2")]
)
def test_three_replicas_and_two_in_sync_as_soon_as_there_are_brokers_for_it(
    brokers: int, replicas: str, in_sync: str
) -> None:
    defaults = replication_defaults(brokers)
    counts = {value for name, value in defaults.items() if name.endswith("replication.factor")}
    minima = {value for name, value in defaults.items() if "min" in name}
    assert (counts, minima) == ({replicas}, {in_sync})


def test_each_broker_stands_in_its_rack() -> None:
    assert "broker.rack" not in PLAN.settings(2), "the default is the machine's name"
    plan = dataclasses.replace(PLAN, racks=["east", "west", "west"])
    assert [plan.settings(one)["broker.rack"] for one in (1, 2, 3)] == ["east", "west", "west"]


def test_what_is_given_by_hand_wins() -> None:
    plan = ClusterPlan(
        directory=Path("/data"),
        host="::1",
        ports=[1],
        zookeeper="z:1",
        metrics_ports=[0],
        overrides={"min.insync.replicas": "5"},
    )
    assert plan.settings(1)["min.insync.replicas"] == "5"
    assert plan.settings(1)["listeners"].startswith("PLAINTEXT://[::1]:1,")
