"""Goal: a topic made on demand has the shape that the broker's settings give it.
Method: what is submitted is decided on an image; internal topics as Apache Kafka 4.3.1 makes them.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from ottla.base.errors import ProtocolError
from ottla.handlers.auto_create import create_missing, new_topic
from ottla.handlers.context import Context, Services
from ottla.metadata.configs.broker_config import BrokerConfig
from tests.unit.handlers.read_fakes import FakeServices, a_topic, an_image


def order(services: FakeServices, *names: str) -> None:
    create_missing(Context(cast(Services, services), 12, None, "PLAINTEXT", 1), names)


def created(services: FakeServices) -> list[tuple[str, int, int, int]]:
    return [
        (result.name, result.error_code, result.partition_count, result.replication_factor)
        for results in services.controller.run(services.image)
        for result in results
    ]


def test_the_brokers_defaults() -> None:
    services = FakeServices(an_image(), properties={"num.partitions": "3"})
    order(services, "a", "b")
    assert created(services) == [("a", 0, 3, 1), ("b", 0, 3, 1)]


def test_switched_off() -> None:
    services = FakeServices(an_image(), properties={"auto.create.topics.enable": "false"})
    order(services, "a")
    assert services.controller.submitted == []


@pytest.mark.parametrize(
    ("name", "configs"),
    [
        (
            "__consumer_offsets",
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": "104857600",
            },
        ),
        (
            "__transaction_state",
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
        ),
        (
            "__share_group_state",
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": "1",
                "retention.ms": "-1",
                "segment.bytes": "104857600",
            },
        ),
    ],
)
def test_internal_topics(name: str, configs: dict[str, str]) -> None:
    topic = new_topic(BrokerConfig(), name)
    assert (topic.partition_count, topic.replication_factor) == (50, 1)
    assert dict(topic.configs) == configs


def test_internal_topics_follow_their_settings() -> None:
    config = BrokerConfig(
        {"offsets.topic.num.partitions": "7", "offsets.topic.segment.bytes": "2000000"}
    )
    topic = new_topic(config, "__consumer_offsets")
    assert topic.partition_count == 7
    assert dict(topic.configs)["segment.bytes"] == "2000000"


def told_after(services: FakeServices, act: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.INFO, logger="ottla.handlers"):
        act()
    return [one.getMessage() for one in caplog.records if one.name == "ottla.handlers"]


def test_the_log_says_why_there_is_no_topic(caplog: pytest.LogCaptureFixture) -> None:
    services = FakeServices(
        an_image(a_topic("a.b"), a_topic("there")), properties={"default.replication.factor": "2"}
    )
    order(services, "new", "a_b", "there")
    told = told_after(services, lambda: services.controller.run(services.image), caplog)
    # Somebody else was faster with the one that is there: nothing to tell.
    assert [message.split(" is ")[0] for message in told] == ["topic new", "topic a_b"]


def test_a_controller_that_fails_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    services = FakeServices(an_image())
    order(services, "new")
    ((_, deferred),) = services.controller.submitted
    told = told_after(services, lambda: deferred.fail(ProtocolError(41, "not me")), caplog)
    assert len(told) == 1 and "not me" in told[0]
