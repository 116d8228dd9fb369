"""Goal: CreateTopics answers in every version it is offered in, also when nothing can be written.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest

from ottla.base.errors import InvariantError, ProtocolError, StorageError
from ottla.handlers import api_19_create_topics as module
from ottla.metadata.configs.describe import describe_topic
from ottla.protocol.error_codes import KAFKA_STORAGE_ERROR, NOT_CONTROLLER
from tests.unit.handlers.fakes import FakeServices, ask, versions_of

VERSIONS = versions_of(module)


def topic(name: str = "t", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": 2,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "5"}],
        **changes,
    }


def create(
    services: FakeServices, version: int, *topics: dict[str, Any], validate_only: bool = False
) -> list[dict[str, Any]]:
    answer = ask(
        services,
        module,
        version,
        topics=list(topics),
        timeout_ms=1000,
        validate_only=validate_only,
    )
    assert answer["throttle_time_ms"] == 0
    told: list[dict[str, Any]] = answer["topics"]
    return told


@pytest.mark.parametrize("version", VERSIONS)
def test_created(version: int) -> None:
    services = FakeServices()
    (told,) = create(services, version, topic())
    image = services.image.topics["t"]
    assert (told["error_code"], told["error_message"]) == (0, None)
    assert len(image.partitions) == 2
    assert image.configs == {"retention.ms": "5"}
    if version >= 5:
        assert (told["num_partitions"], told["replication_factor"]) == (2, 1)
        settings = {config["name"]: config for config in told["configs"]}
        assert settings["retention.ms"]["value"] == "5"
        assert settings["retention.ms"]["config_source"] == 1
        assert settings["cleanup.policy"]["config_source"] == 5
    if version >= 7:
        assert told["topic_id"] == str(image.topic_id)


@pytest.mark.parametrize("version", VERSIONS)
def test_only_validated(version: int) -> None:
    services = FakeServices()
    (told,) = create(services, version, topic(), validate_only=True)
    assert told["error_code"] == 0
    assert services.image.topics == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_refused(version: int) -> None:
    services = FakeServices()
    (told,) = create(services, version, topic(num_partitions=0))
    assert told["error_code"] == 37
    assert told["error_message"]
    if version >= 5:
        assert (told["num_partitions"], told["replication_factor"]) == (-1, -1)
        assert told["configs"] == []
    if version >= 7:
        assert told["topic_id"] == str(uuid.UUID(int=0))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_that_fails_is_told_for_every_topic(version: int) -> None:
    services = FakeServices()
    services.controller.failure = StorageError("/data/metadata.sqlite", "commit")
    told = create(services, version, topic("a"), topic("b"))
    assert [each["error_code"] for each in told] == [KAFKA_STORAGE_ERROR] * 2
    assert all(each["error_message"] for each in told)


def test_a_controller_that_refuses_as_a_whole() -> None:
    services = FakeServices()
    services.controller.failure = ProtocolError(NOT_CONTROLLER)
    (told,) = create(services, 7, topic())
    assert (told["error_code"], told["error_message"]) == (NOT_CONTROLLER, None)


def test_an_error_of_the_program_is_not_hidden() -> None:
    services = FakeServices()
    services.controller.failure = InvariantError("broken")
    with pytest.raises(InvariantError):
        create(services, 7, topic())


def test_a_topic_that_is_larger_than_a_commit_is_made_in_parts() -> None:
    services = FakeServices(brokers=(1, 2, 3))
    told = create(
        services,
        7,
        topic("large", num_partitions=2_500, replication_factor=2),
        topic("small", num_partitions=2),
    )
    assert {one["name"]: (one["error_code"], one["num_partitions"]) for one in told} == {
        "large": (0, 2_500),
        "small": (0, 2),
    }
    partitions = services.image.topics["large"].partitions
    assert len(partitions) == 2_500
    leaders = Counter(state.leader for state in partitions.values())
    assert max(leaders.values()) - min(leaders.values()) < 5
    assert services.controller.commits == 4


def test_a_topic_that_is_larger_than_a_commit_is_validated_as_a_whole() -> None:
    services = FakeServices(brokers=(1, 2, 3))
    (told,) = create(services, 7, topic("large", num_partitions=2_500), validate_only=True)
    assert (told["error_code"], told["num_partitions"]) == (0, 2_500)
    assert services.image.topics == {}


def test_topics_that_are_made_alike_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[dict[str, str]] = []

    def noticed(config: Any, own: dict[str, str]) -> Any:
        described.append(own)
        return describe_topic(config, own)

    monkeypatch.setattr(module, "describe_topic", noticed)
    other = [{"name": "retention.ms", "value": "6"}]
    told = create(FakeServices(), 7, topic("a"), topic("b"), topic("c", configs=other))
    assert described == [{"retention.ms": "5"}, {"retention.ms": "6"}]
    values = {
        one["name"]: config["value"]
        for one in told
        for config in one["configs"]
        if config["name"] == "retention.ms"
    }
    assert values == {"a": "5", "b": "5", "c": "6"}


def test_a_part_that_can_not_be_made_is_told() -> None:
    services = FakeServices(brokers=(1, 2, 3))
    submit = services.controller.submit
    answers = iter([None, None, ProtocolError(NOT_CONTROLLER, "coordination unavailable")])

    def failing(decide: Any) -> Any:
        services.controller.failure = next(answers)
        return submit(decide)

    services.controller.submit = failing  # type: ignore[method-assign]
    (told,) = create(services, 7, topic("large", num_partitions=2_500))
    assert (told["error_code"], told["error_message"]) == (
        NOT_CONTROLLER,
        "coordination unavailable",
    )
