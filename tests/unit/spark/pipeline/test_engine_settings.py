"""Settings of a flow are for its query alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipeline.engine import ROCKSDB, STATE_STORE, Engine
from ottla.spark.pipeline.graph import SINK, Dataset, Flow
from ottla.spark.pipeline.project import find_project
from ottla.spark.pipeline.resolution import Resolved
from ottla.spark.pipeline.status import StatusFile

PARTITIONS = "spark.sql.shuffle.partitions"


class Conf:
    """A session's, as far as an engine asks it."""

    def __init__(self) -> None:
        self.values = {PARTITIONS: "2"}

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def unset(self, name: str) -> None:
        self.values.pop(name, None)

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)


class Session:
    def __init__(self) -> None:
        self.conf = Conf()


class Rows:
    """The analyzed plan of a DataFrame, and the way to it."""

    def __init__(self, plan: str) -> None:
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        return self if name == "_jdf" else lambda: self

    def toString(self) -> str:
        return self._plan


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    (tmp_path / "spark-pipeline.yml").write_text("name: orders\nstorage: store\n")
    return Engine(find_project(tmp_path), Session(), StatusFile(tmp_path / "engine.json"))


def launched(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    plan: str = "Project",
    conf: dict[str, str] | None = None,
) -> dict[str, str]:
    """The settings that a query is started under."""
    seen: dict[str, str] = {}

    def start(one: Resolved, available_now: bool) -> object:
        seen.update(engine.spark.conf.values)
        return object()

    monkeypatch.setattr(engine, "_started", start)
    flow = Flow("clean", "out", lambda: None, conf or {})
    engine._launch(Resolved(Dataset(SINK, "out"), [flow], Rows(plan), 0), False)
    return seen


def test_a_flow_has_its_settings_and_the_next_one_those_of_the_project(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launched(engine, monkeypatch, conf={PARTITIONS: "10", "a": "b"})[PARTITIONS] == "10"
    assert engine.spark.conf.values == {PARTITIONS: "2"}


def test_state_of_the_new_kind_has_the_store_that_it_needs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = "TransformWithStateInPySpark handleInputRows(...)"
    assert launched(engine, monkeypatch, plan)[STATE_STORE] == ROCKSDB
    assert STATE_STORE not in launched(engine, monkeypatch, "FlatMapGroupsInPandasWithState")
    assert launched(engine, monkeypatch, plan, {STATE_STORE: "own"})[STATE_STORE] == "own"
    engine.spark.conf.set(STATE_STORE, "the project's")
    assert launched(engine, monkeypatch, plan)[STATE_STORE] == "the project's"
