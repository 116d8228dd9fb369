"""The source in a Spark session: found by its name, with the stock connector's code and columns."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.testing import Broker
from tests.spark.queries import CollectingQuery, run_to_the_end, stalled_read, started, until
from tests.spark.topics import Topics


def test_code_for_the_stock_connector_runs_under_another_name(
    spark: Any, broker: Broker, topics: Topics
) -> None:
    """As in Spark's own guide, with `ottla` for `kafka`; schema and values are the connector's."""
    topic = topics.create("in")
    topics.fill("in", range(1000))
    df = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .option("minPartitions", "4")
        .load()
    )
    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    df.createOrReplaceTempView("records")
    rows = spark.sql(
        """SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value, partition, offset,
                  topic, headers[0].key AS name, CAST(headers[0].value AS STRING) AS header
           FROM records WHERE offset % 100 = 7 ORDER BY partition, offset"""
    ).collect()
    assert [tuple(row) for row in rows] == [
        (f"key-{n}", str(n), n % 2, n // 2, topic, "n", str(n))
        for n in sorted(range(1000), key=lambda n: (n % 2, n))
        if n // 2 % 100 == 7
    ]


def test_a_filter_goes_down_to_the_source(read: Callable[..., Any], topics: Topics) -> None:
    topic = topics.create("in")
    topics.fill("in", range(1000))
    df = read(subscribe=topic, pushFilters="true", columns="key,offset,partition")
    found = df.where("partition = 1 AND offset >= 490").where("key = CAST('key-995' AS BINARY)")
    assert [row.offset for row in found.collect()] == [497]
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan, plan


def test_where_there_is_nothing_to_read_there_are_no_rows(
    read: Callable[..., Any], topics: Topics
) -> None:
    """Spark runs a task for it all the same, with a partition of its own making."""
    topic = topics.create("in")
    assert read(subscribe=topic).collect() == []
    topics.fill("in", range(10))
    ends = json.dumps({topic: {"0": 0, "1": 0}})
    assert read(subscribe=topic, endingOffsets=ends).collect() == []
    assert read(subscribe=topic, pushFilters="true").where("offset > 100").collect() == []


def test_a_wrong_option_is_refused_by_name(read: Callable[..., Any]) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="no option 'subscibe'; did you mean subscribe"):
        read(subscibe="orders").count()


def test_a_query_goes_on_where_it_ended_and_its_group_with_it(
    spark: Any, broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    """Two lives of a query over one checkpoint; new partitions between them; the group is at the
    end after each, without a further batch. No batch is above the limit."""
    topic = topics.create("in")
    topics.fill("in", range(500))
    listener = ottla.spark.attach(spark)
    group = topics("query")
    queries: list[Any] = []

    def start() -> Any:
        query = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("kafka.group.id", group)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "400")
            .load()
            .selectExpr("CAST(CAST(value AS STRING) AS INT) AS n", "partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        # Each that was started: one that had to be started again has its batches all the same.
        queries.append(query)
        return query

    try:
        run_to_the_end(start)
        until(lambda: topics.committed(group, "in") == {0: 250, 1: 250}, "commit of the first life")
        topics.grow("in", 3)
        topics.fill("in", range(500, 800), partitions=3)
        run_to_the_end(start)
        ends = {0: 350, 1: 350, 2: 100}
        until(lambda: topics.committed(group, "in", 3) == ends, "commit of the second life")
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(row.n for row in rows) == list(range(800))
    assert len({(row.partition, row.offset) for row in rows}) == 800
    counts = [one.numInputRows for query in queries for one in query.recentProgress]
    assert sum(counts) == 800
    assert max(counts) <= 400


# Of a busy machine; a request may take 30 seconds.
NOTICED_SECONDS_MAX = 15


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_deleted_within_a_batch_holds_up_nobody(
    spark: Any, broker: Broker, topics: Topics, tmp_path: Path, crash_plan: Path, fails: str
) -> None:
    deleted, other = topics.create("deleted", 4), topics.create("other")
    for first in range(0, 100, 20):  # several fetches for each partition
        topics.fill("deleted", range(first, first + 20), partitions=4)
    topics.fill("other", range(100))
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": f"{deleted},{other}",
        "startingOffsets": "earliest",
        "failOnDataLoss": fails,
        "kafka.fetch.max.bytes": "1",
    }
    query = CollectingQuery(spark, options, tmp_path)
    with stalled_read(query.start, crash_plan) as running:
        topics.delete("deleted")
    began = time.monotonic()
    if fails == "true":
        said = rf"topic {deleted} was deleted while it was read: {deleted}-\d from 0 to 25 is lost "
        remedy = r"from offset \d+ on\. Start again with a new checkpointLocation.*failOnDataLoss"
        with pytest.raises(Exception, match=said + remedy):
            running.awaitTermination()
    else:
        run_to_the_end(lambda: running)
        assert sorted(n for topic, n in query.rows[0] if topic == other) == list(range(100))
        assert 0 < sum(topic == deleted for topic, _ in query.rows[0]) < 100
    assert time.monotonic() - began < NOTICED_SECONDS_MAX


@pytest.mark.parametrize("trigger", ["200 milliseconds", "1 hour"])
def test_the_group_of_a_running_query_is_where_its_batches_end(
    spark: Any, broker: Broker, topics: Topics, tmp_path: Path, trigger: str
) -> None:
    """Batch for batch; and with the batch itself, not when the next one is planned in an hour."""
    topic = topics.create("in")
    group = topics("running")
    listener = ottla.spark.attach(spark)
    rounds = 1 if trigger == "1 hour" else 3
    topics.fill("in", range(10))

    def start() -> Any:
        return (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("kafka.group.id", group)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime=trigger)
            .start()
        )

    def is_at(offset: int) -> bool:
        return topics.committed(group, "in") == {0: offset, 1: offset}

    query = started(start)
    try:
        for number in range(1, rounds + 1):
            until(partial(is_at, 5 * number), "the group at the end of the batch")
            assert query.isActive
            if number < rounds:
                topics.fill("in", range(10))
    finally:
        query.stop()
        spark.streams.removeListener(listener)
        listener.close()
