"""Goal: a heartbeat reaches the group's shard, and is refused where there is none.
Method: the handler over a real shard; what a shard answers is in the coordinator's own tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.handlers import api_68_consumer_group_heartbeat as module
from ottla.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    UNSUPPORTED_VERSION,
)
from tests.unit.handlers.consumer_group_fakes import GroupServices

JOIN: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout_ms": 1000,
    "subscribed_topic_names": ["t"],
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": [],
}


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins(version: int) -> None:
    services = GroupServices()
    answer = services.ask(module, version, **JOIN)
    topic_id = str(services.groups.hosted.image.topics["t"].topic_id)
    assert answer == {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "member_id": "m",
        "member_epoch": 2,
        "heartbeat_interval_ms": 5000,
        "assignment": {"topic_partitions": [{"topic_id": topic_id, "partitions": [0, 1]}]},
    }
    group = services.groups.hosted.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    metadata = group.members["m"].metadata
    assert (metadata.client_id, metadata.client_host) == ("test", "/10.1.2.3")


def test_before_clients_made_ids_the_broker_does() -> None:
    answer = GroupServices().ask(module, 0, **{**JOIN, "member_id": ""})
    assert (answer["error_code"], len(answer["member_id"])) == (0, 22)


@pytest.mark.parametrize("code", [COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR])
def test_the_group_is_not_here(code: int) -> None:
    services = GroupServices()
    services.groups.codes["g"] = code
    answer = services.ask(module, 1, **JOIN)
    assert answer["error_code"] == code
    assert answer["error_message"]
    assert answer["assignment"] is None


def test_what_cannot_be_written_is_refused() -> None:
    services = GroupServices()
    services.groups.hosted.partition.fail_code = NOT_ENOUGH_REPLICAS
    assert services.ask(module, 1, **JOIN)["error_code"] == COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    "services",
    [
        GroupServices(features={"metadata.version": 30}),
        GroupServices(features={"metadata.version": 30, "group.version": 0}),
        GroupServices(protocols="classic"),
    ],
)
def test_the_protocol_can_be_switched_off(services: GroupServices) -> None:
    assert services.ask(module, 1, **JOIN)["error_code"] == UNSUPPORTED_VERSION
    assert not services.groups.hosted.shard.groups


def test_a_new_cluster_has_it_on() -> None:
    services = GroupServices(features={"group.version": 1}, protocols="classic,consumer")
    assert services.ask(module, 1, **JOIN)["error_code"] == 0
