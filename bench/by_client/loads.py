"""One load by one client in a process of its own: so many records a second, so much CPU a record.

    python -m bench.by_client.loads NAME '{"bootstrap": ..., "topic": ..., "records": ..., ...}'

CPU is that of the whole client process, threads included, from the first record on: connecting and
importing does not count. Values are random bytes, made beforehand.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, MutableSequence
from statistics import median
from typing import Any

WAIT_S = 60.0
WARM_RECORDS = 1_000


class Meter:
    """Between `begin` and `figures`."""

    def __init__(self) -> None:
        self._cpu = self._wall = 0.0
        self.has_begun = False

    def begin(self) -> None:
        self.has_begun = True
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def figures(self, records: int) -> dict[str, float]:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return {"records_per_s": records / wall, "cpu_us": cpu / records * 1e6}


def values_of(size: int) -> list[bytes]:
    data = os.urandom(size * 1_000)
    return [data[start : start + size] for start in range(0, len(data), size)]


# -- produce, record by record ---------------------------------------------------------------------


def produce_ottla(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    from ottla.client import Producer

    values, meter = values_of(size), Meter()
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, values[0]).result(WAIT_S)
        meter.begin()
        for number in range(records):
            producer.send(topic, values[number % 1_000])
        producer.flush(WAIT_S)
        return meter.figures(records)


def produce_aiokafka(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    values, meter = values_of(size), Meter()

    async def run() -> dict[str, float]:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
        await producer.start()
        await producer.send_and_wait(topic, values[0])
        meter.begin()
        for number in range(records):
            await producer.send(topic, values[number % 1_000])
        await producer.flush()
        figures = meter.figures(records)
        await producer.stop()
        return figures

    return asyncio.run(run())


def produce_kafka_python(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    from kafka import KafkaProducer

    values, meter = values_of(size), Meter()
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
    producer.send(topic, values[0]).get(WAIT_S)
    meter.begin()
    for number in range(records):
        producer.send(topic, values[number % 1_000])
    producer.flush(WAIT_S)
    figures = meter.figures(records)
    producer.close()
    return figures


def produce_confluent(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    from confluent_kafka import Producer

    values, meter = values_of(size), Meter()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
    )
    producer.produce(topic, values[0])
    producer.flush(WAIT_S)
    meter.begin()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % 1_000])
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush(WAIT_S)
    return meter.figures(records)


# -- produce, a table ------------------------------------------------------------------------------


def send_table_ottla(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    import pyarrow as pa

    from ottla.client import Producer

    values, meter = values_of(size), Meter()
    table = pa.table({"value": pa.array(values * (records // 1_000), pa.binary())})
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_table(table.slice(0, WARM_RECORDS), topic).result(WAIT_S)
        meter.begin()
        producer.send_table(table, topic).result(WAIT_S)
        return meter.figures(table.num_rows)


# -- one at a time ---------------------------------------------------------------------------------


def sync_ottla(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    from ottla.client import Producer

    value = os.urandom(size)
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        return _latency(lambda: producer.send(topic, value).result(WAIT_S), records)


def sync_confluent(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    from confluent_kafka import Producer

    value = os.urandom(size)
    settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})

    def send() -> None:
        producer.produce(topic, value)
        producer.flush(WAIT_S)

    return _latency(send, records)


def _latency(send: Callable[[], object], records: int) -> dict[str, float]:
    took = []
    for number in range(records + WARM_RECORDS // 10):
        begin = time.perf_counter()
        send()
        if number >= WARM_RECORDS // 10:
            took.append((time.perf_counter() - begin) * 1e3)
    return {"latency_ms": median(took)}


# -- consume ---------------------------------------------------------------------------------------


def consume_ottla(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    from ottla.client import Consumer

    meter = Meter()
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign((topic, 0))
        for got, _ in enumerate(consumer, 1):
            if got == WARM_RECORDS:
                meter.begin()
            elif got == records:
                break
        return meter.figures(records - WARM_RECORDS)


def consume_aiokafka(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    meter = Meter()

    async def run() -> dict[str, float]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0)])
        got = skipped = 0
        # Lists, as its documentation has it for speed; each record is looked at, as above.
        while got < records:
            found = await consumer.getmany(timeout_ms=1_000, max_records=500)
            for batch in found.values():
                for _ in batch:
                    got += 1
            if got >= WARM_RECORDS and not meter.has_begun:
                meter.begin()
                skipped = got
        figures = meter.figures(got - skipped)
        await consumer.stop()
        return figures

    return asyncio.run(run())


def consume_kafka_python(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    from kafka import KafkaConsumer, TopicPartition

    meter = Meter()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    for got, _ in enumerate(consumer, 1):
        if got == WARM_RECORDS:
            meter.begin()
        elif got == records:
            break
    figures = meter.figures(records - WARM_RECORDS)
    consumer.close()
    return figures


def fetch_table_ottla(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    return _fetch_tables(bootstrap, topic, records, kept=[])


def fetch_table_and_drop_ottla(
    bootstrap: str, topic: str, records: int, size: int
) -> dict[str, float]:
    """Beside Kafka's ConsumerPerformance, which keeps nothing of what it reads either."""
    return _fetch_tables(bootstrap, topic, records, kept=deque(maxlen=1))


def _fetch_tables(
    bootstrap: str, topic: str, records: int, kept: MutableSequence[Any]
) -> dict[str, float]:
    from ottla.client import Consumer

    meter = Meter()
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign((topic, 0))
        skipped = consumer.fetch_table(timeout_s=WAIT_S).num_rows
        meter.begin()
        got = skipped
        while got < records:
            kept.append(consumer.fetch_table(timeout_s=WAIT_S))
            got += kept[-1].num_rows
        return meter.figures(got - skipped)


def fetch_table_confluent(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    import pyarrow as pa
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "bench", "enable.auto.commit": False}
    consumer: Any = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    meter = Meter()
    skipped = len(consumer.consume(WARM_RECORDS, WAIT_S))
    meter.begin()
    got = skipped
    tables = []
    while got < records:
        messages = consumer.consume(min(10_000, records - got), WAIT_S)
        tables.append(
            pa.table(
                {
                    "topic": pa.array([one.topic() for one in messages]),
                    "partition": pa.array([one.partition() for one in messages], pa.int32()),
                    "offset": pa.array([one.offset() for one in messages]),
                    "timestamp": pa.array([one.timestamp()[1] for one in messages]),
                    "key": pa.array([one.key() for one in messages], pa.binary()),
                    "value": pa.array([one.value() for one in messages], pa.binary()),
                }
            )
        )
        got += len(messages)
    figures = meter.figures(got - skipped)
    consumer.close()
    return figures


def main() -> None:
    load: Callable[..., dict[str, float]] = globals()[sys.argv[1]]
    print(json.dumps(load(**json.loads(sys.argv[2]))), flush=True)


if __name__ == "__main__":
    main()
