"""From Spark's reports to the status of flows, and from there to Prometheus."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ottla.spark.pipeline.metrics import StatusCollector, serve
from ottla.spark.pipeline.progress import take_progress
from ottla.spark.pipeline.project import ProjectError
from ottla.spark.pipeline.status import FlowStatus, Status

NOTES = '"$ottla": {"ids": {"t": "x"}, "group": "g-1", "query": "q", "servers": "s"}'


def report(batch: int, end: str, latest: str, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": 10,
        "processedRowsPerSecond": 5.0,
        "durationMs": {"triggerExecution": 250},
        "sources": [{"endOffset": end, "latestOffset": latest}],
        **more,
    }


def test_a_report_becomes_figures() -> None:
    flow = FlowStatus("table")
    end, latest = f'{{"t": {{"0": 5}}, {NOTES}}}', f'{{"t": {{"0": 9, "1": 3}}, {NOTES}}}'
    take_progress(flow, report(0, end, latest))
    take_progress(
        flow,
        report(1, end, latest, eventTime={"watermark": "2026-01-01T00:00:00.000Z"}),
    )
    assert (flow.batch, flow.batches, flow.rows, flow.batch_ms) == (1, 2, 20, 250)
    assert flow.lag == 4  # of partitions that it knows
    assert flow.groups == ["g-1"]
    assert flow.watermark == "2026-01-01T00:00:00.000Z"


def test_sources_of_others_have_no_lag() -> None:
    flow = FlowStatus("table")
    take_progress(flow, report(0, '{"logOffset": 3}', "-"))
    assert flow.lag is None


def test_a_batch_that_is_done_again_says_nothing_of_lag() -> None:
    """After a restart: its end is from the checkpoint, and nobody has asked for more yet."""
    flow = FlowStatus("table", lag=7)
    take_progress(flow, report(0, f'{{"t": {{"0": 5}}, {NOTES}}}', "null"))
    assert flow.lag is None
    assert flow.groups == ["g-1"]


def test_expectations_are_counted() -> None:
    flow = FlowStatus("table")
    for _ in range(2):
        take_progress(
            flow, report(0, "-", "-", observedMetrics={"amount": {"rows": 10, "unmet": 2}})
        )
    assert flow.expectations == {"amount.rows": 20, "amount.unmet": 4}


def test_prometheus_sees_it_all() -> None:
    flow = FlowStatus("table", 3, 4, 100, 5.5, 250, 7, "2026-01-01T00:00:00.000Z")
    flow.expectations = {"amount.unmet": 2}
    status = Status("orders", "running", restarts=2, flows={"clean": flow})
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: status))
    text = generate_latest(registry).decode()
    for line in (
        'ottla_pipeline_up{pipeline="orders"} 1.0',
        'ottla_pipeline_restarts{pipeline="orders"} 2.0',
        'ottla_pipeline_lag_records{flow="clean",pipeline="orders"} 7.0',
        'ottla_pipeline_batch_seconds{flow="clean",pipeline="orders"} 0.25',
        'ottla_pipeline_watermark_seconds{flow="clean",pipeline="orders"} 1.7672256e+09',
        'expectation="amount.unmet"',
    ):
        assert line in text, text


def test_an_address_that_is_taken_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ProjectError, match=f"on {address}: .*`metrics` in ottla.yml"):
            serve(address, lambda: Status("shop"))
