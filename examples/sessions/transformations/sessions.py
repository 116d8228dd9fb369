"""Sessions of customers: clicks that follow each other within ten minutes.

A session that is not over yet is state of Spark. It stands in the checkpoint, so a pipeline that is
stopped, or killed, goes on with it.
"""

from pyspark import pipelines as dp
from pyspark.sql import functions as F

from ottla.spark.topics import json_topic

json_topic("clicks", topic="clicks", schema="customer STRING, page STRING, at TIMESTAMP")

dp.create_sink("sessions_topic", "ottla", {"topic": "sessions"})


@dp.append_flow(target="sessions_topic")
def sessions_to_topic():
    clicks = spark.readStream.table("clicks").withWatermark("at", "1 minute")
    gap = F.session_window("at", "10 minutes")
    sessions = clicks.groupBy(gap, "customer").agg(
        F.count("*").alias("clicks"),
        F.min("at").alias("began"),
        F.max("at").alias("ended"),
    )
    return sessions.selectExpr(
        "customer AS key", "to_json(struct(customer, clicks, began, ended)) AS value"
    )
