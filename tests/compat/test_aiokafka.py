"""aiokafka: old protocol versions (Produce 8, Fetch 11, Metadata 5) and an asyncio client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.compat import confluent
from tests.patience import SECONDS_MAX

VALUES = [b"value %d" % number for number in range(300)]


async def send_all(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> list[Any]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as sender:
        futures = [await sender.send(topic, value, partition=0) for value in values]
        return list(await asyncio.gather(*futures))


async def read_all(bootstrap: str, topic: str, count: int, start: int = 0) -> list[Any]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=50) as reader:
        part = TopicPartition(topic, 0)
        reader.assign([part])
        reader.seek(part, start)
        return [await asyncio.wait_for(reader.getone(), SECONDS_MAX) for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_codec_round_trip(bootstrap: str, codec: str | None) -> None:
    topic = confluent.create_topic(bootstrap)
    delivered = asyncio.run(send_all(bootstrap, topic, VALUES, compression_type=codec))
    assert [record.offset for record in delivered] == list(range(len(VALUES)))
    records = asyncio.run(read_all(bootstrap, topic, len(VALUES)))
    assert [record.value for record in records] == VALUES


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap: str, acks: int | str) -> None:
    topic = confluent.create_topic(bootstrap)
    asyncio.run(send_all(bootstrap, topic, VALUES[:20], acks=acks))
    records = asyncio.run(read_all(bootstrap, topic, 20))
    assert [record.value for record in records] == VALUES[:20]


def test_idempotent_producer(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    asyncio.run(send_all(bootstrap, topic, VALUES, enable_idempotence=True))
    records = asyncio.run(read_all(bootstrap, topic, 10, 290))
    assert [record.value for record in records] == VALUES[290:]


def test_offsets_by_time_begin_and_end(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    for stamp in (1000, 2000, 3000):
        confluent.send(confluent.producer(bootstrap), topic, [{"value": b"v", "timestamp": stamp}])
    part = TopicPartition(topic, 0)

    async def story() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as reader:
            assert await reader.beginning_offsets([part]) == {part: 0}
            assert await reader.end_offsets([part]) == {part: 3}
            found = (await reader.offsets_for_times({part: 1500}))[part]
            assert (found.offset, found.timestamp) == (1, 2000)
            assert await reader.offsets_for_times({part: 3001}) == {part: None}

    asyncio.run(story())


def test_admin(bootstrap: str) -> None:
    topic = confluent.new_name()

    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            created = await admin.create_topics([NewTopic(topic, 1, 1)])
            assert created.topic_errors[0][:2] == (topic, 0)
            grown = await admin.create_partitions({topic: NewPartitions(3)})
            assert grown.topic_errors[0][:2] == (topic, 0)
            assert topic in await admin.list_topics()
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 3
            assert len((await admin.describe_cluster())["brokers"]) == 1
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7000"})
            await admin.alter_configs([resource])
            (answer,) = await admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})]
            )
            assert "7000" in str(answer.resources)
        finally:
            await admin.close()

    asyncio.run(story())


def test_delete_records_and_topic(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    confluent.send_values(bootstrap, topic, VALUES)
    part = TopicPartition(topic, 0)

    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            assert await admin.delete_records({part: RecordsToDelete(100)}) == {part: 100}
            deleted = await admin.delete_topics([topic])
            assert list(deleted.topic_error_codes) == [(topic, 0)]
        finally:
            await admin.close()

    asyncio.run(story())
