"""The sink in a Spark session: topic to topic, exactly once, over restarts; batches; refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from tests.spark.queries import run_to_the_end
from tests.spark.topics import Topics


def copy(
    spark: Any,
    broker: Broker,
    checkpoint: Path,
    source: str,
    target: str,
    sink: str = "ottla",
    **options: str,
) -> Any:
    """Copies what is there from topic to topic, to its end; `sink` is the format that writes."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": target, **options}
    return copy_to(spark, broker, checkpoint, source, sink, **given)


def copy_to(
    spark: Any, broker: Broker, checkpoint: Path, source: str, sink: str, **options: str
) -> Any:
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "300")
        .load()
        .select("key", "value")
    )

    def start() -> Any:
        return (
            rows.writeStream.format(sink)
            .options(**options)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    return run_to_the_end(start)


def test_a_query_writes_every_row_once_over_restarts_and_repeated_batches(
    spark: Any, broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    """The commit log of the last batch is taken away, as if the driver had died before it wrote
    it: Spark does the batch again, and the sink knows that it is done. A second query on the sink
    is refused by name."""
    source, target = topics.create("in"), topics.create("out", 3)
    topics.fill("in", range(500))
    sink = topics("sink")[-40:]
    checkpoint = tmp_path / "checkpoint"
    copy(spark, broker, checkpoint, source, target, sinkId=sink)
    assert sorted(topics.values("out")) == list(range(500))
    last = max(int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    topics.fill("in", range(500, 700))
    copy(spark, broker, checkpoint, source, target, sinkId=sink)
    assert sorted(topics.values("out")) == list(range(700))
    with pytest.raises(Exception, match=f"sink {sink} belongs to query"):
        copy(spark, broker, tmp_path / "other", source, target, sinkId=sink)
    assert sorted(topics.values("out")) == list(range(700))


def test_a_batch_is_written_once_by_its_token(spark: Any, broker: Broker, topics: Topics) -> None:
    target = topics.create("out", 2)
    df = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")

    def write(**options: str) -> None:
        (
            df.write.format("ottla")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", target)
            .options(**options)
            .mode("append")
            .save()
        )

    for token in ("monday", "monday"):
        write(sinkId=topics("batch")[-40:], batchToken=token)
    assert sorted(topics.values("out")) == list(range(100))
    write()
    write(delivery="at-least-once")
    assert sorted(topics.values("out")) == sorted([*range(100)] * 3)


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("id AS value", {}, "column value is bigint, and must be string or binary"),
        ("'x' AS value", {"kafka.lingerms": "1"}, "linger.ms"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(
    spark: Any, broker: Broker, columns: str, options: dict[str, str], says: str
) -> None:
    writer = spark.range(1).selectExpr(*columns.split(", ")).write.format("ottla")
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "nowhere", **options}
    with pytest.raises(Exception, match=says):
        writer.options(**given).mode("append").save()


def test_what_the_processes_of_tasks_have_loaded_is_not_looked_through_any_more(
    spark: Any, broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    """Spark's daemon collects garbage behind every task; see `ottla.spark.lasting_objects`."""
    from pyspark.sql.datasource import DataSource

    from ottla.spark.sink import OttlaStreamWriter, stream_writer

    counts = tmp_path / "counts"
    counts.mkdir()

    class Counting(OttlaStreamWriter):
        def write(self, iterator: Any) -> Any:
            import gc
            import os

            from ottla.spark.lasting_objects import OF_THIS_PROCESS

            mine = counts / str(os.getpid())
            if not mine.exists():
                OF_THIS_PROCESS.put_back()  # other queries had this process before
            written = super().write(iterator)
            with mine.open("a") as lines:
                lines.write(f"{gc.get_freeze_count()}\n")
            return written

    class Counted(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counted"

        def streamWriter(self, schema: Any, overwrite: bool) -> Counting:
            return Counting(stream_writer(self.options, schema, overwrite).options)

    spark.dataSource.register(Counted)
    topics.create("in", 1)
    topics.create("out", 1)
    topics.fill("in", range(2_400), 1)  # eight batches: one process has three, whichever they go to
    copy(spark, broker, tmp_path / "checkpoint", topics("in"), topics("out"), "counted")
    found = [list(map(int, of_one.read_text().split())) for of_one in counts.iterdir()]
    assert {of_one[0] for of_one in found} == {0}
    assert max(of_one[-1] for of_one in found) > 10_000
