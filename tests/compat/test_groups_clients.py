"""Groups of kafka-python and of aiokafka: older versions, alone and beside librdkafka."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import CommitFailedError
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from tests.compat import confluent
from tests.compat.group_members import GroupMember, committed, poll_until
from tests.compat.group_nodes import group_node, groups_at  # noqa: F401
from tests.compat.group_wire import GroupWire
from tests.compat.test_groups_rows import spread
from tests.patience import SECONDS_MAX, SESSION_MS

# kafka-python leaves its connection to the coordinator to the garbage collector, which may come at
# any time from its close on.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

# A poll of kafka-python that is too short for a rebalance can leave it half done for good.
POLL_MS = 1000


@pytest.fixture
def at(groups_at: str) -> str:  # noqa: F811
    return groups_at


def python_consumer(at: str, group: str, topic: str, **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=at,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=100,
        fetch_max_wait_ms=20,
        **settings,
    )


@pytest.fixture(autouse=True)
def forgotten_sockets() -> Iterator[None]:
    """None is left to a later test, where the warning would count."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def until(step: Callable[[], object], condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what
        step()


def test_kafka_python_reads_commits_and_reads_on(at: str) -> None:
    topic, group = confluent.create_topic(at), confluent.new_name()
    spread(at, topic, 1, 20)
    read: list[int] = []

    def poll(reader: KafkaConsumer) -> None:
        for records in reader.poll(timeout_ms=POLL_MS).values():
            read.extend(record.offset for record in records)

    first = python_consumer(at, group, topic)
    until(lambda: poll(first), lambda: len(read) >= 20, "twenty records")
    place = PythonPartition(topic, 0)
    first.commit({place: OffsetAndMetadata(15, "note", 0)})
    assert first.committed(place) == 15
    first.close(autocommit=False)
    with GroupWire(at, group, topic) as wire:
        (found,) = wire.fetch_offsets().topics[0].partitions
        assert (found.committed_offset, found.metadata) == (15, "note")
    read.clear()
    second = python_consumer(at, group, topic)
    until(lambda: poll(second), lambda: len(read) >= 5, "the rest")
    assert read == [15, 16, 17, 18, 19]
    second.close()


def test_kafka_python_and_librdkafka_share_a_group(at: str) -> None:
    topic, group = confluent.create_topic(at, partitions=4), confluent.new_name()
    owned: set[tuple[str, int]] = set()
    is_over = threading.Event()

    def read_in_python() -> None:
        mine = python_consumer(at, group, topic)
        while not is_over.is_set():
            mine.poll(timeout_ms=POLL_MS)
            owned.clear()
            owned.update((place.topic, place.partition) for place in mine.assignment())
        mine.close()

    thread = threading.Thread(target=read_in_python)
    thread.start()
    theirs = GroupMember(at, group, [topic], {"partition.assignment.strategy": "range"})
    try:
        poll_until(
            [theirs],
            lambda: len(owned) == len(theirs.owned) == 2 and len(owned | theirs.owned) == 4,
            "two each",
        )
    finally:
        is_over.set()
        poll_until([theirs], lambda: len(theirs.owned) == 4, "the other two, too")
        thread.join()
        theirs.close()


async def aio_consumer(at: str, group: str, topic: str) -> AIOKafkaConsumer:
    reader = AIOKafkaConsumer(
        topic,
        bootstrap_servers=at,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=100,
    )
    await reader.start()
    return reader


def test_aiokafka_members_share_read_and_commit(at: str) -> None:
    topic, group = confluent.create_topic(at, partitions=2), confluent.new_name()
    sent = spread(at, topic, 2, 100)

    async def scenario() -> set[bytes]:
        first, second = await asyncio.gather(
            aio_consumer(at, group, topic), aio_consumer(at, group, topic)
        )
        read: set[bytes] = set()
        deadline = time.monotonic() + SECONDS_MAX
        places = [AioPartition(topic, index) for index in (0, 1)]
        while sum([await first.committed(place) or 0 for place in places]) < 100:
            assert time.monotonic() < deadline, "all records"
            for reader in (first, second):
                for records in (await reader.getmany(timeout_ms=20)).values():
                    read.update(record.value for record in records)
                # While the other joins there is a rebalance, in which nobody can commit.
                with suppress(CommitFailedError):
                    await reader.commit()
        await first.stop()
        await second.stop()
        return read

    assert asyncio.run(scenario()) == sent
    assert sum(committed(at, group, topic, index).offset for index in (0, 1)) == 100
