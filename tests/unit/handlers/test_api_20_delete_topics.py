"""Goal: DeleteTopics takes names in every version and ids from v6, and can be switched off.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from ottla.base.errors import StorageError
from ottla.handlers import api_20_delete_topics
from ottla.protocol.error_codes import (
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
    TOPIC_DELETION_DISABLED,
)
from tests.unit.handlers.fakes import FakeServices, ask, create_topic, versions_of

VERSIONS = versions_of(api_20_delete_topics)
NO_ID = uuid.UUID(int=0)


def a_broker(**settings: str) -> FakeServices:
    services = FakeServices({name.replace("_", "."): value for name, value in settings.items()})
    for name in ("a", "b"):
        create_topic(services, name, (1,))
    return services


def delete(services: FakeServices, version: int, *names: str) -> list[dict[str, Any]]:
    answer = ask(
        services,
        api_20_delete_topics,
        version,
        topic_names=list(names),
        topics=[{"name": name, "topic_id": NO_ID} for name in names],
        timeout_ms=1000,
    )
    told: list[dict[str, Any]] = answer["responses"]
    return told


@pytest.mark.parametrize("version", VERSIONS)
def test_by_name(version: int) -> None:
    services = a_broker()
    topic_id = services.image.topics["a"].topic_id
    (told,) = delete(services, version, "a")
    assert (told["name"], told["error_code"]) == ("a", NONE)
    assert set(services.image.topics) == {"b"}
    if version >= 6:
        assert told["topic_id"] == str(topic_id)


def test_by_id() -> None:
    services = a_broker()
    topic_id = services.image.topics["a"].topic_id
    topics = [{"name": None, "topic_id": topic_id}]
    answer = ask(services, api_20_delete_topics, 6, topics=topics, timeout_ms=1000)
    (told,) = answer["responses"]
    assert (told["name"], told["topic_id"]) == ("a", str(topic_id))
    assert set(services.image.topics) == {"b"}


@pytest.mark.parametrize("version", VERSIONS)
def test_switched_off(version: int) -> None:
    services = a_broker(delete_topic_enable="false")
    told = delete(services, version, "a", "nope")
    code = INVALID_REQUEST if version < 3 else TOPIC_DELETION_DISABLED
    assert [each["error_code"] for each in told] == [code, code]
    assert set(services.image.topics) == {"a", "b"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_that_fails(version: int) -> None:
    services = a_broker()
    services.controller.failure = StorageError("/data/metadata.sqlite", "commit")
    told = delete(services, version, "a", "b")
    assert [(each["name"], each["error_code"]) for each in told] == [
        ("a", KAFKA_STORAGE_ERROR),
        ("b", KAFKA_STORAGE_ERROR),
    ]
    assert set(services.image.topics) == {"a", "b"}


def a_broker_with_a_large_topic() -> FakeServices:
    services = FakeServices()
    for name in ("large", "larger"):
        create_topic(services, name, *[(1,)] * 2_001)
    return services


def test_what_is_larger_than_a_commit_is_deleted_in_parts() -> None:
    services = a_broker_with_a_large_topic()
    before = services.controller.commits
    (told,) = delete(services, 6, "large")
    assert told["error_code"] == NONE
    assert set(services.image.topics) == {"larger"}
    assert services.controller.commits - before == 2


def test_a_large_topic_that_is_refused_keeps_all_its_partitions() -> None:
    services = a_broker_with_a_large_topic()
    larger = services.image.topics["larger"]
    for topics in (
        [{"name": "large", "topic_id": NO_ID}] * 2,
        [{"name": "larger", "topic_id": NO_ID}, {"name": None, "topic_id": larger.topic_id}],
        [{"name": "larger", "topic_id": larger.topic_id}],
    ):
        answer = ask(services, api_20_delete_topics, 6, topics=topics, timeout_ms=1000)
        assert {told["error_code"] for told in answer["responses"]} == {INVALID_REQUEST}
    sizes = {name: len(topic.partitions) for name, topic in services.image.topics.items()}
    assert sizes == {"large": 2_001, "larger": 2_001}
