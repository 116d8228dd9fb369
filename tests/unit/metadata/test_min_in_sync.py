"""Goal: nobody stays eligible who is so only by a min.insync.replicas that no longer counts.
Method: partitions with eligible replicas, the setting changed for a topic and for the cluster.
"""

from __future__ import annotations

import pytest

from ottla.metadata import nodes, paths
from ottla.metadata.config_control import BROKER, TOPIC
from ottla.metadata.configs.alter import DELETE, SET
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import (
    ConfigChange,
    ConfigResult,
    ThisBroker,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from ottla.metadata.nodes import StateContent
from ottla.metadata.store import VersionConflict, Write
from ottla.protocol.error_codes import INVALID_CONFIG, NONE
from tests.unit.metadata.builders import Cluster

NAME = "min.insync.replicas"
BROKER_1 = ThisBroker(1, BrokerConfig({"node.id": "1"}))


def a_cluster() -> Cluster:
    """Topics t and u, each on 1 of three replicas with the others eligible: the number is 3."""
    cluster = Cluster(brokers=(1, 2, 3))
    for topic in ("t", "u"):
        cluster.create_on(topic, (1, 2, 3))
        content = nodes.partition_state(1, StateContent(1, 4, (1,), (2, 3), ()))
        cluster.store.commit([Write(paths.partition_state(topic, 0), content, None)])
    shared = nodes.configs({NAME: "3"})
    cluster.store.commit([Write(paths.broker_configs(""), shared, None)])
    cluster.reload()
    return cluster


def alter(cluster: Cluster, kind: int, who: str, value: str | None) -> ConfigResult:
    operation = (NAME, DELETE if value is None else SET, value)
    (result,) = cluster.run(
        lambda image: decide_incremental_alter_configs(
            image, [ConfigChange(kind, who, [operation])], broker=BROKER_1
        )
    )
    assert cluster.same_as_store()
    return result


def eligible(cluster: Cluster, topic: str) -> tuple[int, ...]:
    return cluster.image.topics[topic].partitions[0].eligible


def test_lowered_for_a_topic() -> None:
    cluster = a_cluster()
    assert alter(cluster, TOPIC, "t", "1").error_code == NONE
    assert eligible(cluster, "t") == (), "from now on 1 alone commits"
    assert eligible(cluster, "u") == (2, 3)


def test_lowered_for_the_cluster() -> None:
    cluster = a_cluster()
    alter(cluster, TOPIC, "u", "3")
    assert alter(cluster, BROKER, "", "1").error_code == NONE
    assert eligible(cluster, "t") == ()
    assert eligible(cluster, "u") == (2, 3), "the topic has its own number"


def test_a_topic_that_gives_up_its_own_number() -> None:
    cluster = a_cluster()
    alter(cluster, TOPIC, "t", "3")
    alter(cluster, BROKER, "", "1")
    assert eligible(cluster, "t") == (2, 3)
    assert alter(cluster, TOPIC, "t", None).error_code == NONE
    assert eligible(cluster, "t") == ()


def test_lowered_to_what_is_still_more_than_there_are() -> None:
    cluster = a_cluster()
    alter(cluster, TOPIC, "t", "2")
    assert eligible(cluster, "t") == (2, 3), "nothing is committed with one of two"


def test_raised_changes_nobody() -> None:
    cluster = a_cluster()
    version = cluster.image.topics["t"].partitions[0].partition_epoch
    assert alter(cluster, TOPIC, "t", "4").error_code == NONE
    assert cluster.image.topics["t"].partitions[0].partition_epoch == version


def test_who_becomes_eligible_meanwhile_stops_it() -> None:
    cluster = a_cluster()
    change = ConfigChange(TOPIC, "t", [(NAME, SET, "1")])
    decision = decide_incremental_alter_configs(cluster.image, [change], broker=BROKER_1)
    content = nodes.partition_state(1, StateContent(1, 4, (1,), (3, 2), ()))
    cluster.store.commit([Write(paths.partition_state("t", 0), content, None)])
    with pytest.raises(VersionConflict):
        cluster.store.commit(decision.writes)


@pytest.mark.parametrize(("who", "value"), [("1", "2"), ("", None)])
def test_the_number_is_the_clusters(who: str, value: str | None) -> None:
    cluster = a_cluster()
    assert alter(cluster, BROKER, who, value).error_code == INVALID_CONFIG


@pytest.mark.parametrize(("named", "code"), [(None, INVALID_CONFIG), ("3", NONE), ("2", NONE)])
def test_who_replaces_everything_has_to_name_the_number(named: str | None, code: int) -> None:
    cluster = a_cluster()
    after = {"log.retention.ms": "5"} | ({} if named is None else {NAME: named})
    change = ConfigChange(BROKER, "", [(name, SET, value) for name, value in after.items()])
    (result,) = cluster.run(lambda image: decide_alter_configs(image, [change], broker=BROKER_1))
    assert result.error_code == code
    assert cluster.image.broker_configs[""] == ({NAME: "3"} if named is None else after)


def test_a_single_node_is_a_cluster_of_one() -> None:
    cluster = Cluster()
    assert alter(cluster, BROKER, "", "2").error_code == NONE
    assert alter(cluster, BROKER, "", None).error_code == INVALID_CONFIG
    for value in ("2", None):
        assert alter(cluster, BROKER, "1", value).error_code == INVALID_CONFIG, "if it is named"


def test_a_brokers_own_number_of_an_earlier_version_may_go() -> None:
    cluster = Cluster()
    cluster.store.commit([Write(paths.broker_configs("1"), nodes.configs({NAME: "2"}), None)])
    cluster.reload()
    assert alter(cluster, BROKER, "1", "3").error_code == INVALID_CONFIG
    assert alter(cluster, BROKER, "1", None).error_code == NONE
    assert cluster.image.broker_configs.get("1", {}) == {}
