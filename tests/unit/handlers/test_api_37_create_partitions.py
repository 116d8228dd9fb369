"""Goal: CreatePartitions answers in every version, by hand or placed, also when nothing is written.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import StorageError
from ottla.handlers import api_37_create_partitions as module
from ottla.protocol.error_codes import INVALID_PARTITIONS, KAFKA_STORAGE_ERROR, NONE
from tests.unit.handlers.fakes import FakeServices, ask, create_topic, versions_of

VERSIONS = versions_of(module)


def grow(
    services: FakeServices,
    version: int,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
) -> dict[str, Any]:
    given = None
    if assignments is not None:
        given = [{"broker_ids": replicas} for replicas in assignments]
    answer = ask(
        services,
        module,
        version,
        topics=[{"name": "t", "count": count, "assignments": given}],
        timeout_ms=1000,
        validate_only=validate_only,
    )
    (told,) = answer["results"]
    assert told["name"] == "t"
    return dict(told)


@pytest.mark.parametrize("version", VERSIONS)
def test_grown(version: int) -> None:
    services = FakeServices(brokers=(1, 2))
    create_topic(services, "t", (1,))
    assert grow(services, version, 3)["error_code"] == NONE
    assert len(services.image.topics["t"].partitions) == 3
    assert grow(services, version, 4, [[2]])["error_code"] == NONE
    assert services.image.topics["t"].partitions[3].replicas == (2,)
    assert grow(services, version, 9, validate_only=True)["error_code"] == NONE
    refused = grow(services, version, 1)
    assert refused["error_code"] == INVALID_PARTITIONS
    assert refused["error_message"]
    assert len(services.image.topics["t"].partitions) == 4


def test_a_store_that_fails() -> None:
    services = FakeServices()
    create_topic(services, "t", (1,))
    services.controller.failure = StorageError("/data/metadata.sqlite", "commit")
    assert grow(services, 3, 2)["error_code"] == KAFKA_STORAGE_ERROR
