"""Goal: a ratio says what the rounds said. Method: figures small enough to reckon by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.results import KAFKA, OTTLA, Outcome, read_results, rows_of, to_json
from tests.unit.bench.runs import CPU, PLAIN, SPEED, TIMES, a_case, an_outcome, results_of


def test_a_ratio_is_made_within_a_round_and_its_median_counts() -> None:
    """The medians of the two sides divided (300/100) would be another figure."""
    ottla = [{"mb_per_s": value} for value in (100.0, 300.0, 900.0)]
    kafka = [{"mb_per_s": value} for value in (10.0, 300.0, 100.0)]
    (row,) = rows_of([an_outcome(a_case(SPEED), ottla, kafka)])
    assert (row.ratio, row.lowest, row.highest, row.rounds) == (9.0, 1.0, 10.0, 3)
    assert (row.ottla, row.kafka) == (300.0, 100.0)


@pytest.mark.parametrize(
    ("ottla", "reached"), [(1.29, False), (1.3, True), (2.0, True)], ids=["below", "at", "above"]
)
def test_at_least(ottla: float, reached: bool) -> None:
    outcome = an_outcome(a_case(SPEED), [{"mb_per_s": ottla}], [{"mb_per_s": 1.0}])
    assert [row.is_reached() for row in rows_of([outcome])] == [reached]


@pytest.mark.parametrize(
    ("ottla", "reached"), [(0.1, True), (0.35, True), (0.36, False)], ids=["below", "at", "above"]
)
def test_at_most(ottla: float, reached: bool) -> None:
    outcome = an_outcome(a_case(CPU), [{"cpu_s_per_gib": ottla}], [{"cpu_s_per_gib": 1.0}])
    assert [row.is_reached() for row in rows_of([outcome])] == [reached]


def test_a_figure_without_target_is_never_judged() -> None:
    outcome = an_outcome(a_case(PLAIN), [{"p50_ms": 9.0}], [{"p50_ms": 1.0}])
    assert [row.is_reached() for row in rows_of([outcome])] == [None]


def test_a_figure_of_a_broker_against_itself_is_not_divided_by_kafkas() -> None:
    outcome = an_outcome(a_case(TIMES), [{"times": 1.6}], [{"times": 8.0}])
    (row,) = rows_of([outcome])
    assert (row.ratio, row.kafka, row.is_reached()) == (1.6, 8.0, False)


@pytest.mark.parametrize(("ottla", "ratio"), [(0.0, 1.0), (0.1, float("inf"))])
def test_nothing_used_by_kafka(ottla: float, ratio: float) -> None:
    outcome = an_outcome(a_case(CPU), [{"cpu_s_per_gib": ottla}], [{"cpu_s_per_gib": 0.0}])
    assert [row.ratio for row in rows_of([outcome])] == [ratio]


def test_a_round_that_one_side_did_not_finish_is_left_out() -> None:
    outcome = Outcome(a_case(SPEED))
    outcome.rounds = [
        {OTTLA: {"mb_per_s": 5.0}},
        {OTTLA: {"mb_per_s": 2.0}, KAFKA: {"mb_per_s": 1.0}},
    ]
    assert [(row.ratio, row.rounds) for row in rows_of([outcome])] == [(2.0, 1)]
    assert rows_of([Outcome(a_case(SPEED), [{}])]) == []


def test_json_keeps_every_round_and_can_be_read_again(tmp_path: Path) -> None:
    case = a_case(SPEED, PLAIN)
    ottla = [{"mb_per_s": 10.0, "p50_ms": 1.0, "extra": 7.0}, {"mb_per_s": 12.0, "p50_ms": 2.0}]
    kafka = [{"mb_per_s": 5.0, "p50_ms": 4.0}, {"mb_per_s": 4.0, "p50_ms": 4.0}]
    results = results_of(an_outcome(case, ottla, kafka))
    results.outcomes[0].errors.append("round 3 produce kafka: gone")
    results.outcomes[0].is_left_out = True
    path = tmp_path / "run.json"
    path.write_text(to_json(results))
    value = json.loads(path.read_text())
    assert value["cases"][0]["rounds"][0][OTTLA]["extra"] == 7.0
    assert value["cases"][0]["ratios"]["mb_per_s"] == {
        "median": 2.5,
        "lowest": 2.0,
        "highest": 3.0,
        "target": "≥ 1.3",
        "reached": True,
    }
    assert read_results(path, [case]) == results
    assert read_results(path, []).outcomes == []
