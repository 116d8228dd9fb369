"""Committed offsets that nobody needs any more are forgotten when their time is over
(`offsets.retention.minutes`), by the clock of the broker, which a test can move.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing import Broker
from tests.compat import confluent
from tests.compat.group_members import GroupMember, committed, poll_until
from tests.compat.nodes import wait_until
from tests.patience import SECONDS_MAX

DAYS = 7  # the default of offsets.retention.minutes
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


def groups_of(broker: Broker) -> set[str]:
    listed = confluent.admin_client(broker.bootstrap).list_consumer_groups()
    return {group.group_id for group in listed.result(SECONDS_MAX).valid}


def pass_days(broker: Broker, days: float) -> None:
    broker.advance(days=days)
    # Every offsets.retention.check.interval.ms there is a look; so it has been when this returns.
    broker.advance(minutes=11)


def commit_without_members(broker: Broker, group: str, topic: str) -> None:
    client = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    client.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    client.close()


def be_a_member(broker: Broker, group: str, topic: str, *, commits: bool) -> None:
    member = GroupMember(broker.bootstrap, group, [topic])
    poll_until([member], lambda: member.got if commits else member.owned, "it takes part")
    if commits:
        member.commit()
    member.close()


def is_gone(broker: Broker, group: str, topic: str) -> bool:
    return committed(broker.bootstrap, group, topic).offset < 0 and group not in groups_of(broker)


def test_a_group_without_members_is_forgotten_after_its_last_commit(broker: Broker) -> None:
    topic, group = confluent.create_topic(broker.bootstrap), confluent.new_name()
    commit_without_members(broker, group, topic)
    pass_days(broker, DAYS - 1)
    assert committed(broker.bootstrap, group, topic).offset == 5
    commit_without_members(broker, group, topic)
    pass_days(broker, DAYS - 1)
    assert committed(broker.bootstrap, group, topic).offset == 5, "counted from the last commit"
    pass_days(broker, 1)
    wait_until(lambda: is_gone(broker, group, topic), SECONDS_MAX, "it is forgotten")


def test_a_restart_does_not_begin_the_time_anew(broker: Broker) -> None:
    topic, group = confluent.create_topic(broker.bootstrap), confluent.new_name()
    commit_without_members(broker, group, topic)
    pass_days(broker, DAYS - 1)
    broker.restart()
    assert committed(broker.bootstrap, group, topic).offset == 5
    pass_days(broker, 1)
    wait_until(lambda: is_gone(broker, group, topic), SECONDS_MAX, "it is forgotten")
    broker.restart()
    assert committed(broker.bootstrap, group, topic).offset < 0


def test_a_group_that_had_members_keeps_its_offsets_from_when_the_last_one_left(
    broker: Broker,
) -> None:
    topic, group = confluent.create_topic(broker.bootstrap), confluent.new_name()
    confluent.send_values(broker.bootstrap, topic, [b"one"])
    be_a_member(broker, group, topic, commits=True)
    pass_days(broker, DAYS - 1)
    be_a_member(broker, group, topic, commits=False)
    pass_days(broker, DAYS - 1)
    # Twelve days after the commit, six after the second member has left.
    assert committed(broker.bootstrap, group, topic).offset == 1
    pass_days(broker, 1)
    wait_until(lambda: is_gone(broker, group, topic), SECONDS_MAX, "it is forgotten")
