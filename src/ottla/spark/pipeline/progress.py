"""From Spark's reports of batches to the status of flows. Pure, on plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla.spark.errors import OffsetError
from ottla.spark.offsets import NOTES, Position, position_of
from ottla.spark.pipeline.status import FlowStatus


def take_progress(flow: FlowStatus, report: Mapping[str, Any]) -> None:
    """`report` is a StreamingQueryProgress, as its JSON has it."""
    flow.batch = int(report["batchId"])
    flow.batches += 1
    flow.rows += int(report.get("numInputRows", 0))
    flow.rows_per_second = float(report.get("processedRowsPerSecond") or 0.0)
    flow.batch_ms = int(report.get("durationMs", {}).get("triggerExecution", 0))
    flow.watermark = str(report.get("eventTime", {}).get("watermark", ""))
    lags: list[int | None] = []
    groups: list[str] = []
    for source in report.get("sources", ()):
        end = _position(source.get("endOffset"))
        if end is None:
            continue
        latest = _position(source.get("latestOffset"))
        lags.append(None if latest is None else _lag(end, latest))
        groups += [end.group_id] if end.group_id else []
    known = [lag for lag in lags if lag is not None]
    flow.lag = sum(known) if known and len(known) == len(lags) else None
    flow.groups = sorted(set(groups))
    for name, counts in (report.get("observedMetrics") or {}).items():
        for what, count in counts.items():
            key = f"{name}.{what}"
            flow.expectations[key] = flow.expectations.get(key, 0) + int(count or 0)


def _lag(end: Position, latest: Position) -> int:
    return sum(
        max(0, offset - end.next_offsets.get(place, offset))
        for place, offset in latest.next_offsets.items()
    )


def _position(given: Any) -> Position | None:
    """Spark gives offsets as JSON, or as JSON within it."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    if not isinstance(given, dict) or NOTES not in given:
        return None
    try:
        return position_of(given)
    except OffsetError:
        return None
