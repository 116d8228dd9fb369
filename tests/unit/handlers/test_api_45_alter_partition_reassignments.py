"""Goal: AlterPartitionReassignments begins and stops moves, in every version.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import StorageError
from ottla.handlers import api_45_alter_partition_reassignments as module
from ottla.protocol.error_codes import (
    INVALID_REPLICATION_FACTOR,
    KAFKA_STORAGE_ERROR,
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
)
from tests.unit.handlers.fakes import FakeServices, ask, create_topic, versions_of

VERSIONS = versions_of(module)


def move(
    services: FakeServices, version: int, replicas: list[int] | None, *, allow: bool = True
) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "replicas": replicas}]
    return ask(
        services,
        module,
        version,
        topics=[{"name": "t", "partitions": partitions}],
        allow_replication_factor_change=allow,
        timeout_ms=1000,
    )


def code(answer: dict[str, Any]) -> int:
    (topic,) = answer["responses"]
    assert topic["name"] == "t"
    (partition,) = topic["partitions"]
    assert partition["partition_index"] == 0
    told: int = partition["error_code"]
    return told


@pytest.mark.parametrize("version", VERSIONS)
def test_begun_and_stopped(version: int) -> None:
    services = FakeServices(brokers=(1, 2))
    create_topic(services, "t", (1,))
    answer = move(services, version, [2])
    assert (answer["error_code"], answer["error_message"]) == (NONE, None)
    assert code(answer) == NONE
    assert services.image.topics["t"].partitions[0].adding == (2,)
    assert code(move(services, version, None)) == NONE
    assert services.image.topics["t"].partitions[0].replicas == (1,)
    assert code(move(services, version, None)) == NO_REASSIGNMENT_IN_PROGRESS


def test_the_number_of_replicas_is_kept_if_asked() -> None:
    services = FakeServices(brokers=(1, 2))
    create_topic(services, "t", (1,))
    assert code(move(services, 1, [1, 2], allow=False)) == INVALID_REPLICATION_FACTOR
    assert code(move(services, 0, [1, 2])) == NONE


def test_a_store_that_fails() -> None:
    services = FakeServices(brokers=(1, 2))
    create_topic(services, "t", (1,))
    services.controller.failure = StorageError("/data/metadata.sqlite", "commit")
    answer = move(services, 1, [2])
    assert answer["error_code"] == KAFKA_STORAGE_ERROR
    assert code(answer) == KAFKA_STORAGE_ERROR
