"""What people see of a pipeline: its status as a table, a plain line or JSON; datasets; rows."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ottla.cli.tables import print_table

if TYPE_CHECKING:
    from ottla.spark.pipeline.status import Status

CELL_MAX = 60


def status_document(status: Status) -> dict[str, Any]:
    return asdict(status)


def heading(status: Status) -> str:
    text = f"{status.pipeline}: {status.state}"
    if status.restarts:
        text += f", started again {status.restarts} times"
    if status.error:
        text += f"\n  last failure: {status.error}"
    if status.next_try_ms:
        seconds = max(0, status.next_try_ms - time.time_ns() // 1_000_000) / 1000
        text += f"\n  next attempt in {seconds:.0f} s"
    return text


def flow_rows(status: Status) -> list[tuple[Any, ...]]:
    return [
        (
            name,
            flow.target,
            flow.batch if flow.batch >= 0 else "-",
            flow.rows,
            f"{flow.rows_per_second:,.0f}",
            "-" if flow.lag is None else flow.lag,
            f"{flow.batch_ms} ms",
            flow.watermark or "-",
        )
        for name, flow in status.flows.items()
    ]


FLOW_COLUMNS = ["FLOW", "TARGET", "BATCH", "ROWS", "ROWS/S", "LAG", "BATCH TIME", "WATERMARK"]


def print_status(status: Status) -> None:
    sys.stdout.write(f"{heading(status)}\n")
    if status.flows:
        print_table(FLOW_COLUMNS, flow_rows(status))
    unmet = [
        (name, what.rpartition(".")[0], flow.expectations.get(rows, 0), count)
        for name, flow in status.flows.items()
        for what, count in flow.expectations.items()
        if what.endswith(".unmet")
        for rows in [what.removesuffix("unmet") + "rows"]
    ]
    if unmet:
        print_table(["FLOW", "EXPECTATION", "ROWS", "UNMET"], unmet)


def progress_line(status: Status) -> str:
    """For a log: one line for all flows."""
    parts = [
        f"{name} batch {flow.batch} rows {flow.rows}"
        + ("" if flow.lag is None else f" lag {flow.lag}")
        for name, flow in status.flows.items()
        if flow.batch >= 0
    ]
    return f"{status.pipeline} {status.state}: {', '.join(parts) or 'no batch yet'}"


def show_datasets(datasets: list[dict[str, Any]]) -> None:
    print_table(
        ["DATASET", "KIND", "FORMAT", "FLOWS", "COLUMNS"],
        [
            (
                one["name"],
                one["kind"],
                one["format"] or "-",
                ", ".join(one["flows"]),
                _short(", ".join(column["name"] for column in one["columns"])),
            )
            for one in datasets
        ],
    )


def show_rows(answer: dict[str, Any]) -> None:
    names = [column["name"] for column in answer["columns"]]
    rows = [tuple(_short(str(row.get(name))) for name in names) for row in answer["rows"]]
    print_table(names, rows)


def _short(text: str) -> str:
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"
