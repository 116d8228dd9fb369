"""From flows to DataFrames: which flow needs whose rows, and in what order they can be made.

A flow is asked for its DataFrame; if it names a dataset that is not there yet, it waits for the
next round. So rounds are levels: what a flow reads is made in an earlier one. Tables that an
earlier run has left are put back into the catalog from their files, since the session's catalog
lives no longer than the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException

from ottla.spark.pipeline.graph import SINK, TABLE, TEMPORARY, VIEW, Dataset, Flow, Graph
from ottla.spark.pipeline.project import Project, ProjectError

_MISSING = "TABLE_OR_VIEW_NOT_FOUND"
# How a plan names a dataset that it reads: with its catalog and database, or a view without.
_READ = re.compile(r"SubqueryAlias (?:[^\s.]+\.)*([^\s.]+)")
_NEEDS_ROCKSDB = "TransformWithState"


@dataclass(slots=True)
class Resolved:
    """`flows` with one target, and the rows for it."""

    dataset: Dataset
    flows: list[Flow]
    rows: Any
    level: int
    reads: frozenset[str] = field(default=frozenset())

    @property
    def name(self) -> str:
        """Of its query and its checkpoint: the same however many flows there are."""
        return self.dataset.name if self.dataset.kind == TABLE else self.flows[0].name

    @property
    def is_streaming(self) -> bool:
        return self.dataset.kind in (TABLE, SINK)


def resolve(project: Project, graph: Graph, spark: Any) -> list[Resolved]:
    """Everything, in the order of levels."""
    waiting = _by_target(graph)
    found: list[Resolved] = []
    level = 0
    while waiting:
        ready: list[Resolved] = []
        failure: Exception | None = None
        for dataset, flows in list(waiting):
            try:
                rows = rows_of(flows)
            except AnalysisException as wrong:
                if not _waits_for(wrong, graph):
                    raise ProjectError(f"{flows[0].name}: {_brief(wrong)}") from wrong
                failure = wrong
                continue
            waiting.remove((dataset, flows))
            if dataset.kind == TEMPORARY:
                rows.createOrReplaceTempView(dataset.name)
            one = Resolved(dataset, flows, rows, level, _reads(rows, graph))
            _check(one)
            ready.append(one)
        if not ready and failure is not None:
            names = ", ".join(flows[0].name for _, flows in waiting)
            raise ProjectError(f"{names}: {_brief(failure)}") from failure
        for one in ready:
            _put_into_catalog(project, one, spark)
        found += ready
        level += 1
    _check_names(found)
    return found


def _check_names(resolved: list[Resolved]) -> None:
    names = [one.name for one in resolved if one.is_streaming]
    for name in names:
        if names.count(name) > 1:
            raise ProjectError(f"a table and a flow have the name {name}: rename one of them")


def _by_target(graph: Graph) -> list[tuple[Dataset, list[Flow]]]:
    """Flows into one table are one query: two would each take the other's files for their own."""
    found: list[tuple[Dataset, list[Flow]]] = []
    for dataset in graph.datasets.values():
        flows = [flow for flow in graph.flows if flow.target == dataset.name]
        if dataset.kind == TABLE:
            if flows:
                found.append((dataset, flows))
        else:
            found += [(dataset, [flow]) for flow in flows]
    return found


def held_views(resolved: Iterable[Resolved]) -> set[str]:
    """Views that a stream reads: its plan holds on to their files, so that they must stay as they
    are while it runs."""
    reads = {one.dataset.name: one.reads for one in resolved if not one.is_streaming}
    views = {one.dataset.name for one in resolved if one.dataset.kind == VIEW}
    wanted = set[str]().union(*(one.reads for one in resolved if one.is_streaming))
    while more := set[str]().union(*(reads.get(name, ()) for name in wanted)) - wanted:
        wanted |= more
    return wanted & views


def _reads(rows: Any, graph: Graph) -> frozenset[str]:
    return frozenset(_READ.findall(_plan(rows))) & graph.datasets.keys()


def needs_rocksdb(rows: Any) -> bool:
    """Spark runs transformWithState on that store alone, and has another one by default. A query
    keeps the store that it began with, so a setting that comes after the error comes too late."""
    return _NEEDS_ROCKSDB in _plan(rows)


def _plan(rows: Any) -> str:
    return str(rows._jdf.queryExecution().analyzed().toString())


def rows_of(flows: list[Flow]) -> Any:
    rows = flows[0].query()
    for flow in flows[1:]:
        rows = rows.unionByName(flow.query(), allowMissingColumns=True)
    return rows


def _check(one: Resolved) -> None:
    name = one.flows[0].name
    if one.is_streaming and not one.rows.isStreaming:
        raise ProjectError(f"{name} fills a {one.dataset.kind} and must read a stream: readStream")
    if one.dataset.kind == VIEW and one.rows.isStreaming:
        raise ProjectError(f"{name} is a materialized view and must read tables: spark.read")


def _put_into_catalog(project: Project, one: Resolved, spark: Any) -> None:
    dataset = one.dataset
    if dataset.kind not in (TABLE, VIEW) or spark.catalog.tableExists(dataset.name):
        return
    path = project.table_path(dataset.name)
    _make_directory(spark, path)  # of an empty table, too, somebody may read a stream
    schema = one.rows.schema
    spark.catalog.createTable(dataset.name, path=path, source=dataset.format, schema=schema)


def is_begun(spark: Any, checkpoint: str) -> bool:
    """Whether a query has written down where a batch of it ends."""
    path, files = _on_storage(spark, f"{checkpoint}/offsets")
    return bool(files.exists(path)) and len(files.listStatus(path)) > 0


def _make_directory(spark: Any, path: str) -> None:
    found, files = _on_storage(spark, path)
    files.mkdirs(found)


def _on_storage(spark: Any, path: str) -> tuple[Any, Any]:
    """On whatever file system it is."""
    found = spark._jvm.org.apache.hadoop.fs.Path(path)
    return found, found.getFileSystem(spark._jsc.hadoopConfiguration())


def _waits_for(wrong: AnalysisException, graph: Graph) -> bool:
    if wrong.getCondition() != _MISSING:
        return False
    parameters = wrong.getMessageParameters() or {}
    missing = parameters.get("relationName", "").replace("`", "")
    return missing in graph.datasets or missing.split(".")[-1] in graph.datasets


def _brief(wrong: Exception) -> str:
    """Spark's messages bring the plan along."""
    return str(wrong).split("\n\nJVM stacktrace")[0].split(";\n")[0].strip()[:1000]
