"""Goal: attempts come less and less often, within bounds, and not together with those of others."""

from __future__ import annotations

import pytest

from ottla.client.backoff import backoff_ms


def test_pauses_double_up_to_the_longest() -> None:
    assert [backoff_ms(100, 1_000, failures, 0.5) for failures in range(1, 7)] == [
        100,
        200,
        400,
        800,
        1_000,
        1_000,
    ]
    assert backoff_ms(100, 1_000, 10_000, 0.5) == 1_000, "however often it has failed"


def test_a_first_pause_that_is_longer_than_the_longest_stays() -> None:
    """As in Kafka's client (KIP-580)."""
    assert [backoff_ms(500, 100, failures, 0.5) for failures in (1, 2, 9)] == [500, 500, 500]


def test_chance_moves_a_pause_by_a_fifth() -> None:
    assert backoff_ms(100, 1_000, 1, 0.0) == pytest.approx(80)
    assert backoff_ms(100, 1_000, 1, 0.999_999) == pytest.approx(120, abs=0.01)
    assert backoff_ms(100, 1_000, 20, 0.999_999) == pytest.approx(1_200, abs=0.01)
