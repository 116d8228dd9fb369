"""The asyncio consumer by both protocols of groups, on Ottla and on Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.base.ids import TopicPartition
from ottla.client import Record
from ottla.client.aio import AsyncAdmin, AsyncConsumer
from tests.client.admin_calls import create_topic
from tests.client.members import fill

PATIENCE_S = 90
PROTOCOLS = ["classic", "consumer"]
RECORDS = 20


def run(work: Coroutine[Any, Any, None]) -> None:
    """To the end, and finds no task left behind."""

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole())


class Reader:
    """A consumer of a group, and what it was told, by a plain function and by coroutines."""

    def __init__(self, bootstrap: str, topic: str, protocol: str, **settings: Any) -> None:
        self.topic = topic
        self.group = f"g-{topic}"
        self.told: list[tuple[str, list[TopicPartition]]] = []
        if protocol == "classic":
            settings.setdefault("heartbeat_interval_ms", 200)
        self.consumer = AsyncConsumer(
            bootstrap_servers=bootstrap,
            group_id=self.group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            **settings,
        )

    def subscribe(self) -> None:
        async def on_revoked(partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            self.told.append(("revoked", sorted(partitions)))

        self.consumer.subscribe(
            self.topic,
            on_assigned=lambda partitions: self.told.append(("assigned", sorted(partitions))),
            on_revoked=on_revoked,
        )

    async def read(self, count: int) -> list[Record]:
        records: list[Record] = []
        while len(records) < count:
            records += await self.consumer.poll(0.1, count - len(records))
        return records

    async def committed(self, partition: int = 0) -> int | None:
        place = (self.topic, partition)
        found = (await self.consumer.committed(place))[place]
        return None if found is None else found.offset


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_and_hand_over(cluster: str, topic: str, protocol: str) -> None:
    """Callbacks of both kinds; what one has committed, the other goes on from."""
    create_topic(cluster, topic, 2)
    fill(cluster, topic, RECORDS, partitions=2)
    both = [(topic, 0), (topic, 1)]

    async def work() -> None:
        first = Reader(cluster, topic, protocol, enable_auto_commit=False)
        second = Reader(cluster, topic, protocol, enable_auto_commit=False)
        async with first.consumer, second.consumer:
            first.subscribe()
            values = [record.value for record in await first.read(RECORDS)]
            assert sorted(map(int, values)) == list(range(RECORDS))
            assert sorted(one for _, some in first.told for one in some) == both
            await first.consumer.commit()
            second.subscribe()
            while not (len(first.consumer.assignment()) == len(second.consumer.assignment()) == 1):
                for one in (first, second):
                    assert await one.consumer.poll(0.05) == [], "all of it was committed"
            assert "revoked" in [what for what, _ in first.told]
            await first.consumer.close()
            while len(second.consumer.assignment()) < 2:
                assert await second.consumer.poll(0.05) == []
            assert first.told[-1][0] == "revoked"

    run(work())


def test_positions_pauses_and_commits(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 1)
    fill(cluster, topic, RECORDS)
    place = (topic, 0)

    async def work() -> None:
        reader = Reader(cluster, topic, "classic", enable_auto_commit=False)
        consumer = reader.consumer
        async with consumer:
            reader.subscribe()
            assert (await reader.read(1))[0].value == b"0"
            consumer.seek(place, 5)
            records = await reader.read(3)
            assert [record.value for record in records] == [b"5", b"6", b"7"]
            assert await consumer.position(place) == 8
            consumer.pause([place])
            assert await consumer.poll(0.2) == []
            assert consumer.paused() == {place}
            consumer.resume([place])
            assert [one.value async for one in _first(consumer, 2)] == [b"8", b"9"]
            await consumer.commit(records)
            assert await reader.committed() == 8
            told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
            consumer.commit_async(on_commit=lambda offsets, error: told.set_result(error))
            assert await told is None
            assert await reader.committed() == 10, "what was iterated over, and no more"
            await consumer.unsubscribe()
            assert consumer.assignment() == frozenset()
            assert reader.told[-1] == ("revoked", [place])
            reader.subscribe()
            assert (await reader.read(1))[0].value == b"10"

    run(work())


def test_what_is_called_inside_of_an_iteration_counts_at_once(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 1)
    fill(cluster, topic, RECORDS)
    place = (topic, 0)

    async def work() -> None:
        settings = {"bootstrap.servers": cluster, "auto.offset.reset": "earliest"}
        async with AsyncConsumer(settings) as consumer:
            consumer.assign(place)
            offsets: list[int] = []
            async for record in consumer:
                offsets.append(record.offset)
                if len(offsets) == 2:
                    offsets += [one.offset for one in await consumer.poll(1, 2)]
                    assert await consumer.position(place) == 4
                elif len(offsets) == 5:
                    consumer.seek(place, 2)
                elif len(offsets) == 8:
                    break
            assert offsets == [0, 1, 2, 3, 4, 2, 3, 4]

    run(work())


async def _first(consumer: AsyncConsumer, count: int) -> Any:
    async for record in consumer:
        yield record
        count -= 1
        if count == 0:
            return


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_close_commits_tells_and_leaves(cluster: str, topic: str, protocol: str) -> None:
    create_topic(cluster, topic, 1)
    fill(cluster, topic, RECORDS)

    async def work() -> None:
        reader = Reader(cluster, topic, protocol)
        async with reader.consumer:
            reader.subscribe()
            await reader.read(7)
        assert reader.told == [("assigned", [(topic, 0)]), ("revoked", [(topic, 0)])]
        async with AsyncAdmin(bootstrap_servers=cluster) as admin:
            (described,) = await admin.describe_groups([reader.group])
            assert list(described.members) == []
            offsets = await admin.list_group_offsets(reader.group, [(topic, 0)])
            assert offsets[topic, 0].offset == 7

    run(work())


def test_a_callback_that_raises_in_a_close_does_not_keep_it_from_leaving(
    cluster: str, topic: str
) -> None:
    create_topic(cluster, topic, 1)

    async def work() -> None:
        reader = Reader(cluster, topic, "classic")

        def raising(partitions: list[TopicPartition]) -> None:
            raise KeyError(partitions)

        reader.consumer.subscribe(topic, on_revoked=raising)
        while not reader.consumer.assignment():
            await reader.consumer.poll(0.05)
        with pytest.raises(KeyError):
            await reader.consumer.close()
        async with AsyncAdmin(bootstrap_servers=cluster) as admin:
            (described,) = await admin.describe_groups([reader.group])
            assert list(described.members) == []

    run(work())


def test_a_cancelled_poll_is_cancelled_whatever_comes_in_the_same_moment(
    cluster: str, topic: str
) -> None:
    """And what came is there for the next one."""

    async def work() -> None:
        create_topic(cluster, topic, 1)
        async with AsyncConsumer(
            bootstrap_servers=cluster, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign((topic, 0))
            machine = consumer._machine
            polling = asyncio.ensure_future(consumer.poll(PATIENCE_S))
            while (waiting := machine._waiting) is None or waiting.done:
                await asyncio.sleep(0)
            waiting.resolve(None)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            fill(cluster, topic, 1)
            assert len(await consumer.poll(PATIENCE_S)) == 1

    run(work())
