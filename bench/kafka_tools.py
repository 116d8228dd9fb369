"""Kafka's own perf tools as loads: how they are called, and what they print.

The JVM of a tool starts before anything is timed by the tool itself; the broker's processor time is
read around the whole run, since a tool that only starts asks nothing of it.
"""

from __future__ import annotations

import re
import subprocess
from typing import Protocol

from bench.brokers import Broker
from bench.errors import BenchError
from bench.kafka_jars import jars_directory

TOOL_SECONDS_MAX = 300
_TOOLS = "org.apache.kafka.tools."
_MEGABYTES_PER_S = re.compile(r"\(([\d.]+) MB/sec\)")
_PRODUCE_PERCENTILE = re.compile(r"([\d.]+) ms (50th|99th)")
_AVERAGE_MS = re.compile(r"Avg latency: ([\d.]+) ms")
_END_TO_END_PERCENTILES = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+), 99\.9th = ([\d.]+)")


class ToolFailed(BenchError):
    """A tool ended with an error, or printed something that is no result."""


class Measured(Protocol):
    """A broker, or a cluster of them."""

    @property
    def bootstrap(self) -> str: ...
    def cpu_seconds(self) -> float: ...


def producer_performance(
    broker: Measured, topic: str, *, records: int, size: int, properties: tuple[str, ...] = ()
) -> dict[str, float]:
    before = broker.cpu_seconds()
    printed = _run(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
        *("--throughput", "-1", "--bootstrap-server", broker.bootstrap),
        *("--command-property", "acks=all", *properties),
    )
    used = broker.cpu_seconds() - before
    return {**produce_figures(printed), "cpu_s_per_gib": used / (records * size / 2**30)}


def consumer_performance(
    broker: Broker, topic: str, *, records: int, size: int
) -> dict[str, float]:
    before = broker.cpu_seconds()
    printed = _run(
        "ConsumerPerformance",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic),
        *("--num-records", str(records), "--timeout", "60000", "--hide-header"),
    )
    used = broker.cpu_seconds() - before
    return {**consume_figures(printed, records), "cpu_s_per_gib": used / (records * size / 2**30)}


def end_to_end_latency(
    broker: Measured, topic: str, *, records: int, size: int
) -> dict[str, float]:
    before = broker.cpu_seconds()
    printed = _run(
        "EndToEndLatency",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic),
        *("--num-records", str(records), "--producer-acks", "all", "--record-size", str(size)),
    )
    used = broker.cpu_seconds() - before
    return {**end_to_end_figures(printed), "cpu_ms_per_round": used / records * 1e3}


def produce_figures(printed: str) -> dict[str, float]:
    """The last line sums up; those before it are intervals."""
    last = printed.strip().splitlines()[-1] if printed.strip() else ""
    speed = _MEGABYTES_PER_S.search(last)
    percentiles = {name: float(value) for value, name in _PRODUCE_PERCENTILE.findall(last)}
    if speed is None or set(percentiles) != {"50th", "99th"}:
        raise ToolFailed(f"no summary in: {printed[-300:]}")
    return {
        "mb_per_s": float(speed.group(1)),
        "p50_ms": percentiles["50th"],
        "p99_ms": percentiles["99th"],
    }


def consume_figures(printed: str, records: int) -> dict[str, float]:
    """start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, ..."""
    lines = printed.strip().splitlines()
    fields = [field.strip() for field in lines[-1].split(",")] if lines else []
    if len(fields) < 9 or int(fields[4]) < records:
        raise ToolFailed(f"not all of {records} records in: {printed[-300:]}")
    return {"mb_per_s": float(fields[3]), "fetch_mb_per_s": float(fields[8])}


def end_to_end_figures(printed: str) -> dict[str, float]:
    average, percentiles = _AVERAGE_MS.search(printed), _END_TO_END_PERCENTILES.search(printed)
    if average is None or percentiles is None:
        raise ToolFailed(f"no summary in: {printed[-300:]}")
    p50, p99, p999 = (float(value) for value in percentiles.groups())
    return {"average_ms": float(average.group(1)), "p50_ms": p50, "p99_ms": p99, "p999_ms": p999}


def _run(tool: str, *arguments: str) -> str:
    command = ["java", "-Xmx512m", "-cp", f"{jars_directory()}/*", _TOOLS + tool, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        raise ToolFailed(
            f"{tool} ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}"
        )
    return done.stdout
