"""Cases and results of a run that never happened, for the tests of this directory."""

from __future__ import annotations

from collections.abc import Sequence

from bench.case import Case, Figure, Figures
from bench.results import KAFKA, OTTLA, Outcome, Results
from bench.side import Side
from bench.sizes import Sizes

SPEED = Figure("mb_per_s", "throughput", "MB/s", at_least=1.3)
CPU = Figure("cpu_s_per_gib", "broker CPU", "s/GiB", at_most=0.35)
PLAIN = Figure("p50_ms", "p50", "ms")
TIMES = Figure("times", "busy client's p99", "times", at_most=1.5, own=True)


def not_run(side: Side, sizes: Sizes) -> Figures:
    raise AssertionError("this case is only looked at")


def a_case(*figures: Figure, name: str = "produce", title: str = "produce 1 KB") -> Case:
    return Case(name, title, 3, figures, not_run)


def an_outcome(case: Case, ottla: Sequence[Figures], kafka: Sequence[Figures]) -> Outcome:
    pairs = zip(ottla, kafka, strict=True)
    return Outcome(case, [{OTTLA: ours, KAFKA: theirs} for ours, theirs in pairs])


def results_of(*outcomes: Outcome, quick: bool = False) -> Results:
    facts = {"started": "2026-01-02T03:04:05+00:00", "commit": "abc", "kafka": "4.3.1", "cores": 2}
    return Results(facts, quick, list(outcomes))
