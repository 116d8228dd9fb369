"""Orders of the topic `order-events`, cleaned: bad records and bad rows aside, repeats dropped."""

from pyspark import pipelines as dp

from ottla.spark.expectations import expect, expect_or_drop, expect_or_quarantine
from ottla.spark.topics import json_topic

json_topic(
    "orders",
    topic="order-events",
    schema="order_id STRING, customer STRING, product STRING, quantity INT, price DOUBLE, "
    "at TIMESTAMP",
)


@dp.table
@expect("a customer", "customer IS NOT NULL")
@expect_or_drop("a quantity", "quantity > 0")
@expect_or_quarantine("a price", "price >= 0")
def clean_orders():
    rows = spark.readStream.table("orders").withWatermark("at", "10 minutes")
    return rows.dropDuplicatesWithinWatermark(["order_id"])
