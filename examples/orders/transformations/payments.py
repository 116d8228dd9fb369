"""Orders that are paid: each order joined to its payment of the topic `payments`."""

from pyspark import pipelines as dp
from pyspark.sql import functions as F

from ottla.spark.topics import json_topic

json_topic(
    "payments",
    topic="payments",
    schema="order_id STRING, amount DOUBLE, paid_at TIMESTAMP",
)

dp.create_sink("paid_orders", "ottla", {"topic": "paid-orders"})


@dp.append_flow(target="paid_orders")
def paid_to_topic():
    orders = spark.readStream.table("clean_orders").withWatermark("at", "10 minutes")
    payments = (
        spark.readStream.table("payments")
        .selectExpr("order_id AS paid_order", "amount", "paid_at")
        .withWatermark("paid_at", "10 minutes")
    )
    # A payment is waited for an hour: what is older leaves the state.
    pair = F.expr(
        "order_id = paid_order AND paid_at >= at - INTERVAL 1 HOUR "
        "AND paid_at <= at + INTERVAL 1 HOUR"
    )
    return orders.join(payments, pair).selectExpr(
        "order_id AS key", "to_json(struct(order_id, customer, amount, paid_at)) AS value"
    )
