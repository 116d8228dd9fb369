"""The cases: rows through a connector, what a micro-batch costs, how late rows come.

Each gives the figures of one round. Rows are of 1 KB, topics have two partitions.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import confluent_kafka as ck

from bench.brokers import Broker
from bench.errors import BenchError
from bench.page_cache import make_room
from bench.percentiles import percentile
from bench.processes import resident_bytes
from bench.spark.empty import NAME, EmptySource
from bench.spark.session import jvm_pid, resident_below, tree_cpu_seconds
from bench.topics import create_topic, delete_topics

ROW_BYTES = 1_000
PARTITIONS = 2
QUERY_SECONDS_MAX = 3_600
LATENCY_ROWS_PER_S = 100
MADE_BATCHES = 6

Figures = dict[str, float]


@dataclass(slots=True)
class Side:
    """A connector under its name in Spark, and the broker that it talks to."""

    label: str
    format: str
    broker: Broker

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap, **more}


class Bench:
    def __init__(self, spark: Any, directory: Path, brokers: Sequence[Broker]) -> None:
        self.spark = spark
        self.directory = directory
        self.brokers = brokers
        """All that this process has started: they are below it, as Spark is."""

    # -- rows -----------------------------------------------------------------------------------

    def fill(self, side: Side, topic: str, rows: int) -> None:
        """Values that nothing compresses, over the partitions in turn. No two are the same: files
        of Parquet would hold such a value once, and what reads them would have little to read."""
        create_topic(side.broker.bootstrap, topic, PARTITIONS)
        producer = ck.Producer(
            {
                "bootstrap.servers": side.broker.bootstrap,
                "linger.ms": 20,
                "queue.buffering.max.messages": 200_000,
            }
        )
        for number in range(rows):
            value, key = os.urandom(ROW_BYTES), b"%d" % number
            while True:
                try:
                    producer.produce(topic, value, key, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(300):
            raise BenchError(f"{topic} was not filled in time")

    def rows_on_disk(self, rows: int) -> Path:
        """What the cases that write read: files, the same for both."""
        path = self.directory / f"rows-{rows}"
        if not path.exists():
            made = self.spark.range(rows, numPartitions=PARTITIONS).selectExpr(
                "CAST(id AS STRING) AS key", f"lpad(CAST(id AS STRING), {ROW_BYTES}, 'x') AS value"
            )
            made.write.parquet(str(path))
        return path

    def topic_on_disk(self, side: Side, topic: str) -> Path:
        """The rows of a topic with all of their columns, as files."""
        path = self.directory / f"topic-{topic}"
        if not path.exists():
            read = self.spark.read.format(side.format).options(**side.options(subscribe=topic))
            read.load().write.parquet(str(path))
        return path

    def parquet_read(self, side: Side, topic: str, rows: int) -> Figures:
        """What Spark's own reader makes of the same rows."""
        path = self.topic_on_disk(side, topic)

        def run() -> None:
            self.spark.read.parquet(str(path)).write.format("noop").mode("overwrite").save()

        return self._measured(side, rows, run)

    def batch_read(self, side: Side, topic: str, rows: int) -> Figures:
        def run() -> None:
            read = self.spark.read.format(side.format).options(**side.options(subscribe=topic))
            read.load().write.format("noop").mode("overwrite").save()

        return self._measured(side, rows, run)

    def stream_read(self, side: Side, topic: str, rows: int) -> Figures:
        """One query over all that is there, its start included."""
        options = side.options(subscribe=topic, startingOffsets="earliest")

        def run() -> None:
            read = self.spark.readStream.format(side.format).options(**options).load()
            write = read.writeStream.format("noop").trigger(availableNow=True)
            self._to_the_end(write)

        return self._measured(side, rows, run)

    def stream_write(self, side: Side, rows: int) -> Figures:
        """From files to a new topic, one query, its start included. The topic is removed then:
        the next round is to find memory, whoever's it is (`bench.page_cache`)."""
        path = self.rows_on_disk(rows)
        topic = f"written-{uuid.uuid4().hex[:8]}"
        create_topic(side.broker.bootstrap, topic, PARTITIONS)

        def run() -> None:
            read = self.spark.readStream.schema("key STRING, value STRING").parquet(str(path))
            write = read.writeStream.format(side.format).options(**side.options(topic=topic))
            self._to_the_end(write.trigger(availableNow=True))

        make_room(self.directory, rows * ROW_BYTES)
        figures = self._measured(side, rows, run)
        read = self.spark.read.format(side.format).options(**side.options(subscribe=topic)).load()
        if read.count() != rows:
            raise BenchError(f"{side.label} has not written {rows} rows")
        delete_topics(side.broker.bootstrap, topic)
        return figures

    def write_batches(self, side: Side, rows: int) -> Figures:
        """Batches of rows that the JVM makes, with nothing to read: what the sink costs, as the bar
        for it was measured (the first batch is warm-up; rows a second inside a batch). That was
        without a broker on the same cores, so what Spark takes is counted by itself as well."""
        topic = f"made-{uuid.uuid4().hex[:8]}"
        create_topic(side.broker.bootstrap, topic, PARTITIONS)
        made = (
            self.spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=rows, numPartitions=PARTITIONS)
            .load()
            .selectExpr(
                "CAST(value AS STRING) AS key",
                f"concat(CAST(value AS STRING), repeat('x', {ROW_BYTES})) AS value",
            )
        )
        make_room(self.directory, (MADE_BATCHES + 1) * rows * ROW_BYTES)
        write = made.writeStream.format(side.format).options(**side.options(topic=topic))
        query = self._started(write)
        _until_batch(query, 0)
        spark_cpu, broker_cpu = self._spark_cpu_seconds(), side.broker.cpu_seconds()
        _until_batch(query, MADE_BATCHES)
        spark_cpu = self._spark_cpu_seconds() - spark_cpu
        broker_cpu = side.broker.cpu_seconds() - broker_cpu
        query.stop()
        delete_topics(side.broker.bootstrap, topic)
        batches = [one for one in query.recentProgress if one["numInputRows"]]
        took_ms = [one["durationMs"]["triggerExecution"] for one in batches[1:]]
        return {
            "rows_per_s": rows / median(took_ms) * 1000,
            "cpu_s_per_million": (spark_cpu + broker_cpu) / (MADE_BATCHES * rows) * 1e6,
            "spark_cpu_s_per_million": spark_cpu / (MADE_BATCHES * rows) * 1e6,
        }

    def _measured(self, side: Side, rows: int, run: Callable[[], None]) -> Figures:
        spark_cpu, broker_cpu = self._spark_cpu_seconds(), side.broker.cpu_seconds()
        begin = time.monotonic()
        run()
        seconds = time.monotonic() - begin
        spark_cpu = self._spark_cpu_seconds() - spark_cpu
        broker_cpu = side.broker.cpu_seconds() - broker_cpu
        return {
            "rows_per_s": rows / seconds,
            "cpu_s_per_million": (spark_cpu + broker_cpu) / rows * 1e6,
            "spark_cpu_s_per_million": spark_cpu / rows * 1e6,
        }

    def _spark_cpu_seconds(self) -> float:
        """Of the JVM and of Python, the driver's included."""
        brokers = sum(broker.cpu_seconds() for broker in self.brokers)
        return tree_cpu_seconds(os.getpid()) - brokers

    def _to_the_end(self, writer: Any) -> None:
        query = self._started(writer)
        if not query.awaitTermination(QUERY_SECONDS_MAX):
            query.stop()
            raise BenchError("the query has not come to its end")

    def _started(self, writer: Any) -> Any:
        checkpoint = self.directory / f"checkpoint-{uuid.uuid4().hex[:8]}"
        return writer.option("checkpointLocation", str(checkpoint)).start()

    # -- what a batch costs ---------------------------------------------------------------------

    def empty_batches(self, batches: int) -> Figures:
        self.spark.dataSource.register(EmptySource)
        read = self.spark.readStream.format(NAME).load()
        return self._batches(read.writeStream.format(NAME), batches)

    def our_batches(self, side: Side, batches: int) -> Figures:
        """Two rows a batch, from topic to topic."""
        source, target = f"few-{uuid.uuid4().hex[:8]}", f"out-{uuid.uuid4().hex[:8]}"
        self.fill(side, source, (batches + 50) * PARTITIONS)
        create_topic(side.broker.bootstrap, target, PARTITIONS)
        options = side.options(
            subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=str(PARTITIONS)
        )
        read = self.spark.readStream.format(side.format).options(**options).load()
        write = read.select("key", "value").writeStream.format(side.format)
        return self._batches(write.options(**side.options(topic=target)), batches)

    def _batches(self, writer: Any, batches: int) -> Figures:
        """The first ten are warm-up. What one costs in the first tenth and in the last, and what
        memory the driver has taken in between."""
        jvm = jvm_pid(os.getpid())
        query = self._started(writer)
        _until_batch(query, batches // 10)
        resident_at_first = resident_bytes(jvm)
        pythons = resident_below(jvm)
        _until_batch(query, batches)
        resident = resident_bytes(jvm)
        # Those of the driver live as long as the query; workers of tasks come and go.
        pythons_now = resident_below(jvm)
        lasting = pythons.keys() & pythons_now.keys()
        if not lasting:
            raise BenchError("no process of the driver has lived for the whole query")
        query.stop()
        durations = [one["durationMs"] for one in query.recentProgress][10:]
        costs = [one["triggerExecution"] for one in durations]
        tenth = max(len(costs) // 10, 10)
        parts = {name for one in durations for name in one if name != "triggerExecution"}
        return {
            "batch_ms": median(costs),
            **{f"{name}_ms": median(one.get(name, 0) for one in durations) for name in parts},
            "growth": median(costs[-tenth:]) / median(costs[:tenth]),
            "memory_growth": resident / resident_at_first,
            "python_memory_growth": sum(pythons_now[pid] for pid in lasting)
            / sum(pythons[pid] for pid in lasting),
        }

    # -- how late rows come ---------------------------------------------------------------------

    def latency(self, side: Side, seconds: float) -> Figures:
        """Topic to topic at a trigger of a second: from a producer's send to a consumer's hands."""
        source, target = f"early-{uuid.uuid4().hex[:8]}", f"late-{uuid.uuid4().hex[:8]}"
        for topic in (source, target):
            create_topic(side.broker.bootstrap, topic, PARTITIONS)
        options = side.options(subscribe=source, startingOffsets="earliest")
        read = self.spark.readStream.format(side.format).options(**options).load()
        write = read.select("key", "value").writeStream.format(side.format)
        write = write.options(**side.options(topic=target)).trigger(processingTime="1 second")
        query = self._started(write)
        ended = threading.Event()
        sender = threading.Thread(target=_send, args=(side.broker.bootstrap, source, ended))
        sender.start()
        try:
            found = _arrivals(side.broker.bootstrap, target, seconds)
        finally:
            ended.set()
            sender.join()
            failure = query.exception()
            query.stop()
        if failure is not None or not found:
            raise BenchError(f"no rows came: {failure}")
        found.sort()
        return {"p50_s": percentile(found, 0.5), "p99_s": percentile(found, 0.99)}


def _send(bootstrap: str, topic: str, ended: threading.Event) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    number = 0
    while not ended.wait(1 / LATENCY_ROWS_PER_S):
        producer.produce(topic, b"%d" % time.time_ns(), partition=number % PARTITIONS)
        producer.poll(0)
        number += 1
    producer.flush(60)


def _until_batch(query: Any, number: int) -> None:
    deadline = time.monotonic() + QUERY_SECONDS_MAX
    while (last := query.lastProgress) is None or last["batchId"] < number:
        if query.exception() is not None or time.monotonic() > deadline:
            raise BenchError(f"batches have ended: {query.exception()}")
        time.sleep(0.05)


def _arrivals(bootstrap: str, topic: str, seconds: float) -> list[float]:
    """Latencies in seconds; the first ten seconds after the first row are warm-up."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-latency",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    found: list[float] = []
    begin: float | None = None
    deadline = time.monotonic() + seconds + 120
    try:
        consumer.assign([ck.TopicPartition(topic, one, 0) for one in range(PARTITIONS)])
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            now = time.monotonic()
            begin = begin or now
            if now - begin > seconds + 10:
                break
            if now - begin > 10:
                found.append((time.time_ns() - int(message.value() or b"0")) / 1e9)
    finally:
        consumer.close()
    return found
