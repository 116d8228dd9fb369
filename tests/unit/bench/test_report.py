"""Goal: the table says what was found and judges only full runs. Method: expected cells."""

from __future__ import annotations

import pytest

from bench.report import closing_lines, print_report, short, table_cells, to_markdown
from tests.unit.bench.runs import CPU, PLAIN, SPEED, a_case, an_outcome, results_of

CASE = a_case(SPEED, CPU, PLAIN)
OTTLA_ROUNDS = [
    {"mb_per_s": 110.0, "cpu_s_per_gib": 2.0, "p50_ms": 0.05},
    {"mb_per_s": 120.0, "cpu_s_per_gib": 5.0, "p50_ms": 0.05},
    {"mb_per_s": 130.0, "cpu_s_per_gib": 4.0, "p50_ms": 0.05},
]
KAFKA_ROUNDS = [{"mb_per_s": 80.0, "cpu_s_per_gib": 8.0, "p50_ms": 1.0}] * 3


def test_a_full_run_has_a_verdict_per_target() -> None:
    results = results_of(an_outcome(CASE, OTTLA_ROUNDS, KAFKA_ROUNDS))
    spread = "1.38 to 1.62"
    assert table_cells(results) == [
        ["produce 1 KB", "throughput", "120 MB/s", "80.0 MB/s", "1.50", spread, "≥ 1.3", "yes"],
        ["", "broker CPU", "4.00 s/GiB", "8.00 s/GiB", "0.50", "0.25 to 0.62", "≤ 0.35", "NO"],
        ["", "p50", "0.050 ms", "1.00 ms", "0.050", "0.050 to 0.050", "", ""],
    ]
    assert closing_lines(results) == ["1 of 2 targets reached"]


def test_a_quick_run_has_none() -> None:
    quick = results_of(an_outcome(CASE, OTTLA_ROUNDS[:1], KAFKA_ROUNDS[:1]), quick=True)
    assert table_cells(quick)[0] == [
        *("produce 1 KB", "throughput", "110 MB/s", "80.0 MB/s", "1.38", "", "≥ 1.3")
    ]
    assert closing_lines(quick)[-1].startswith("quick run")
    assert "reached" not in to_markdown(quick)


def test_failures_and_what_was_left_out_are_said() -> None:
    outcome = an_outcome(CASE, OTTLA_ROUNDS, KAFKA_ROUNDS)
    outcome.errors.append("round 1 produce kafka: it ended")
    outcome.is_left_out = True
    lines = closing_lines(results_of(outcome))
    assert lines[:2] == [
        "failed: round 1 produce kafka: it ended",
        "left out, the time was up: produce",
    ]


def test_markdown_is_a_table_of_one_width() -> None:
    text = to_markdown(results_of(an_outcome(CASE, OTTLA_ROUNDS, KAFKA_ROUNDS)))
    title, _, *lines = text.splitlines()
    assert title.startswith("# ")
    assert len(lines) == 2 + 3
    assert {line.count("|") for line in lines} == {9}


def test_printed_lines_are_not_broken_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(results_of(an_outcome(CASE, OTTLA_ROUNDS, KAFKA_ROUNDS)))
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split()[:3] == ["produce", "1", "KB"]
    assert printed[1].rstrip().endswith("yes")
    assert printed[-1] == "1 of 2 targets reached"


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345.6, "12,346"), (99.96, "100.0"), (9.994, "9.99"), (0.1, "0.10"), (0.0994, "0.099")],
)
def test_short(value: float, text: str) -> None:
    assert short(value) == text
