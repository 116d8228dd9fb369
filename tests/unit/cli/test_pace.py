"""Goal: --rate is kept on average and never made up for in a burst.
Method: a clock that the test moves.
"""

from __future__ import annotations

import pytest

from ottla.cli.pace import Pace


def test_records_are_due_one_step_after_another() -> None:
    pace = Pace(10, now_s=100.0)
    now_s, waits = 100.0, []
    for _ in range(4):
        waits.append(pace.wait_before_next(now_s))
        now_s += waits[-1]
    assert waits == pytest.approx([0, 0.1, 0.1, 0.1])


def test_a_small_delay_is_caught_up() -> None:
    pace = Pace(10, now_s=0.0)
    pace.wait_before_next(0.0)
    assert pace.wait_before_next(0.35) == 0
    assert pace.wait_before_next(0.35) == 0
    assert pace.wait_before_next(0.35) == 0
    assert pace.wait_before_next(0.35) == pytest.approx(0.05)


def test_a_long_delay_is_forgotten() -> None:
    pace = Pace(10, now_s=0.0)
    pace.wait_before_next(0.0)
    assert pace.wait_before_next(60.0) == 0
    assert pace.wait_before_next(60.0) == pytest.approx(0.1)
