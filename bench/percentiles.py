"""Averages and percentiles of latencies, by nearest rank: every figure is one that was seen."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed; `ordered` rises."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def latency_figures(latencies_s: Sequence[float]) -> dict[str, float]:
    """In milliseconds, under the names that the cases use."""
    ordered = sorted(latencies_s)
    return {
        "average_ms": sum(ordered) / len(ordered) * 1e3,
        "p50_ms": percentile(ordered, 0.50) * 1e3,
        "p99_ms": percentile(ordered, 0.99) * 1e3,
        "p999_ms": percentile(ordered, 0.999) * 1e3,
    }
