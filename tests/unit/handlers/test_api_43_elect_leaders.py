"""Goal: ElectLeaders elects in every version, partition by partition or everywhere.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import StorageError
from ottla.handlers import api_43_elect_leaders as module
from ottla.metadata import nodes, paths
from ottla.metadata.changes import apply
from ottla.metadata.nodes import StateContent
from ottla.metadata.store import Write
from ottla.protocol.error_codes import (
    ELECTION_NOT_NEEDED,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.unit.handlers.fakes import FakeServices, ask, create_topic, versions_of

VERSIONS = versions_of(module)


def a_broker() -> FakeServices:
    """Partition 1 of t is led by 1 and would rather be led by 2."""
    services = FakeServices(brokers=(1, 2))
    create_topic(services, "t", (1, 2), (2, 1))
    create_topic(services, "u", (1, 2))
    content = nodes.partition_state(1, StateContent(1, 1, (2, 1), (), ()))
    controller = services.controller
    change = controller.store.commit([Write(paths.partition_state("t", 1), content, None)])
    controller.image = apply(controller.image, change)
    return services


def elect(
    services: FakeServices, version: int, topics: dict[str, list[int]] | None, kind: int = 0
) -> dict[str, Any]:
    wanted = None
    if topics is not None:
        wanted = [{"topic": name, "partitions": indexes} for name, indexes in topics.items()]
    return ask(
        services,
        module,
        version,
        election_type=kind,
        topic_partitions=wanted,
        timeout_ms=1000,
    )


def codes(answer: dict[str, Any]) -> dict[str, list[tuple[int, int]]]:
    return {
        topic["topic"]: [
            (each["partition_id"], each["error_code"]) for each in topic["partition_result"]
        ]
        for topic in answer["replica_election_results"]
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_some(version: int) -> None:
    services = a_broker()
    answer = elect(services, version, {"t": [0, 1, 5], "u": []})
    assert answer["error_code"] == NONE
    assert codes(answer) == {"t": [(0, ELECTION_NOT_NEEDED), (1, NONE), (5, 3)], "u": []}
    assert services.image.topics["t"].partitions[1].leader == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_everywhere(version: int) -> None:
    services = a_broker()
    assert codes(elect(services, version, None)) == {"t": [(1, NONE)], "u": []}
    assert services.image.topics["t"].partitions[1].leader == 2
    assert codes(elect(services, version, None)) == {"t": [], "u": []}


@pytest.mark.parametrize("version", [1, 2])
def test_unknown_kind(version: int) -> None:
    answer = elect(a_broker(), version, {"t": [0]}, kind=2)
    assert answer["error_code"] == INVALID_REQUEST
    assert codes(answer) == {"t": [(0, INVALID_REQUEST)]}
    answer = elect(a_broker(), version, None, kind=2)
    assert (answer["error_code"], answer["replica_election_results"]) == (INVALID_REQUEST, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_that_fails(version: int) -> None:
    services = a_broker()
    services.controller.failure = StorageError("/data/metadata.sqlite", "commit")
    answer = elect(services, version, {"t": [0, 1]})
    assert codes(answer) == {"t": [(0, KAFKA_STORAGE_ERROR), (1, KAFKA_STORAGE_ERROR)]}
    if version >= 1:
        assert answer["error_code"] == KAFKA_STORAGE_ERROR
    assert codes(elect(services, version, None)) == {}


def test_more_than_one_commit_holds_are_elected_in_parts() -> None:
    services = FakeServices(brokers=(1, 2))
    create_topic(services, "t", *[(2, 1)] * 450)
    store, controller = services.controller.store, services.controller
    content = nodes.partition_state(1, StateContent(1, 1, (2, 1), (), ()))
    writes = [Write(paths.partition_state("t", index), content, None) for index in range(450)]
    controller.image = apply(controller.image, store.commit(writes))
    commits = controller.commits
    answer = elect(services, 2, {"t": [*range(450), 999]})
    assert controller.commits - commits == 3
    told = codes(answer)["t"]
    assert told == [(index, NONE) for index in range(450)] + [(999, UNKNOWN_TOPIC_OR_PARTITION)]
    assert all(one.leader == 2 for one in services.image.topics["t"].partitions.values())
