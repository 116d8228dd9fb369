"""Members of a group by this client, several in one test, polled in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client import Consumer, Producer, Record

PATIENCE_S = 90.0
POLL_S = 0.05

FIRST_MS = time.time_ns() // 1_000_000 - 3_600_000
"""When the first record of a topic was written; not so long ago that retention would take it."""


class Member:
    """A subscribed consumer; `owned` is what it was told that it has, `got` what it has read."""

    def __init__(self, bootstrap: str, group: str, topics: Any, **settings: Any) -> None:
        self.owned: set[TopicPartition] = set()
        self.got: list[Record] = []
        self.told: list[tuple[str, list[TopicPartition]]] = []
        options = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 50,
            "metadata_max_age_ms": 500,
            **settings,
        }
        if options.get("group_protocol") != "consumer":  # there the broker says how often
            options.setdefault("heartbeat_interval_ms", 200)
        self.consumer = Consumer(**options)
        self.consumer.subscribe(
            topics,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        )

    def poll(self) -> list[Record]:
        records = self.consumer.poll(POLL_S)
        self.got += records
        return records

    def values(self) -> list[bytes]:
        return [record.value for record in self.got]

    def close(self) -> None:
        self.consumer.close()

    def vanish(self) -> None:
        """Ends without a word to the group, as a killed process does."""
        self.consumer._shell.close()
        self.consumer._is_closed = True

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("assigned", partitions))
        self.owned |= set(partitions)

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("revoked", partitions))
        self.owned -= set(partitions)

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("lost", partitions))
        self.owned -= set(partitions)


def until(step: Callable[[], object], condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        step()


def poll_until(members: Sequence[Any], condition: Callable[[], object], what: str) -> None:
    def step() -> None:
        for member in members:
            member.poll()

    until(step, condition, what)


def share(members: Iterable[Any]) -> list[set[TopicPartition]]:
    return [member.owned for member in members]


def is_shared(members: Sequence[Any], topic: str, partitions: int) -> bool:
    """Whether every partition has one owner, and nobody has two more than another."""
    owned = [partition for member in members for partition in member.owned]
    sizes = sorted(len(member.owned) for member in members)
    everything = sorted((topic, number) for number in range(partitions))
    return sorted(owned) == everything and sizes[-1] - sizes[0] <= 1


def fill(
    bootstrap: str, topic: str, count: int, partitions: int = 1, first: int = 0
) -> list[bytes]:
    """Records "0", "1", ... in turn over the partitions."""
    values = [b"%d" % number for number in range(first, first + count)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number, value in enumerate(values, first):
            producer.send(
                topic, value, partition=number % partitions, timestamp_ms=FIRST_MS + number
            )
        producer.flush(PATIENCE_S)
    return values


def read(consumer: Consumer, count: int) -> list[Record]:
    """The next `count` records, and no more."""
    records: list[Record] = []
    until(
        lambda: records.extend(consumer.poll(0.5, count - len(records))),
        lambda: len(records) >= count,
        f"{count} records",
    )
    return records
