"""Consumers of a group by confluent-kafka (librdkafka), several in one test, polled in turn."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.compat.nodes import REPOSITORY
from tests.patience import SECONDS_MAX, SESSION_MS

POLL_SECONDS = 0.02

FAST = {
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 100,
    "fetch.wait.max.ms": 20,
    "topic.metadata.refresh.interval.ms": 500,
}


class GroupMember:
    """A subscribed consumer; `owned` is what it was assigned last, `got` what it has read."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.owned: set[tuple[str, int]] = set()
        self.got: list[Message] = []
        self.assignments = 0
        self.revoked: list[set[tuple[str, int]]] = []
        options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "log_level": 0,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **FAST,
            **(settings or {}),
        }
        self._cooperative = "cooperative" in options.get("partition.assignment.strategy", "")
        self.consumer = Consumer(options)
        self.consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke)

    def poll(self) -> Message | None:
        message = self.consumer.poll(POLL_SECONDS)
        if message is None:
            return None
        if message.error() is not None:
            raise KafkaException(message.error())
        self.got.append(message)
        return message

    def commit(self, message: Message | None = None) -> None:
        if message is None:
            self.consumer.commit(asynchronous=False)
        else:
            self.consumer.commit(message=message, asynchronous=False)

    def close(self) -> None:
        self.consumer.close()

    def values(self) -> list[bytes]:
        return [message.value() or b"" for message in self.got]

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        new = _places(partitions)
        self.owned = self.owned | new if self._cooperative else new

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = _places(partitions)
        self.revoked.append(gone)
        self.owned -= gone


def _places(partitions: list[TopicPartition]) -> set[tuple[str, int]]:
    return {(part.topic, part.partition) for part in partitions}


def poll_until(members: Sequence[GroupMember], condition: Callable[[], object], what: str) -> None:
    """All of them in turn, as if each had a thread, until `condition` holds."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}"
        for member in members:
            member.poll()


def shared_out(members: Sequence[GroupMember], count: int) -> bool:
    """Whether the members own `count` partitions between them, each of them once."""
    owned = [place for member in members for place in member.owned]
    return len(owned) == len(set(owned)) == count


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> TopicPartition:
    """What the group has committed; an offset below 0 is nothing."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        (found,) = reader.committed([TopicPartition(topic, partition)], timeout=SECONDS_MAX)
        return found
    finally:
        reader.close()


class MemberProcess:
    """A consumer in a process of its own that can be killed; it prints what it has read.

    `commit` is "before", "after" or "never": when it commits a record, compared to printing it.
    """

    PROGRAM = """
import sys
from tests.compat.group_members import GroupMember
from tests.patience import SHORT_SESSION_MS
bootstrap, group, topic, commit = sys.argv[1:5]
member = GroupMember(bootstrap, group, [topic], {"session.timeout.ms": SHORT_SESSION_MS})
while True:
    message = member.poll()
    if message is None:
        continue
    if commit == "before":
        member.commit(message)
    print(message.partition(), message.offset(), message.value().decode(), flush=True)
    if commit == "after":
        member.commit(message)
        print("committed", flush=True)
"""

    def __init__(self, bootstrap: str, group: str, topic: str, commit: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.PROGRAM, bootstrap, group, topic, commit],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )

    def line(self) -> str:
        """The next that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def kill(self) -> None:
        """SIGKILL: it says good-bye to nobody."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
