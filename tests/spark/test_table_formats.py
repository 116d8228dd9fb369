"""Files and tables as sinks in a Spark session: found by name, with the offsets they hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from ottla.spark.tables import iceberg_sink
from ottla.testing import Broker
from tests.spark.test_sink import copy_to
from tests.spark.topics import Topics

Found = tuple[list[int], Any]


def parquet(tmp_path: Path) -> tuple[dict[str, str], Callable[[], Found]]:
    path = tmp_path / "rows"

    def look() -> Found:
        manifests = sorted((path / "_ottla" / "commits").glob("*/*.json"))
        files = [str(one) for one in path.glob("*.parquet")]
        rows = ds.dataset(files).to_table().column("value").to_pylist()
        return [int(one) for one in rows], json.loads(manifests[-1].read_text())["offsets"]

    return {"path": str(path)}, look


def iceberg(tmp_path: Path) -> tuple[dict[str, str], Callable[[], Found]]:
    given = {
        "table": "shop.rows",
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
        "catalog.warehouse": f"file://{tmp_path}/warehouse",
    }

    def look() -> Found:
        options = iceberg_sink.parse_iceberg_options({**given, "checkpointLocation": "any"})
        table = iceberg_sink.catalog_of(options).load_table("shop.rows")
        last = max(table.metadata.snapshots, key=lambda one: one.sequence_number)
        rows = table.scan().to_arrow().column("value").to_pylist()
        return [int(one) for one in rows], json.loads(last.summary[iceberg_sink.OFFSETS])

    return given, look


@pytest.mark.parametrize("kind", [parquet, iceberg])
def test_a_topic_goes_to_a_table_once_with_its_offsets(
    spark: Any,
    broker: Broker,
    topics: Topics,
    tmp_path: Path,
    kind: Callable[[Path], tuple[dict[str, str], Callable[[], Found]]],
) -> None:
    """Over a restart that does the last batch again."""
    source = topics.create("in")
    topics.fill("in", range(400))
    options, look = kind(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        copy_to(spark, broker, checkpoint, source, f"ottla-{kind.__name__}", **options)
        rows, offsets = look()
        assert sorted(rows) == list(range(400))
        assert offsets == {source: {"0": 200, "1": 200}}
        commits = [
            int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit()
        ]
        (checkpoint / "commits" / str(max(commits))).unlink()
