"""A pipeline's figures for Prometheus, from its status. Served by the runner, so that they are
there while an engine starts again."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

from ottla.spark.pipeline.project import SETTINGS_NAME, ProjectError, metrics_address
from ottla.spark.pipeline.status import RUNNING, FlowStatus, Status


def _seconds(flow: FlowStatus) -> float | None:
    if not flow.watermark:
        return None
    return datetime.datetime.fromisoformat(flow.watermark).timestamp()


_FLOW_FIGURES: tuple[tuple[str, str, Callable[[FlowStatus], float | None]], ...] = (
    ("rows", "Rows read since the engine started", lambda flow: flow.rows),
    ("batches", "Batches since the engine started", lambda flow: flow.batches),
    ("rows_per_second", "Rows a second of the last batch", lambda flow: flow.rows_per_second),
    ("batch_seconds", "How long the last batch took", lambda flow: flow.batch_ms / 1000),
    ("lag_records", "Records of its topics that are not read yet", lambda flow: flow.lag),
    ("watermark_seconds", "Event time up to which it is complete", _seconds),
)


class StatusCollector:
    """For a registry of prometheus_client: every scrape reads the status anew."""

    def __init__(self, read: Callable[[], Status]) -> None:
        self._read = read

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        status = self._read()
        name = status.pipeline
        up = GaugeMetricFamily("ottla_pipeline_up", "Whether it is running", labels=["pipeline"])
        up.add_metric([name], float(status.state == RUNNING))
        yield up
        restarts = GaugeMetricFamily(
            "ottla_pipeline_restarts", "Starts after a failure", labels=["pipeline"]
        )
        restarts.add_metric([name], status.restarts)
        yield restarts
        labels = ["pipeline", "flow"]
        for figure, text, value_of in _FLOW_FIGURES:
            family = GaugeMetricFamily(f"ottla_pipeline_{figure}", text, labels=labels)
            for flow, found in status.flows.items():
                value = value_of(found)
                if value is not None:
                    family.add_metric([name, flow], value)
            yield family
        expectations = GaugeMetricFamily(
            "ottla_pipeline_expectation_rows",
            "Rows that an expectation has seen, and those that did not meet it",
            labels=[*labels, "expectation"],
        )
        for flow, found in status.flows.items():
            for expectation, count in found.expectations.items():
                expectations.add_metric([name, flow, expectation], count)
        yield expectations


def serve(address: str, read: Callable[[], Status]) -> Callable[[], None]:
    """On host:port; what is returned ends it."""
    from prometheus_client import CollectorRegistry, start_http_server

    host, port = metrics_address(address)
    registry = CollectorRegistry()
    registry.register(StatusCollector(read))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as failure:
        raise ProjectError(
            f"metrics cannot be served on {address}: {failure.strerror}; set `metrics` in "
            f"{SETTINGS_NAME} to an address of this machine that is free"
        ) from failure

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
