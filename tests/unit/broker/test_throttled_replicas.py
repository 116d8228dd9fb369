"""Goal: whatever Kafka takes as a list of throttled replicas leaves a broker at work.

Kafka takes blanks around the items and items without anything in them. What is stored is read by
every broker after each change and at its start: one that stumbled over it could do no admin work
any more and not be started again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.testing import Broker
from tests.patience import SECONDS_MAX

NAMES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        create(running, "throttled")
        yield running


def admin_of(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS_MAX)


def throttle(broker: Broker, name: str, replicas: str) -> None:
    entry = ConfigEntry(name, replicas, incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, "throttled", incremental_configs=[entry])
    admin = admin_of(broker)
    admin.incremental_alter_configs([topic])[topic].result(SECONDS_MAX)


@pytest.mark.parametrize("replicas", [" * ", " ", ",", "0:1,", " 0:1 , , 1:1 "])
def test_a_broker_goes_on_and_starts_again(broker: Broker, replicas: str) -> None:
    for name in NAMES:
        throttle(broker, name, replicas)
    create(broker, "another")
    broker.restart()
    create(broker, "a-third")
