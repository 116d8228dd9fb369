"""Looks at a project in a session of its own: what it defines, and what a flow would give.

A process that ends by itself, and at once when nobody waits for it any more (its input ends); its
answer is JSON in a file, since Spark writes to the outputs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from ottla.spark.defaults import PREVIEW_ROWS
from ottla.spark.pipeline.engine import SLOW_STARTS_MAX, TOO_SLOW, reason_of
from ottla.spark.pipeline.graph import SINK, TEMPORARY, VIEW, Graph, load_graph
from ottla.spark.pipeline.project import Project, ProjectError, find_project
from ottla.spark.pipeline.resolution import Resolved, resolve
from ottla.spark.pipeline.session import open_session


def describe(project: Project, spark: Any) -> dict[str, Any]:
    """Every dataset with its columns; raises ProjectError for what does not fit together."""
    graph = load_graph(project, spark)
    resolved = resolve(project, graph, spark)
    found = [
        {
            "name": one.dataset.name,
            "kind": one.dataset.kind,
            "format": "" if one.dataset.kind == TEMPORARY else one.dataset.format,
            "flows": [flow.name for flow in one.flows],
            "level": one.level,
            "reads": sorted(one.reads),
            "columns": _columns(one.rows),
        }
        for one in resolved
    ]
    return {"pipeline": project.name, "datasets": found}


def preview(project: Project, spark: Any, name: str, rows_max: int) -> dict[str, Any]:
    """The first rows that a flow, table or view would give, from the first records on. Nothing is
    written where the pipeline writes."""
    graph = load_graph(project, spark)
    resolved = resolve(project, graph, spark)
    rows = _rows_of(name, graph, resolved, spark)
    if rows.isStreaming:
        rows = _taken(rows, spark)
    found = [row.asDict(recursive=True) for row in rows.limit(rows_max).collect()]
    return {"name": name, "columns": _columns(rows), "rows": found}


def _rows_of(name: str, graph: Graph, resolved: list[Resolved], spark: Any) -> Any:
    for flow in graph.flows:
        # A flow of a table's own name means the table, with what other flows bring.
        is_single = graph.datasets[flow.target].kind in (SINK, VIEW, TEMPORARY)
        if flow.name == name and (is_single or name not in graph.datasets):
            return flow.query()
    for one in resolved:
        if name in (one.dataset.name, one.name):
            return one.rows
    known = sorted({flow.name for flow in graph.flows} | set(graph.datasets))
    raise ProjectError(f"there is no {name}; there are {', '.join(known)}")


def _taken(rows: Any, spark: Any) -> Any:
    """What a stream gives of the records that a preview may read."""
    for tries in range(1, SLOW_STARTS_MAX + 1):
        with tempfile.TemporaryDirectory(prefix="ottla-preview-") as checkpoint:
            query = (
                rows.writeStream.format("memory")
                .queryName(f"preview_{tries}")
                .outputMode("append")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            try:
                query.awaitTermination()
            except Exception as failure:
                if TOO_SLOW not in str(failure) or tries == SLOW_STARTS_MAX:
                    raise
            else:
                return spark.table(f"preview_{tries}")
    raise AssertionError


def _columns(rows: Any) -> list[dict[str, str]]:
    return [{"name": one.name, "type": one.dataType.simpleString()} for one in rows.schema]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("project")
    parser.add_argument("answer")
    parser.add_argument("--preview")
    parser.add_argument("--rows", type=int, default=20)
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    threading.Thread(target=_end_with_input, name="input", daemon=True).start()
    project = find_project(Path(given.project))
    if given.preview:
        # A flow may leave most of what it reads out: it may look at more than it shows.
        os.environ[PREVIEW_ROWS] = str(max(1000, given.rows * 10))
    spark = open_session(project)
    try:
        if given.preview:
            answer = preview(project, spark, given.preview, given.rows)
        else:
            answer = describe(project, spark)
    except Exception as failure:  # whatever it is, it is the answer
        answer = {"error": reason_of(failure)}
    finally:
        spark.stop()
    Path(given.answer).write_text(json.dumps(answer, default=_plain))
    return 1 if "error" in answer else 0


def _end_with_input() -> None:
    """Nothing is ever written to it. Spark's JVM ends when this process does, by the same means."""
    os.read(0, 1)
    os._exit(1)


def _plain(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
