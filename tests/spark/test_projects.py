"""A project is Spark's own: its loader takes the examples, and what `ottla pipeline init` makes,
and finds in them what ours finds. `tests/chaos/spark/projects.py` runs both, compares the tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from ottla.spark import defaults
from ottla.spark.pipeline.graph import Registry, load_graph
from ottla.spark.pipeline.project import find_project
from ottla.spark.pipeline.scaffold import make_project
from tests.spark.test_examples import EXAMPLES


def found_by_ours(root: Path) -> Any:
    graph = load_graph(find_project(root), MagicMock())
    return graph.datasets, sorted((flow.name, flow.target) for flow in graph.flows)


def found_by_sparks(root: Path) -> Any:
    from pyspark.pipelines import cli

    path = cli.find_pipeline_spec(root)
    registry = Registry(MagicMock())
    cli.register_definitions(path, registry, cli.load_pipeline_spec(path), MagicMock(), "graph")
    graph = registry.graph
    return graph.datasets, sorted((flow.name, flow.target) for flow in graph.flows)


@pytest.mark.parametrize("project", ["orders", "sessions", "new"])
def test_sparks_own_loader_finds_what_ours_finds(
    project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(defaults.DEAD_LETTERS, "dead-letters")
    root = EXAMPLES / project
    if project == "new":
        root = tmp_path / "shop"
        make_project(tmp_path, "shop", "127.0.0.1:9092")
    datasets, flows = found_by_ours(root)
    theirs = found_by_sparks(root)
    assert theirs == (datasets, flows)
    assert flows
