"""What a project defines: datasets, sinks, and the flows that fill them.

A registry of our own takes Spark's decorators at their word (`pyspark.pipelines`, unmodified), so
the same files run here and under `spark-pipelines`. That registry is an inner interface of Spark:
the extra `spark` pins its minor version.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import MaterializedView, Sink, StreamingTable, TemporaryView

from ottla.base.errors import OttlaError
from ottla.spark.pipeline.project import Project, ProjectError
from ottla.spark.pipeline.sql_files import Statement, statements_of

TABLE, VIEW, TEMPORARY, SINK = "table", "view", "temporary", "sink"
FORMAT_DEFAULT = "parquet"


@dataclass(slots=True)
class Dataset:
    """`kind` is a streaming table, a materialized view, a temporary view or a sink."""

    kind: str
    name: str
    format: str = FORMAT_DEFAULT
    options: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()


@dataclass(slots=True)
class Flow:
    """`query` gives the rows that go to `target`."""

    name: str
    target: str
    query: Callable[[], Any]
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Graph:
    datasets: dict[str, Dataset] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)

    def add(self, dataset: Dataset) -> None:
        if dataset.name in self.datasets:
            raise ProjectError(f"{dataset.name} is defined twice")
        self.datasets[dataset.name] = dataset

    def check(self) -> None:
        if not self.flows:
            raise ProjectError("the project defines nothing: are there files in transformations/?")
        names = [flow.name for flow in self.flows]
        for flow in self.flows:
            if names.count(flow.name) > 1:
                raise ProjectError(f"two flows have the name {flow.name}")
            if flow.target not in self.datasets:
                raise ProjectError(f"flow {flow.name} goes to {flow.target}, which nobody defines")


class Registry(GraphElementRegistry):
    def __init__(self, spark: Any) -> None:
        self.graph = Graph()
        self._spark = spark

    def register_output(self, output: Any) -> None:
        self.graph.add(_dataset(output))

    def register_flow(self, flow: Any) -> None:
        self.graph.flows.append(Flow(flow.name, flow.target, flow.func, flow.spark_conf))

    def register_auto_cdc_flow(self, flow: Any) -> None:
        raise ProjectError(
            f"{flow.target}: Auto CDC needs tables that can be merged into, which parquet files "
            "cannot; run it under spark-pipelines with a catalog that has them"
        )

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        for statement in statements_of(sql_text, str(file_path)):
            self._take(statement)

    def _take(self, statement: Statement) -> None:
        if statement.kind != "flow":
            self.graph.add(
                Dataset(
                    statement.kind,
                    statement.name,
                    statement.format or FORMAT_DEFAULT,
                    partitions=statement.partitions,
                )
            )
        if statement.query:
            query = statement.query
            self.graph.flows.append(
                Flow(statement.name, statement.target, lambda: self._spark.sql(query))
            )


def _dataset(output: Any) -> Dataset:
    if isinstance(output, Sink):
        return Dataset(SINK, output.name, output.format, dict(output.options))
    if isinstance(output, TemporaryView):
        return Dataset(TEMPORARY, output.name)
    kinds = {MaterializedView: VIEW, StreamingTable: TABLE}
    for kind, name in kinds.items():
        if isinstance(output, kind):
            return Dataset(
                name,
                output.name,
                output.format or FORMAT_DEFAULT,
                dict(output.table_properties or {}),
                tuple(output.partition_cols or ()),
            )
    raise ProjectError(f"{output.name}: {type(output).__name__} is not known here")


def load_graph(project: Project, spark: Any) -> Graph:
    """Runs the definitions, in the project's directory, as Spark's own command does."""
    registry = Registry(spark)
    with _inside(project.root), graph_element_registration_context(registry):
        for path in project.files():
            if path.suffix == ".py":
                _run(path, path.relative_to(project.root), spark)
            elif path.suffix == ".sql":
                registry.register_sql(
                    path.read_text(encoding="utf-8"), path.relative_to(project.root)
                )
            else:
                raise ProjectError(f"{path.relative_to(project.root)}: only .py and .sql files")
    registry.graph.check()
    return registry.graph


def _run(path: Path, name: Path, spark: Any) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ProjectError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = spark
    try:
        spec.loader.exec_module(module)
    except OttlaError:
        raise  # says what is wrong, and what to do
    except Exception as failure:
        raise ProjectError(
            f"{name}, line {_line_in(path, failure)}: {type(failure).__name__}: {failure}"
        ) from failure


def _line_in(path: Path, failure: Exception) -> int:
    """Where in this file it happened; what it calls may have failed further on."""
    if isinstance(failure, SyntaxError):
        return failure.lineno or 0
    frames = traceback.extract_tb(failure.__traceback__)
    return next((one.lineno or 0 for one in reversed(frames) if one.filename == str(path)), 0)


@contextlib.contextmanager
def _inside(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
