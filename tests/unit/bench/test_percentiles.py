"""Goal: percentiles by nearest rank. Method: the definition, against random lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.percentiles import latency_figures, percentile


def test_known_ranks() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 0.999)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.5) == 7.0


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0.01, 1))
def test_it_is_the_smallest_value_that_covers_the_share(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-9
    assert sum(value < found for value in ordered) < share * len(ordered)


def test_milliseconds_of_unordered_seconds() -> None:
    figures = latency_figures([0.003, 0.001, 0.002])
    assert figures == {"average_ms": 2.0, "p50_ms": 2.0, "p99_ms": 3.0, "p999_ms": 3.0}
