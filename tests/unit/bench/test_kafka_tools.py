"""Goal: figures are taken from the right places of what Kafka's tools print.
Method: lines as Apache Kafka 4.3.1 printed them.
"""

from __future__ import annotations

import pytest

from bench.kafka_tools import ToolFailed, consume_figures, end_to_end_figures, produce_figures

PRODUCED = """\
302145 records sent, 60429.0 records/sec (59.01 MB/sec), 501.2 ms avg latency, 950.0 ms max latency.
800000 records sent, 87912.1 records/sec (85.85 MB/sec), 341.52 ms avg latency, 712.00 ms max \
latency, 340 ms 50th, 521 ms 95th, 640 ms 99th, 700 ms 99.9th.
"""
CONSUMED = (
    "2026-01-01 10:00:00:100, 2026-01-01 10:00:05:200, 1464.8438, 287.2243, 1500000, "
    "294117.6471, 500, 4600, 318.4443, 326086.9565\n"
)
ROUNDS = "0\t1.9\nAvg latency: 0.5412 ms\nPercentiles: 50th = 0, 99th = 3, 99.9th = 11\n"


def test_the_last_line_of_the_producer_counts() -> None:
    assert produce_figures(PRODUCED) == {"mb_per_s": 85.85, "p50_ms": 340.0, "p99_ms": 640.0}


def test_the_consumer() -> None:
    found = consume_figures(CONSUMED, 1_500_000)
    assert found == {"mb_per_s": 287.2243, "fetch_mb_per_s": 318.4443}


def test_a_consumer_that_did_not_get_everything_has_no_figure() -> None:
    with pytest.raises(ToolFailed):
        consume_figures(CONSUMED, 1_500_001)


def test_end_to_end() -> None:
    assert end_to_end_figures(ROUNDS) == {
        "average_ms": 0.5412,
        "p50_ms": 0.0,
        "p99_ms": 3.0,
        "p999_ms": 11.0,
    }


def test_no_summary_is_a_failure_and_no_zero() -> None:
    with pytest.raises(ToolFailed):
        produce_figures(PRODUCED.splitlines()[0])
    with pytest.raises(ToolFailed):
        produce_figures("")
    with pytest.raises(ToolFailed):
        consume_figures("", 1)
    with pytest.raises(ToolFailed):
        end_to_end_figures("Avg latency: 1.0 ms\n")
