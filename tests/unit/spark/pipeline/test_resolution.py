"""Which views must stay as they are while streams run: those that a stream reads, and theirs."""

from __future__ import annotations

import pytest

from ottla.spark.pipeline.graph import SINK, TABLE, TEMPORARY, VIEW, Dataset, Flow
from ottla.spark.pipeline.resolution import Resolved, held_views


def one(kind: str, name: str, *reads: str) -> Resolved:
    flow = Flow(name, name, lambda: None)
    return Resolved(Dataset(kind, name), [flow], None, 0, frozenset(reads))


@pytest.mark.parametrize(
    ("datasets", "held"),
    [
        ([one(TABLE, "clean", "orders"), one(VIEW, "totals", "clean")], set()),
        ([one(VIEW, "products"), one(TABLE, "revenue", "products")], {"products"}),
        ([one(VIEW, "a"), one(VIEW, "b", "a"), one(SINK, "out", "b")], {"a", "b"}),
        ([one(VIEW, "a"), one(TEMPORARY, "t", "a"), one(SINK, "out", "t")], {"a"}),
    ],
)
def test_views_under_streams_are_held(datasets: list[Resolved], held: set[str]) -> None:
    assert held_views(datasets) == held
