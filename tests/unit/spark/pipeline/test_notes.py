"""What is noted of queries, and what sinks are called whose project has any name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipeline.control import Control
from ottla.spark.pipeline.graph import SINK, TABLE, Dataset, Flow
from ottla.spark.pipeline.notes import QueryNote
from ottla.spark.pipeline.project import load_project
from ottla.spark.pipeline.resolution import Resolved
from ottla.spark.pipeline.session import environment
from ottla.spark.sink_options import SINK_NAME


def test_notes_are_kept_until_a_reset(tmp_path: Path) -> None:
    control = Control(tmp_path / ".ottla")
    assert control.queries.read() == {}
    notes = {"a": QueryNote(("a", "b")), "c": QueryNote(("c",), "sink", "there:9092")}
    for name, note in notes.items():
        control.queries.add(name, note)
    assert Control(tmp_path / ".ottla").queries.read() == notes
    control.queries.clear()
    assert control.queries.read() == {}


def test_where_a_reset_lets_queries_begin_is_forgotten_when_they_have(tmp_path: Path) -> None:
    control = Control(tmp_path / ".ottla")
    control.start_is_taken()
    control.start_at("earliest")
    control.start_is_taken()
    assert control.starts_at() == ""


def sink_name(root: Path, project: str, flow: str) -> str:
    spec = root / "spark-pipeline.yml"
    spec.write_text(f"name: {project!r}\nstorage: storage\n")
    return load_project(spec).sink_name(flow)


def test_sinks_of_a_project_with_any_name(tmp_path: Path) -> None:
    assert sink_name(tmp_path, "shop", "clean") == "shop.clean"
    strange = [("my pipeline", "a"), ("my_pipeline", "ä"), ("my/pipeline", "a"), ("x" * 300, "a")]
    names = [sink_name(tmp_path, project, flow) for project, flow in strange]
    assert all(SINK_NAME.fullmatch(name) for name in names), names
    assert names[0].startswith("my_pipeline.a-")
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("flows", [["first"], ["first", "second"]])
def test_a_table_has_one_checkpoint_however_many_flows_it_has(flows: list[str]) -> None:
    given = [Flow(name, "orders", lambda: None) for name in flows]
    assert Resolved(Dataset(TABLE, "orders"), given, None, 0).name == "orders"
    assert Resolved(Dataset(SINK, "out"), given[:1], None, 0).name == "first"


def test_executors_have_the_python_that_the_project_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text("name: shop\nstorage: storage\n")
    (tmp_path / "ottla.yml").write_text(
        "master: yarn\nspark:\n  spark.pyspark.python: ./env/bin/python\n"
    )
    assert environment(load_project(spec))["PYSPARK_PYTHON"] == "./env/bin/python"
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    assert environment(load_project(spec))["PYSPARK_PYTHON"] == "mine"
