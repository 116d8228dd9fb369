"""Goal: sizes keep what the issue promises. Method: reckon them."""

from __future__ import annotations

from dataclasses import fields

from bench.sizes import FULL, QUICK


def test_three_gibibytes_warm_each_side_before_anything_counts() -> None:
    assert FULL.warm_up_bytes() >= 3 * 2**30


def test_nothing_is_larger_in_a_quick_run() -> None:
    for size in fields(FULL):
        assert getattr(QUICK, size.name) <= getattr(FULL, size.name), size.name


def test_the_crowds_have_the_size_of_the_table() -> None:
    assert (FULL.connections, FULL.partitions) == (1_000, 10_000)
    assert (FULL.reload_commits, FULL.lag_groups) == (1_000_000, 1_000)
