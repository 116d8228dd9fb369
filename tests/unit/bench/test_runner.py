"""Goal: sides take turns, a failure costs one figure, a dead broker ends the run.
Method: sides that start no process, cases that write down when they were called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from bench.brokers import BrokerFailed
from bench.case import BLOCKS, CROWDED, MAIN, Case, Figures
from bench.errors import BenchError
from bench.progress import Steps
from bench.results import KAFKA, OTTLA, Outcome, rows_of
from bench.runner import Plan, Runner
from bench.side import Side
from bench.sizes import QUICK, Sizes
from tests.unit.bench.runs import SPEED

Called = list[tuple[str, str]]


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Side, Side]:
    monkeypatch.setattr(os, "sync", lambda: None)  # a machine at work would make the tests wait
    both = (Side(OTTLA, "ottla", tmp_path / "a"), Side(KAFKA, "kafka", tmp_path / "b"))
    for side in both:
        monkeypatch.setattr(side.broker, "expect_alive", lambda: None)
    return both


def noting(called: Called, name: str, block: str = MAIN) -> Case:
    def run(side: Side, sizes: Sizes) -> Figures:
        called.append((name, side.label))
        return {"mb_per_s": 2.0 if side.label == OTTLA else 1.0}

    return Case(name, name, 3, (SPEED,), run, block=block)


def failing(on: str, error: Exception) -> Case:
    def run(side: Side, sizes: Sizes) -> Figures:
        if side.label == on:
            raise error
        return {"mb_per_s": 1.0}

    return Case("failing", "failing", 3, (SPEED,), run)


def measure(
    sides: tuple[Side, Side], *cases: Case, rounds: int = 1, seconds_max: float | None = None
) -> list[Outcome]:
    plan = Plan(cases, rounds, QUICK, seconds_max)
    with Steps(plan.step_count()) as steps:
        return Runner(sides, plan, steps).measure()


def test_who_comes_first_changes_with_every_round(sides: tuple[Side, Side]) -> None:
    called: Called = []
    outcomes = measure(sides, noting(called, "a"), noting(called, "b"), rounds=2)
    first = [("a", OTTLA), ("a", KAFKA), ("b", OTTLA), ("b", KAFKA)]
    second = [("a", KAFKA), ("a", OTTLA), ("b", KAFKA), ("b", OTTLA)]
    assert called == first + second
    assert [(row.ratio, row.rounds) for row in rows_of(outcomes)] == [(2.0, 2), (2.0, 2)]


def test_cases_with_brokers_beside_come_after_all_rounds_of_the_others(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: Called = []
    for side in sides:
        monkeypatch.setattr(side, "close_beside", closing(called, side))
    crowded, plain = noting(called, "crowded", CROWDED), noting(called, "plain")
    measure(sides, crowded, plain, rounds=2)
    names = [name for name, label in called if label == OTTLA]
    rest = ["closed"] * (len(BLOCKS) - 2)
    assert names == ["plain", "plain", "closed", "crowded", "crowded", "closed", *rest]


def closing(called: Called, side: Side) -> Callable[[], None]:
    return lambda: called.append(("closed", side.label))


@pytest.mark.parametrize("error", [BenchError("no"), OSError("no"), BrokerFailed("no")])
def test_a_failure_costs_one_figure(sides: tuple[Side, Side], error: Exception) -> None:
    called: Called = []
    outcomes = measure(sides, failing(KAFKA, error), noting(called, "after"))
    assert outcomes[0].errors == ["round 1 failing kafka: no"]
    assert outcomes[0].rounds == [{OTTLA: {"mb_per_s": 1.0}}]
    assert [name for name, _ in called] == ["after", "after"]


def test_a_mistake_of_the_harness_shows_itself(sides: tuple[Side, Side]) -> None:
    with pytest.raises(KeyError):
        measure(sides, failing(OTTLA, KeyError("mb_per_s")))


def test_a_broker_that_has_ended_ends_the_run_with_what_was_found(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead() -> NoReturn:
        raise BrokerFailed("kafka has ended")

    called: Called = []
    monkeypatch.setattr(sides[1].broker, "expect_alive", dead)
    outcomes = measure(sides, noting(called, "a"), noting(called, "b"), rounds=2)
    assert [name for name, _ in called] == ["a", "a"]
    assert outcomes[0].errors == ["kafka has ended"]
    assert len(rows_of(outcomes)) == 1


def test_when_the_time_is_up_nothing_more_is_started(sides: tuple[Side, Side]) -> None:
    called: Called = []
    outcomes = measure(sides, noting(called, "a"), seconds_max=-1)
    assert called == []
    assert [outcome.is_left_out for outcome in outcomes] == [True]


def test_off_a_terminal_each_step_is_a_line(
    sides: tuple[Side, Side], capsys: pytest.CaptureFixture[str]
) -> None:
    measure(sides, noting([], "a"), failing(OTTLA, BenchError("it said no")))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" s  ")[1] for line in lines] == [
        "round 1 a ottla: throughput 2.00 MB/s",
        "round 1 a kafka: throughput 1.00 MB/s",
        "round 1 failing ottla: failed: it said no",
        "round 1 failing kafka: throughput 1.00 MB/s",
    ]
