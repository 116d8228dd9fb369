"""Revenue by minute and category: a window over the orders, joined to a table of products."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import functions as F

PRODUCTS = Path(__file__).parents[1] / "data" / "products.csv"


@dp.materialized_view
def products():
    schema = "product STRING, category STRING, weight_kg DOUBLE"
    return spark.read.csv(str(PRODUCTS), header=True, schema=schema)


@dp.table
def revenue():
    orders = spark.readStream.table("clean_orders").withWatermark("at", "10 minutes")
    joined = orders.join(spark.read.table("products"), "product")
    by_minute = joined.groupBy(F.window("at", "1 minute"), "category")
    totals = by_minute.agg(
        F.count("*").alias("orders"), F.sum(F.col("price") * F.col("quantity")).alias("revenue")
    )
    return totals.select(F.col("window.start").alias("minute"), "category", "orders", "revenue")


dp.create_sink("revenue_topic", "ottla", {"topic": "revenue"})


@dp.append_flow(target="revenue_topic")
def revenue_to_topic():
    rows = spark.readStream.table("revenue")
    return rows.selectExpr("category AS key", "to_json(struct(*)) AS value")
