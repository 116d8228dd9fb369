"""Copies a topic to another, exactly once, as long as it is wanted: a driver that can be killed.

Its one argument is JSON: `bootstrap`, `source`, `target`, `directory`, `master`, `settings`
of Spark, `reading` for options of the source. When there is a file `ended` in the directory it
copies what is left, and ends.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ottla.spark.session import LOCAL_CHECKPOINTS, PATIENCE, without_checksums

ROWS_IN_BATCH = 200


def open_session(given: dict[str, Any]) -> Any:
    settings = {
        **LOCAL_CHECKPOINTS,
        **PATIENCE,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        **given.get("settings", {}),
    }
    builder = SparkSession.builder.master(given["master"]).appName("copier")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    without_checksums(spark)
    return spark


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = open_session(given)
    directory = Path(given["directory"])
    query = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("subscribe", given["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(ROWS_IN_BATCH))
        .options(**given.get("reading", {}))
        .load()
        .select("key", "value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("topic", given["target"])
        .option("sinkId", given["target"])
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    while query.isActive and not (directory / "ended").exists():
        time.sleep(0.2)
    if query.isActive:
        query.processAllAvailable()
    failure = query.exception()
    query.stop()
    spark.stop()
    if failure is not None:
        raise failure


if __name__ == "__main__":
    main()
