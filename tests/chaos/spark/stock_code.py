"""Code for the stock connector, as it is. `sys.argv` has the format's name, the broker, topics
and a directory; what it finds goes to standard output as JSON. Nothing here knows of Ottla.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    name, bootstrap, source, target, directory = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()

    def read(**options: str) -> Any:
        reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    def rows(frame: Any) -> list[Any]:
        found = frame.selectExpr("CAST(value AS STRING)", "partition", "offset", "topic")
        return [list(row) for row in found.orderBy("partition", "offset").collect()]

    ends = json.dumps({source: {"0": 100, "1": -1}})
    starts = json.dumps({source: {"0": 20, "1": -2}})
    found: dict[str, Any] = {
        "schema": read(subscribe=source, includeHeaders="true").schema.simpleString(),
        "all": rows(read(subscribe=source)),
        "some": rows(read(subscribe=source, startingOffsets=starts, endingOffsets=ends)),
        "assigned": rows(read(assign=json.dumps({source: [1]}), minPartitions="3")),
        "pattern": rows(read(subscribePattern=f"{source[:-1]}.", startingTimestamp="1")),
        "headers": [
            str(row)
            for row in read(subscribe=source, includeHeaders="true")
            .where("offset < 3")
            .orderBy("partition", "offset")
            .select("key", "headers", "timestampType")
            .collect()
        ],
    }
    stream = (
        spark.readStream.format(name)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "150")
        .option("failOnDataLoss", "true")
        .option("kafka.max.partition.fetch.bytes", "100000")
        .load()
    )
    query = (
        stream.selectExpr("key", "CAST(CAST(value AS STRING) AS BINARY) AS value")
        .writeStream.format(name)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", directory)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600)
    found["batches"] = [one["numInputRows"] for one in query.recentProgress]
    found["written"] = sorted(
        row.n
        for row in read(subscribe=target)
        .selectExpr("CAST(CAST(value AS STRING) AS INT) AS n")
        .collect()
    )
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
