"""Tables to a topic and back, on Ottla and on Apache Kafka, plain and for asyncio; what librdkafka
reads of them."""

from __future__ import annotations

import asyncio

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ottla.client import Consumer, Producer
from ottla.client.aio import AsyncConsumer, AsyncProducer
from ottla.client.murmur2 import partition_of
from tests.client.admin_calls import create_topic
from tests.client.members import PATIENCE_S, until

ROWS = 3_000


def orders() -> pa.Table:
    return pa.table(
        {
            "key": [b"customer-%d" % (number % 50) for number in range(ROWS)],
            "value": [b"order %d" % number for number in range(ROWS)],
            "headers": pa.array(
                [[{"key": "n", "value": b"%d" % n}] if n % 100 == 0 else [] for n in range(ROWS)],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )


def rows_of(consumer: Consumer, count: int) -> pa.Table:
    tables: list[pa.Table] = []
    until(
        lambda: tables.append(consumer.fetch_table(timeout_s=1)),
        lambda: sum(table.num_rows for table in tables) >= count,
        f"{count} rows",
    )
    return pa.concat_tables(tables)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_table_comes_back_as_it_went(cluster: str, topic: str, codec: str) -> None:
    create_topic(cluster, topic, 4)
    table = orders()
    with Producer(bootstrap_servers=cluster, compression_type=codec) as producer:
        delivery = producer.send_table(table, topic, key="key", headers="headers")
        assert delivery.result(PATIENCE_S) == delivery.rows == ROWS
        assert delivery.done()
    with Consumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in range(4)])
        found = rows_of(consumer, ROWS)
    assert found.num_rows == ROWS
    expected = {row["value"]: row for row in table.to_pylist()}
    for row in found.to_pylist():
        sent = expected.pop(row["value"])
        assert (row["key"], row["headers"]) == (sent["key"], sent["headers"])
        assert row["partition"] == partition_of(row["key"], 4)
        assert row["topic"] == topic
    assert expected == {}
    for partition in range(4):
        mine = [row for row in found.to_pylist() if row["partition"] == partition]
        assert [row["offset"] for row in mine] == list(range(len(mine)))
        numbers = [int(row["value"].split()[1]) for row in mine]
        assert numbers == sorted(numbers)


def test_tables_have_so_many_rows_and_bytes_at_most(cluster: str, topic: str) -> None:
    """Bytes by whole batches, and at least one of these; rows exactly."""
    with Producer(bootstrap_servers=cluster) as producer:
        for number in range(20):  # each is a batch
            producer.send(topic, b"%03d" % number + bytes(97)).result(PATIENCE_S)
        producer.send_table(orders().select(["value"]), topic).result(PATIENCE_S)
    offsets: list[int] = []
    with Consumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign((topic, 0))

        def take(**limits: int) -> int:
            table = consumer.fetch_table(timeout_s=PATIENCE_S, **limits)
            offsets.extend(table["offset"].to_pylist())
            assert consumer.position((topic, 0)) == len(offsets), "no row is passed over"
            return int(table.num_rows)

        assert [take(max_bytes=1) for _ in range(3)] == [1, 1, 1]
        assert 1 <= take(max_bytes=500) <= 5
        assert 1 <= take(max_rows=3, max_bytes=10_000) <= 3
        while len(offsets) < 20:
            assert 1 <= take(max_rows=20 - len(offsets)) <= 20
        while len(offsets) < 20 + ROWS:
            assert 1 <= take(max_rows=700) <= 700
        assert consumer.metrics()["records-consumed-total"] == 20 + ROWS
    assert offsets == list(range(20 + ROWS))


def test_frames_of_pandas_and_polars(cluster: str, topic: str) -> None:
    frame = pd.DataFrame({"k": ["a", "b"], "value": ["1", "2"]})
    with Producer(bootstrap_servers=cluster) as producer:
        producer.send_table(frame, topic, key="k").result(PATIENCE_S)
        producer.send_table(pl.from_pandas(frame), topic, key="k").result(PATIENCE_S)
    with Consumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign((topic, 0))
        table = rows_of(consumer, 4)
    assert table.to_pandas()["value"].tolist() == [b"1", b"2"] * 2
    assert pl.from_arrow(table)["key"].to_list() == [b"a", b"b"] * 2  # type: ignore[index]


def test_tables_in_transactions(cluster: str, topic: str) -> None:
    table = orders().select(["value"])
    with Producer(bootstrap_servers=cluster, transactional_id=f"x-{topic}") as producer:
        producer.begin_transaction()
        producer.send_table(table, topic)
        producer.abort_transaction()
        with producer.transaction():
            producer.send_table(table.slice(0, 10), topic)
    with Consumer(
        bootstrap_servers=cluster, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign((topic, 0))
        assert rows_of(consumer, 10)["value"].to_pylist() == table["value"].to_pylist()[:10]


def test_the_same_for_asyncio(cluster: str, topic: str) -> None:
    table = orders().select(["key", "value"])

    async def there_and_back() -> list[bytes]:
        async with AsyncProducer(bootstrap_servers=cluster) as producer:
            await asyncio.gather(*await producer.send_table(table, topic, key="key"))
        values: list[bytes] = []
        async with AsyncConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as reader:
            reader.assign((topic, 0))
            while len(values) < ROWS:
                values += (await reader.fetch_table(timeout_s=PATIENCE_S))["value"].to_pylist()
        return values

    assert asyncio.run(there_and_back()) == table["value"].to_pylist()
