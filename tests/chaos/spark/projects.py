"""One project, unmodified, under Spark's own runner and under ours: the same tables.

For `make chaos`, which names this file.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.dataset as ds
from confluent_kafka import Producer

from ottla.spark.pipeline.control import Control
from ottla.spark.pipeline.project import find_project
from ottla.testing import Broker
from tests.spark.shell import Shell

STOCK, OURS = "stock", "ours"
ORDER = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "long"}],
}
AVRO_PROJECT = f"""
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from ottla.spark.topics import avro_topic

avro_topic(
    "orders", topic="orders", schema={json.dumps(json.dumps(ORDER))},
    columns="id STRING, amount BIGINT", options={{"includeHeaders": "true"}},
)


@dp.table
def big_orders():
    orders = SparkSession.active().readStream.table("orders")
    return orders.where("amount > 2").selectExpr("id", "amount", "_topic", "_partition", "_offset")
"""
# Without it, a second run of Spark's own finds its tables in the way.
STOCK_OPTIONS = (
    "--conf",
    "spark.sql.catalogImplementation=hive",
    "--conf",
    "spark.ui.enabled=false",
)


def values(first: int, last: int) -> list[str]:
    good = [f'{{"id":"{number % 7}","amount":{number}}}' for number in range(first, last)]
    return [*good, "no JSON", '{"id":"x","amount":-1}']


def table(*places: Path) -> list[dict[str, Any]]:
    files = [str(one) for place in places for one in place.rglob("*.parquet")]
    assert files, f"nothing in {places}"
    rows = ds.dataset(files).to_table().to_pylist()
    return sorted(rows, key=lambda row: sorted((name, str(value)) for name, value in row.items()))


def test_both_runners_make_the_same_tables(tmp_path: Path) -> None:
    with Broker({"num.partitions": 2}) as broker:
        shell = Shell(tmp_path, broker.bootstrap)
        shell("topic", "create", "shop-events")
        for where in (STOCK, OURS):
            (tmp_path / where).mkdir()
            Shell(tmp_path / where, broker.bootstrap)("pipeline", "init", "shop")
        stock = Shell(tmp_path / STOCK / "shop", broker.bootstrap)
        stock.environment["OTTLA_SPARK_DEAD_LETTERS"] = "stock.dead-letters"
        stock.environment["PYSPARK_PYTHON"] = str(stock.scripts / "python")
        ours = Shell(tmp_path / OURS, broker.bootstrap)
        project = find_project(tmp_path / OURS / "shop")
        control = Control(project.state)

        def rows_are(count: int) -> bool:
            flow = control.status("shop").flows.get("clean_events")
            return flow is not None and flow.rows == count

        with ours.running("pipeline", "run", "shop") as runner:
            for first, last in ((0, 50), (50, 100)):
                shell.produce("shop-events", *values(first, last))
                stock.run(str(stock.scripts / "spark-pipelines"), "run", *STOCK_OPTIONS)
                ours.until(lambda last=last: rows_are(last + last // 50 * 2), f"row {last}")  # type: ignore[misc]
            ours("pipeline", "stop", "shop")
            assert runner.wait(600) == 0
        ours("pipeline", "run", "shop", "--once")  # the view as of the end
        for name in ("clean_events", "totals"):
            theirs = table(tmp_path / STOCK / "shop" / "spark-warehouse" / name)
            assert theirs == table(Path(project.table_path(name)))
        assert len(shell("consume", "stock.dead-letters").splitlines()) == 2
        assert len(shell("consume", "shop.dead-letters").splitlines()) == 2


def avro(**fields: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, ORDER, fields)
    return stream.getvalue()


def test_both_runners_read_avro(tmp_path: Path) -> None:
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(5):
            producer.produce("orders", avro(id=f"order {number}", amount=number))
        producer.produce("orders", b"no Avro")
        assert producer.flush(60) == 0
        shell = Shell(tmp_path / OURS, broker.bootstrap)
        for where in (STOCK, OURS):
            (tmp_path / where).mkdir()
            Shell(tmp_path / where, broker.bootstrap)("pipeline", "init", "shop")
            transformations = tmp_path / where / "shop" / "transformations"
            for one in transformations.iterdir():
                one.unlink()
            (transformations / "orders.py").write_text(AVRO_PROJECT)
        stock = Shell(tmp_path / STOCK / "shop", broker.bootstrap)
        stock.environment["OTTLA_SPARK_DEAD_LETTERS"] = "stock.dead-letters"
        stock.environment["PYSPARK_PYTHON"] = str(stock.scripts / "python")
        stock.run(str(stock.scripts / "spark-pipelines"), "run", *STOCK_OPTIONS)
        shell("pipeline", "run", "shop", "--once")
        project = find_project(tmp_path / OURS / "shop")
        found = table(Path(project.table_path("big_orders")))
        assert [row["id"] for row in found] == ["order 3", "order 4"]
        assert found == table(tmp_path / STOCK / "shop" / "spark-warehouse" / "big_orders")
        for topic in ("stock.dead-letters", "shop.dead-letters"):
            assert shell("consume", topic).splitlines() == ["no Avro"]
