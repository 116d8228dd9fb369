"""Goal: AlterConfigs replaces all settings of a resource, in every version.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.base.errors import StorageError
from ottla.handlers import api_33_alter_configs as module
from ottla.protocol.error_codes import INVALID_REQUEST, KAFKA_STORAGE_ERROR, NONE
from tests.unit.handlers.fakes import FakeServices, ask, create_topic, versions_of

VERSIONS = versions_of(module)


def alter(
    services: FakeServices,
    version: int,
    *resources: Mapping[str, str | None],
    validate_only: bool = False,
) -> list[dict[str, Any]]:
    asked = [
        {
            "resource_type": 2,
            "resource_name": "t",
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        for configs in resources
    ]
    answer = ask(services, module, version, resources=asked, validate_only=validate_only)
    told: list[dict[str, Any]] = answer["responses"]
    return told


@pytest.mark.parametrize("version", VERSIONS)
def test_replaced(version: int) -> None:
    services = FakeServices()
    create_topic(services, "t", (1,))
    for configs in ({"retention.ms": "5"}, {"cleanup.policy": "compact"}, {}):
        (told,) = alter(services, version, configs)
        assert told == {
            "error_code": NONE,
            "error_message": None,
            "resource_type": 2,
            "resource_name": "t",
        }
        assert services.image.topics["t"].configs == configs
    assert alter(services, version, {"retention.ms": "5"}, validate_only=True)[0]["error_code"] == 0
    assert services.image.topics["t"].configs == {}
    (refused,) = alter(services, version, {"retention.ms": None})
    assert refused["error_code"] == INVALID_REQUEST


def test_a_resource_named_twice() -> None:
    """Kafka 4.3.1 never answers this one."""
    services = FakeServices()
    create_topic(services, "t", (1,))
    told = alter(services, 2, {"retention.ms": "1"}, {"retention.ms": "2"})
    assert [each["error_code"] for each in told] == [INVALID_REQUEST, INVALID_REQUEST]
    assert services.image.topics["t"].configs == {}


def test_a_store_that_fails() -> None:
    services = FakeServices()
    create_topic(services, "t", (1,))
    services.controller.failure = StorageError("/data/metadata.sqlite", "commit")
    (told,) = alter(services, 2, {"retention.ms": "1"})
    assert told["error_code"] == KAFKA_STORAGE_ERROR
