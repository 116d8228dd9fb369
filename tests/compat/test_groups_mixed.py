"""Members of several clients in one group: ours beside librdkafka, aiokafka and Java, with every
assignor that two of them know, each as leader and as follower.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from ottla.base.ids import TopicPartition
from tests.client.members import PATIENCE_S, Member, fill, is_shared, until
from tests.compat.confluent import create_topic
from tests.compat.group_members import GroupMember
from tests.compat.group_nodes import group_node, groups_at  # noqa: F401
from tests.compat.java_host import JavaHost

PARTITIONS = 6


class Owner(Protocol):
    """A member of any client."""

    @property
    def owned(self) -> set[TopicPartition]: ...

    def poll(self) -> object: ...

    def values(self) -> list[bytes]: ...

    def close(self) -> None: ...


class JavaMember:
    def __init__(self, java: JavaHost, bootstrap: str, group: str, topic: str, **settings: str):
        self._java = java
        self._name = f"{group}-java"
        options = {"group.id": group, "enable.auto.commit": "false", **settings}
        java.run(
            "LivingMembers.start",
            name=self._name,
            bootstrap=bootstrap,
            topics=[topic],
            settings=options,
        )

    def poll(self) -> None:
        """It has a thread of its own."""

    @property
    def owned(self) -> set[TopicPartition]:
        return {
            (name.rpartition("-")[0], int(name.rpartition("-")[2]))
            for name in self._told()["owned"]
        }

    def values(self) -> list[bytes]:
        return [value.encode() for value in self._told()["values"]]

    def close(self) -> None:
        self._java.run("LivingMembers.stop", names=[self._name])

    def _told(self) -> Any:
        told = self._java.run("LivingMembers.told")[self._name]
        assert told["failure"] is None
        return told


class AioMember:
    """An aiokafka consumer in an event loop and a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topic: str, assignor: Any) -> None:
        self._values: list[bytes] = []
        self._stop = threading.Event()
        self._consumer: AIOKafkaConsumer | None = None
        self._failure: BaseException | None = None
        settings = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "partition_assignment_strategy": [assignor],
            "heartbeat_interval_ms": 200,
            "rebalance_timeout_ms": 60_000,
        }
        self._thread = threading.Thread(target=self._run, args=(topic, settings), daemon=True)
        self._thread.start()

    def poll(self) -> None:
        if self._failure is not None:
            raise self._failure

    @property
    def owned(self) -> set[TopicPartition]:
        consumer = self._consumer
        found = consumer.assignment() if consumer is not None else ()
        return {(one.topic, one.partition) for one in found}

    def values(self) -> list[bytes]:
        return list(self._values)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def _run(self, topic: str, settings: dict[str, Any]) -> None:
        try:
            asyncio.run(self._consume(topic, settings))
        except Exception as failure:  # noqa: BLE001 (the test's thread raises it)
            self._failure = failure

    async def _consume(self, topic: str, settings: dict[str, Any]) -> None:
        consumer = AIOKafkaConsumer(topic, **settings)
        await consumer.start()
        self._consumer = consumer
        try:
            while not self._stop.is_set():
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    self._values += [record.value for record in records]
        finally:
            await consumer.stop()


Join = Callable[[], Owner]


def share_and_read(joins: list[Join], bootstrap: str, topic: str) -> None:
    """The members come one after the other, read everything, and go in the same order."""
    values = set(fill(bootstrap, topic, 60, partitions=PARTITIONS))
    members: list[Owner] = []

    def step() -> None:
        for member in members:
            member.poll()

    try:
        for join in joins:
            members.append(join())
            until(
                step,
                lambda: is_shared(members, topic, PARTITIONS),
                f"{len(members)} members share {PARTITIONS} partitions",
            )
        until(
            step,
            lambda: {value for member in members for value in member.values()} == values,
            "everything is read",
        )
        while len(members) > 1:
            members.pop(0).close()
            until(step, lambda: is_shared(members, topic, PARTITIONS), "the others take over")
    finally:
        for member in members:
            member.close()


@pytest.fixture
def bootstrap(groups_at: str) -> str:  # noqa: F811
    return groups_at


@pytest.fixture
def name(bootstrap: str) -> str:
    """Of a topic, and of the group that reads it."""
    return create_topic(bootstrap, PARTITIONS)


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_with_librdkafka(bootstrap: str, name: str, assignor: str, ours_first: bool) -> None:
    settings = {"partition.assignment.strategy": assignor}
    joins: list[Join] = [
        lambda: Member(bootstrap, name, name, partition_assignment_strategy=assignor),
        lambda: GroupMember(bootstrap, name, [name], settings),
    ]
    share_and_read(joins if ours_first else joins[::-1], bootstrap, name)


@pytest.mark.parametrize("assignor", ["roundrobin", "sticky"])
def test_with_aiokafka(bootstrap: str, name: str, assignor: str) -> None:
    theirs = RoundRobinPartitionAssignor if assignor == "roundrobin" else StickyPartitionAssignor
    share_and_read(
        [
            lambda: AioMember(bootstrap, name, name, theirs),
            lambda: Member(bootstrap, name, name, partition_assignment_strategy=assignor),
        ],
        bootstrap,
        name,
    )


@pytest.mark.java
@pytest.mark.xdist_group("java")
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_with_java(bootstrap: str, java: JavaHost, name: str, assignor: str) -> None:
    classes = {
        "range": "RangeAssignor",
        "roundrobin": "RoundRobinAssignor",
        "sticky": "StickyAssignor",
        "cooperative-sticky": "CooperativeStickyAssignor",
    }
    strategy = f"org.apache.kafka.clients.consumer.{classes[assignor]}"
    theirs = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": "200"}
    share_and_read(
        [
            lambda: JavaMember(java, bootstrap, name, name, **theirs),
            lambda: Member(bootstrap, name, name, partition_assignment_strategy=assignor),
            lambda: Member(bootstrap, name, name, partition_assignment_strategy=strategy),
        ],
        bootstrap,
        name,
    )


@pytest.mark.java
@pytest.mark.xdist_group("java")
def test_with_java_by_the_newer_protocol(bootstrap: str, java: JavaHost, name: str) -> None:
    share_and_read(
        [
            lambda: JavaMember(java, bootstrap, name, name, **{"group.protocol": "consumer"}),
            lambda: Member(bootstrap, name, name, group_protocol="consumer"),
        ],
        bootstrap,
        name,
    )
