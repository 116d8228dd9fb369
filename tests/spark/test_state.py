"""State that a project keeps by functions of its own survives restarts of its engine, in both of
Spark's ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipeline.engine import Engine
from ottla.spark.pipeline.project import find_project
from ottla.spark.pipeline.status import StatusFile
from ottla.testing import Broker
from ottla.testing.pipeline import read_topic
from tests.spark.topics import Topics

SPEC = """name: sums
storage: store
libraries:
  - glob:
      include: transformations/**
"""
DEFINITIONS = """
import pandas as pd
from pyspark import pipelines as dp
from pyspark.sql.streaming import StatefulProcessor

WRITTEN = "key STRING, value STRING"
KEPT = "rows LONG, total LONG"


def summed(key, frames, before):
    rows, total = before
    for frame in frames:
        rows += len(frame)
        total += int(frame["n"].sum())
    return rows, total


def told(key, sums):
    return pd.DataFrame({"key": [str(key[0])], "value": ["[%d, %d]" % sums]})


def old_way(key, frames, state):
    sums = summed(key, frames, state.get if state.exists else (0, 0))
    state.update(sums)
    yield told(key, sums)


class NewWay(StatefulProcessor):
    def init(self, handle):
        self.state = handle.getValueState("sums", KEPT)

    def handleInputRows(self, key, rows, timerValues):
        sums = summed(key, rows, self.state.get() if self.state.exists() else (0, 0))
        self.state.update(sums)
        yield told(key, sums)

    def close(self):
        pass


def grouped():
    options = {"subscribe": "SOURCE", "startingOffsets": "earliest"}
    rows = spark.readStream.format("ottla").options(**options).load()
    return rows.selectExpr("cast(cast(value AS STRING) AS LONG) AS n").selectExpr(
        "n", "n % 2 AS odd"
    ).groupBy("odd")


dp.create_sink("old_sums", "ottla", {"topic": "OLD"})
dp.create_sink("new_sums", "ottla", {"topic": "NEW"})


@dp.append_flow(target="old_sums")
def sums_the_old_way():
    return grouped().applyInPandasWithState(old_way, WRITTEN, KEPT, "append", "NoTimeout")


@dp.append_flow(target="new_sums")
def sums_the_new_way():
    return grouped().transformWithStateInPandas(NewWay(), WRITTEN, "Append", "None")
"""


@pytest.fixture
def project(tmp_path: Path, topics: Topics) -> Iterator[Any]:
    names = {name: topics.create(name.lower()) for name in ("SOURCE", "OLD", "NEW")}
    definitions = DEFINITIONS
    for short, name in names.items():
        definitions = definitions.replace(f'"{short}"', f'"{name}"')
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "sums.py").write_text(definitions)
    (tmp_path / "spark-pipeline.yml").write_text(SPEC)
    yield find_project(tmp_path)


def test_state_of_both_kinds_survives_restarts(
    spark: Any, project: Any, topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    """The second kind needs a store of its own, which nobody has to ask for. On both, each engine
    goes on with the sums of the one before."""
    for part in (range(10), range(10, 14)):
        topics.fill("source", part)
        Engine(project, spark, StatusFile(tmp_path / "engine.json")).run(once=True)
    wanted = {("0", (5, 20)), ("0", (7, 42)), ("1", (5, 25)), ("1", (7, 49))}
    for name in ("old", "new"):
        records = list(read_topic(broker.bootstrap, topics(name)))
        found = [(one["key"].decode(), tuple(json.loads(one["value"]))) for one in records]
        assert sorted(found) == sorted(wanted), name
