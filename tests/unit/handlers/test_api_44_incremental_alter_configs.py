"""Goal: IncrementalAlterConfigs changes settings and levels of loggers, in the order asked for.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import StorageError
from ottla.handlers import api_44_incremental_alter_configs as module
from ottla.handlers.broker_loggers import describe
from ottla.protocol.error_codes import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
)
from tests.unit.handlers.fakes import FakeServices, ask, create_topic, versions_of

VERSIONS = versions_of(module)
SET, DELETE, APPEND = 0, 1, 2
TOPIC, BROKER, LOGGER = 2, 4, 8
Operation = tuple[str, int, str | None]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("ottla.test_of_levels")
    root_level = logging.root.level
    yield logger
    logger.setLevel(logging.NOTSET)
    logging.root.setLevel(root_level)


def alter(
    services: FakeServices,
    version: int,
    *resources: tuple[int, str, list[Operation]],
    validate_only: bool = False,
) -> list[int]:
    asked = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": operation, "value": value}
                for key, operation, value in operations
            ],
        }
        for kind, name, operations in resources
    ]
    answer = ask(services, module, version, resources=asked, validate_only=validate_only)
    told: list[dict[str, Any]] = answer["responses"]
    assert [(each["resource_type"], each["resource_name"]) for each in told] == [
        (kind, name) for kind, name, _ in resources
    ]
    return [each["error_code"] for each in told]


def level_of(name: str) -> str | None:
    (told,) = describe([name])
    value: str | None = told["value"]
    return value


@pytest.mark.parametrize("version", VERSIONS)
def test_settings_and_levels_in_one_request(version: int, logger: logging.Logger) -> None:
    services = FakeServices()
    create_topic(services, "t", (1,))
    codes = alter(
        services,
        version,
        (LOGGER, "1", [(logger.name, SET, "DEBUG")]),
        (TOPIC, "t", [("retention.ms", SET, "5")]),
        (LOGGER, "2", [(logger.name, SET, "ERROR")]),
        (TOPIC, "nope", [("retention.ms", SET, "5")]),
    )
    assert codes == [NONE, NONE, INVALID_REQUEST, 3]
    assert services.image.topics["t"].configs == {"retention.ms": "5"}
    assert logger.level == logging.DEBUG


def test_levels(logger: logging.Logger) -> None:
    services = FakeServices()
    for level, expected in (
        ("TRACE", 5),
        ("DEBUG", logging.DEBUG),
        ("INFO", logging.INFO),
        ("WARN", logging.WARNING),
        ("ERROR", logging.ERROR),
        ("FATAL", logging.CRITICAL),
    ):
        assert alter(services, 1, (LOGGER, "1", [(logger.name, SET, level)])) == [NONE]
        assert logger.level == expected
        assert level_of(logger.name) == level
    logger.setLevel(1)
    assert level_of(logger.name) == "TRACE"
    logger.setLevel(logging.INFO + 1)
    assert level_of(logger.name) == "INFO"
    assert alter(services, 1, (LOGGER, "1", [("root", SET, "ERROR")])) == [NONE]
    assert alter(services, 1, (LOGGER, "1", [(logger.name, DELETE, None)])) == [NONE]
    assert level_of(logger.name) == "ERROR", "without its own, a logger has its parent's level"


@pytest.mark.parametrize(
    ("name", "operation", "value", "code"),
    [
        ("ottla.no_such_logger", SET, "INFO", INVALID_CONFIG),
        ("root", DELETE, None, INVALID_REQUEST),
        ("root", SET, "LOUD", INVALID_CONFIG),
        ("root", SET, "info", INVALID_CONFIG),
        ("root", SET, None, INVALID_REQUEST),
        ("root", APPEND, "INFO", INVALID_REQUEST),
        ("root", 9, "INFO", INVALID_REQUEST),
    ],
)
def test_levels_refused_leave_all_as_they_are(
    logger: logging.Logger, name: str, operation: int, value: str | None, code: int
) -> None:
    before = logging.root.level
    good: Operation = (logger.name, SET, "DEBUG")
    assert alter(FakeServices(), 1, (LOGGER, "1", [good, (name, operation, value)])) == [code]
    assert logging.root.level == before
    assert logger.level == logging.NOTSET


def test_a_logger_named_twice(logger: logging.Logger) -> None:
    twice: list[Operation] = [(logger.name, SET, "INFO"), (logger.name, SET, "DEBUG")]
    assert alter(FakeServices(), 1, (LOGGER, "1", twice)) == [INVALID_REQUEST]
    resource = (LOGGER, "1", twice[:1])
    assert alter(FakeServices(), 1, resource, resource) == [INVALID_REQUEST] * 2
    assert alter(FakeServices(), 1, (LOGGER, "x", [])) == [INVALID_REQUEST]
    assert logger.level == logging.NOTSET


def test_only_validated(logger: logging.Logger) -> None:
    services = FakeServices()
    create_topic(services, "t", (1,))
    codes = alter(
        services,
        1,
        (LOGGER, "1", [(logger.name, SET, "DEBUG")]),
        (TOPIC, "t", [("retention.ms", SET, "5")]),
        validate_only=True,
    )
    assert codes == [NONE, NONE]
    assert logger.level == logging.NOTSET
    assert services.image.topics["t"].configs == {}


def test_a_store_that_fails(logger: logging.Logger) -> None:
    services = FakeServices()
    create_topic(services, "t", (1,))
    services.controller.failure = StorageError("/data/metadata.sqlite", "commit")
    codes = alter(
        services,
        1,
        (TOPIC, "t", [("retention.ms", SET, "5")]),
        (LOGGER, "1", [(logger.name, SET, "DEBUG")]),
    )
    assert codes == [KAFKA_STORAGE_ERROR] * 2
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize("written", [" {}", "{} ", "{}_0", "0x{}", "{}.0", "", "1" * 12])
def test_only_digits_are_the_id_of_a_broker(written: str) -> None:
    """Told as done, the settings of a broker " 1" would be in effect nowhere."""
    services = FakeServices()
    name = written.format(services.broker_id)
    refused = f"Node id must be an integer, but it is: {name}"
    for kind, key, value in ((BROKER, "log.retention.ms", "5000"), (LOGGER, "root", "INFO")):
        if kind == BROKER and not name:
            continue  # all brokers
        config = {"name": key, "config_operation": SET, "value": value}
        asked = {"resource_type": kind, "resource_name": name, "configs": [config]}
        answer = ask(services, module, VERSIONS[-1], resources=[asked], validate_only=False)
        (told,) = answer["responses"]
        assert (told["error_code"], told["error_message"]) == (INVALID_REQUEST, refused)
    assert services.image.broker_configs == {}
