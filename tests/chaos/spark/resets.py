"""A project with a name of its own over two topics: previewed, run, changed, reset, run again.

For `make chaos`, which names this file: each step starts Spark.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.dataset as ds

from ottla.spark.client_sink import ClientSinkCluster
from ottla.spark.pipeline.control import Control
from ottla.spark.pipeline.project import Project, find_project
from ottla.spark.sink_options import parse_sink_options
from ottla.testing import Broker
from tests.spark.shell import QUICK_JAVA, Shell

SPEC = """name: my pipeline
storage: storage
libraries:
  - glob:
      include: transformations/**
"""
# No startingOffsets: a query begins with what comes in later, a preview with what is there.
SOURCE = """
def rows_of(topic):
    read = spark.readStream.format("ottla").option("subscribe", topic).load()
    return read.selectExpr("CAST(value AS STRING) AS value")
"""
FIRST = f"""from pyspark import pipelines as dp
{SOURCE}

dp.create_streaming_table("both")


@dp.append_flow(target="both")
def one():
    return rows_of("one")


@dp.table
def other():
    return rows_of("two")


dp.create_sink("out", "ottla", {{"topic": "copies", "sinkId": "of-my-own"}})


@dp.append_flow(target="out")
def copies():
    return rows_of("one")
"""
SECOND = f"""from pyspark import pipelines as dp
{SOURCE}

@dp.append_flow(target="both")
def two():
    return rows_of("two")
"""


def values(project: Project, table: str) -> list[str]:
    files = [str(one) for one in Path(project.table_path(table)).rglob("*.parquet")]
    return sorted(ds.dataset(files).to_table().column("value").to_pylist()) if files else []


def groups_of(shell: Shell) -> list[str]:
    return [one["group"] for one in json.loads(shell("group", "list", "--output", "json"))]


def owner_of(broker: Broker, sink: str) -> str:
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    cluster = ClientSinkCluster(parse_sink_options(options, streaming=True))
    try:
        found = cluster.decision(sink)
        return "" if found is None else found.query
    finally:
        cluster.wire.close()


def test_a_project_is_previewed_run_changed_and_reset(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    (root / "transformations").mkdir(parents=True)
    (root / "spark-pipeline.yml").write_text(SPEC)
    (root / "transformations" / "first.py").write_text(FIRST)
    with Broker({"num.partitions": 1}) as broker:
        (root / "ottla.yml").write_text(f"bootstrap_servers: {broker.bootstrap}\n{QUICK_JAVA}")
        shell = Shell(tmp_path, broker.bootstrap)
        project, control = find_project(root), Control(root / ".ottla")
        shell("topic", "create", "one", "two", "copies")
        shell.produce("one", "a", "b", "c")
        shell.produce("two", "x", "y", "z")
        assert shell("pipeline", "preview", "one", "shop").split()[:4] == ["value", "a", "b", "c"]

        shell("pipeline", "reset", "shop", "--to", "earliest")
        shell("pipeline", "run", "shop", "--once")
        assert values(project, "both") == ["a", "b", "c"]
        assert control.starts_at() == "", "a query that comes later would begin there too"
        owner = owner_of(broker, "of-my-own")
        assert owner

        # Another flow into the same table: no second reading of everything, but a word.
        (root / "transformations" / "second.py").write_text(SECOND)
        said = shell("pipeline", "run", "shop", "--once", fails=True)
        assert "both was filled by one and is to be filled by one, two now" in said
        assert values(project, "both") == ["a", "b", "c"]

        groups = set(groups_of(shell))
        assert len(groups) == 3
        offsets = {"one": {"0": 1}, "two": {"0": 2}}
        said = shell("pipeline", "reset", "shop", "--to", json.dumps(offsets))
        assert "released sink of-my-own" in said
        assert groups_of(shell) == []
        shell("pipeline", "run", "shop", "--once")
        assert values(project, "both") == ["b", "c", "z"]
        assert values(project, "other") == ["z"]
        assert sorted(shell("consume", "copies").split()) == ["a", "b", "b", "c", "c"]
        assert owner_of(broker, "of-my-own") not in ("", owner)
