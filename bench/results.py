"""The figures of a run: raw as measured, summed up as ratios, kept as JSON.

A ratio is made of two figures of the same round, so that what troubles the machine for a while
troubles both of them; its median over the rounds is what counts, its lowest and highest are shown.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.case import Case, Figure, Figures

OTTLA = "ottla"
KAFKA = "kafka"


@dataclass
class Outcome:
    """One case: figures by side for each round, and what went wrong."""

    case: Case
    rounds: list[dict[str, Figures]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    is_left_out: bool = False  # in some round, because the time was up


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: Case
    figure: Figure
    ottla: float
    kafka: float
    ratio: float
    lowest: float
    highest: float
    rounds: int

    def is_reached(self) -> bool | None:
        return self.figure.is_reached_by(self.ratio)


@dataclass
class Results:
    facts: Mapping[str, Any]
    quick: bool
    outcomes: list[Outcome]

    def errors(self) -> list[str]:
        return [error for outcome in self.outcomes for error in outcome.errors]

    def left_out(self) -> list[str]:
        return [outcome.case.name for outcome in self.outcomes if outcome.is_left_out]


def rows_of(outcomes: Iterable[Outcome]) -> list[Row]:
    """Only what both sides have figures for."""
    rows = []
    for outcome in outcomes:
        both = [found for found in outcome.rounds if OTTLA in found and KAFKA in found]
        if both:
            known = [figure for figure in outcome.case.figures if _is_in(figure, both)]
            rows += [_row(outcome.case, figure, both) for figure in known]
    return rows


def _is_in(figure: Figure, rounds: list[dict[str, Figures]]) -> bool:
    """A run that is printed again may be older than one of the figures."""
    return all(figure.key in figures for found in rounds for figures in found.values())


def _row(case: Case, figure: Figure, rounds: list[dict[str, Figures]]) -> Row:
    ottla = [found[OTTLA][figure.key] for found in rounds]
    kafka = [found[KAFKA][figure.key] for found in rounds]
    ratios = ottla if figure.own else [_ratio(*pair) for pair in zip(ottla, kafka, strict=True)]
    return Row(
        case,
        figure,
        ottla=statistics.median(ottla),
        kafka=statistics.median(kafka),
        ratio=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        rounds=len(rounds),
    )


def _ratio(ottla: float, kafka: float) -> float:
    """A processor that was idle on both sides is no difference."""
    if kafka == 0:
        return 1.0 if ottla == 0 else float("inf")
    return ottla / kafka


def to_json(results: Results) -> str:
    """Everything that was measured, and beside it what the table says."""
    value = {
        "quick": results.quick,
        "facts": results.facts,
        "cases": [_case_json(outcome) for outcome in results.outcomes],
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _case_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.case.name,
        "title": outcome.case.title,
        "issue": outcome.case.issue,
        "rounds": outcome.rounds,
        "errors": outcome.errors,
        "left_out": outcome.is_left_out,
        "ratios": {
            row.figure.key: {
                "median": round(row.ratio, 4),
                "lowest": round(row.lowest, 4),
                "highest": round(row.highest, 4),
                "target": row.figure.target(),
                "reached": row.is_reached(),
            }
            for row in rows_of([outcome])
        },
    }


def read_results(path: Path, cases: Iterable[Case]) -> Results:
    """A run from its file, to print it again. Cases that are no longer known are left out."""
    known = {case.name: case for case in cases}
    value = json.loads(path.read_text())
    outcomes = [
        Outcome(known[entry["name"]], entry["rounds"], entry["errors"], entry["left_out"])
        for entry in value["cases"]
        if entry["name"] in known
    ]
    return Results(value["facts"], value["quick"], outcomes)
