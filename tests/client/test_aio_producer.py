"""The asyncio producer, on the standard loop and on uvloop, on Ottla and on Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ottla.client import RecordMetadata
from ottla.client.aio import AsyncProducer
from ottla.client.errors import (
    BrokerError,
    BufferFullError,
    ClosedError,
    RecordTooLargeError,
    TimedOutError,
)
from ottla.records.batch_builder import RecordToWrite, build_batch
from tests.client.admin_calls import create_topic
from tests.client.reading import values

PATIENCE_S = 60
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs to the end, and finds no task left behind."""

    async def whole(work: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work
        assert asyncio.all_tasks() == {asyncio.current_task()}

    return lambda work: (asyncio.run if request.param == "asyncio" else uvloop.run)(whole(work))


def test_send_and_wait(cluster: str, topic: str, run: Run) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=cluster) as producer:
            assert await producer.partitions_for(topic) == 1
            first = await producer.send_and_wait(topic, b"one", timestamp_ms=5)
            assert first == RecordMetadata(topic, 0, 0, 5)
            delivery = await producer.send(topic, b"two", b"key", [("h", b"1")])
            assert (await delivery).offset == (await delivery).offset == 1
            assert delivery.done()
            assert delivery.exception() is None
        await producer.close()
        with pytest.raises(ClosedError):
            await producer.send(topic, b"three")

    run(work())
    assert values(cluster, topic) == [b"one", b"two"]


def test_a_flush_ends_when_the_callbacks_have_run(cluster: str, topic: str, run: Run) -> None:
    async def work() -> None:
        told: list[int] = []
        async with AsyncProducer(bootstrap_servers=cluster) as producer:
            for number in range(20):
                delivery = await producer.send(
                    topic, b"v", on_delivery=lambda place, _: told.append(place.offset)
                )
                await delivery
                await producer.flush()
                assert told == list(range(number + 1))

    run(work())


def test_tasks_that_wait_for_memory_go_on_together(cluster: str, topic: str, run: Run) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=cluster, buffer_memory=100_000) as producer:
            tasks = (producer.send_and_wait(topic, bytes(100)) for _ in range(5_000))
            assert len(await asyncio.gather(*tasks)) == 5_000
            assert producer.metrics()["batch-send-total"] < 500, "not one by one"

    run(work())


def test_many_at_once_stay_in_order(cluster: str, topic: str, run: Run) -> None:
    told: list[int] = []

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=cluster, buffer_memory=50_000, batch_size=1_000
        ) as producer:
            for number in range(3_000):
                await producer.send(
                    topic,
                    b"%d" % number,
                    on_delivery=lambda metadata, error: told.append(metadata.offset),
                )
            await producer.flush(PATIENCE_S)
            assert producer.metrics()["record-send-total"] == 3_000

    run(work())
    assert values(cluster, topic) == [b"%d" % number for number in range(3_000)]
    assert told == list(range(3_000))


def test_a_split_batch_tells_whoever_waits(cluster: str, topic: str, run: Run) -> None:
    create_topic(cluster, topic, 1, {"max.message.bytes": "2000"})

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=cluster, linger_ms=100, batch_size=20_000
        ) as producer:
            waiting = [
                asyncio.ensure_future(producer.send_and_wait(topic, bytes(100))) for _ in range(100)
            ]
            offsets = [(await one).offset for one in waiting]
            assert offsets == list(range(100))
            with pytest.raises(RecordTooLargeError):
                await producer.send_and_wait(topic, bytes(3_000))

    run(work())


def test_an_encoded_batch(cluster: str, topic: str, run: Run) -> None:
    encoded = build_batch([RecordToWrite(7, b"k", b"%d" % number) for number in range(3)])

    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=cluster) as producer:
            delivery = await producer.send_batch(topic, 0, encoded)
            assert (await delivery).offset == 2

    run(work())
    assert values(cluster, topic) == [b"0", b"1", b"2"]


def test_transactions(cluster: str, topic: str, run: Run) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=cluster, transactional_id=topic) as producer:
            async with producer.transaction():
                await producer.send(topic, b"kept")
                await producer.send_offsets({(topic, 0): 7}, f"group of {topic}")
            with pytest.raises(ValueError, match="mine"):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"lost")
                    raise ValueError("mine")
            async with producer.transaction():
                await producer.send(topic, b"kept too")

    run(work())
    assert values(cluster, topic, decided=True) == [b"kept", b"kept too"]


async def knows(producer: AsyncProducer, topic: str) -> bool:
    """Asked for before, as `max.block.ms` is for this as well, and short for what is tested."""
    try:
        return await producer.partitions_for(topic) > 0
    except (BrokerError, TimedOutError):
        return False


def test_full_memory_is_told_and_a_cancelled_close_leaves_nothing(
    ottla_broker: Any, topic: str, run: Run
) -> None:
    async def work() -> None:
        producer = AsyncProducer(
            bootstrap_servers=ottla_broker.bootstrap, buffer_memory=2_000, max_block_ms=300
        )
        while not await knows(producer, topic):
            pass
        await producer.send_and_wait(topic, b"v")
        await asyncio.to_thread(ottla_broker.stop)
        with pytest.raises(BufferFullError, match=r"buffer\.memory"):
            for _ in range(100):
                await producer.send(topic, bytes(100))
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    run(work())
