"""Goal: options as make passes them; each case once, and no case that a broker cannot serve.
Method: parse them, and look at the list of cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import __main__ as command
from bench.__main__ import chosen_cases, main, parse, write
from bench.case import BLOCKS
from bench.cases import ALL_CASES
from ottla.protocol.api_keys import CONSUMER_GROUP_HEARTBEAT, FIND_COORDINATOR, INIT_PRODUCER_ID
from tests.unit.bench.runs import SPEED, a_case, an_outcome, results_of


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUICK", "CASES"):
        monkeypatch.delenv(name, raising=False)


def test_what_make_exports_counts_as_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (parse([]).quick, parse([]).cases) == (False, [])
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setenv("CASES", "produce_1k consume_1k")
    assert (parse([]).quick, parse([]).cases) == (True, ["produce_1k", "consume_1k"])


def test_an_unknown_case_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--cases", "produce_1k", "produce_2k"])
    assert ended.value.code == 2
    assert "no case produce_2k" in capsys.readouterr().err


def test_names_are_unique_and_every_block_is_run() -> None:
    names = [case.name for case in ALL_CASES]
    assert len(set(names)) == len(names)
    assert {case.block for case in ALL_CASES} == set(BLOCKS)


def test_cases_about_groups_wait_until_there_are_groups() -> None:
    without = chosen_cases([], {0, 1, 2, 3})
    assert {case.name for case in without if case.issue == 4} == {"compaction"}
    assert chosen_cases(["commits_1"], {0, 1, 2, 3}) == []
    classic = [case.name for case in chosen_cases([], {FIND_COORDINATOR})]
    transactional = {case.name for case in ALL_CASES if case.issue == 6}
    left_out = {case.name for case in ALL_CASES} - set(classic)
    assert left_out == {"rebalance_consumer", *transactional}
    every = chosen_cases([], {FIND_COORDINATOR, CONSUMER_GROUP_HEARTBEAT, INIT_PRODUCER_ID})
    assert every == list(ALL_CASES)


def test_every_row_of_the_issues_is_in_the_table() -> None:
    targets = {
        (case.name, figure.key): figure.target()
        for case in ALL_CASES
        for figure in case.figures
        if figure.target()
    }
    both = {"throughput": "mb_per_s", "cpu": "cpu_s_per_gib"}
    for name, throughput, cpu in (
        ("produce_1k", "≥ 1.3", "≤ 0.35"),
        ("produce_100b", "≥ 1.2", "≤ 0.5"),
        ("produce_1k_12", "≥ 1.2", "≤ 0.4"),
        ("produce_small", "≥ 1.5", "≤ 0.3"),
        ("produce_rdkafka", "≥ 0.95", "≤ 0.5"),
        ("consume_1k", "≥ 0.95", "≤ 0.5"),
        ("consume_100b", "≥ 0.95", "≤ 0.5"),
        ("consume_java_1k", "≥ 0.95", "≤ 0.5"),
        ("consume_java_100b", "≥ 0.95", "≤ 0.5"),
    ):
        assert targets.pop((name, both["throughput"])) == throughput, name
        assert targets.pop((name, both["cpu"])) == cpu, name
    for name in ("latency", "latency_java"):
        found = [targets.pop((name, key)) for key in ("average_ms", "p99_ms", "cpu_ms_per_round")]
        assert found == ["≤ 0.6", "≤ 0.8", "≤ 0.4"], name
    assert targets == {
        ("catch_up", "p99_times"): "≤ 1.5",
        ("connections", "average_times"): "≤ 1.2",
        ("connections", "resident_mb"): "≤ 0.3",
        ("partitions", "average_times"): "≤ 1.2",
        ("partitions", "resident_mb"): "≤ 0.3",
        ("start", "start_s"): "≤ 0.15",
        ("start", "resident_mb"): "≤ 0.2",
        ("start", "cpu_percent"): "≤ 0.2",
        ("commits_1", "commits_per_s"): "≥ 1",
        ("commits_1", "cpu_us_per_commit"): "≤ 0.4",
        ("commits_50", "commits_per_s"): "≥ 1",
        ("commits_50", "cpu_us_per_commit"): "≤ 0.4",
        ("rebalance_classic", "rebalance_ms"): "≤ 0.8",
        ("rebalance_classic", "cpu_ms"): "≤ 0.4",
        ("rebalance_consumer", "rebalance_ms"): "≤ 1.05",
        ("rebalance_consumer", "cpu_ms"): "≤ 0.4",
        ("lag", "listing_ms"): "≤ 0.8",
        ("coordinator_load", "loaded_s"): "≤ 1.1",
        ("compaction", "cpu_s_per_gib"): "≤ 1.5",
        ("cluster_produce_1k", "mb_per_s"): "≥ 2.5",
        ("cluster_produce_1k", "cpu_s_per_gib"): "≤ 0.25",
        ("cluster_produce_12", "mb_per_s"): "≥ 1.8",
        ("cluster_produce_12", "cpu_s_per_gib"): "≤ 0.4",
        ("cluster_rdkafka", "mb_per_s"): "≥ 1.3",
        ("cluster_rdkafka", "cpu_s_per_gib"): "≤ 0.4",
        ("cluster_latency", "average_ms"): "≤ 0.6",
        ("cluster_start", "start_s"): "≤ 0.5",
        ("cluster_start", "resident_mb"): "≤ 0.35",
        ("cluster_start", "cpu_percent"): "≤ 0.3",
        ("cluster_failover", "kill_gap_s"): "≤ 1.1",
        ("cluster_failover", "stop_gap_ms"): "≤ 0.5",
        ("cluster_many", "failover_s"): "≤ 1.1",
        ("transactions", "transactions_per_s"): "≥ 1.5",
        ("transactions", "cpu_us_per_transaction"): "≤ 0.35",
        ("transactions", "commit_p50_ms"): "≤ 0.7",
        ("read_committed", "mb_per_s"): "≥ 0.95",
        ("cluster_transactions", "transactions_per_s"): "≥ 1.5",
        ("cluster_transactions", "cpu_us_per_transaction"): "≤ 0.35",
        ("cluster_transactions", "commit_p50_ms"): "≤ 0.7",
        ("cluster_read_committed", "mb_per_s"): "≥ 0.95",
        ("ids_load", "loaded_s"): "≤ 1.1",
        ("cluster_ids_load", "loaded_s"): "≤ 1.1",
    }


def test_a_run_is_written_and_printed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "RESULTS_DIRECTORY", tmp_path)
    case = a_case(SPEED, name=ALL_CASES[0].name)
    figures = {figure.key: 1.0 for figure in ALL_CASES[0].figures}
    results = results_of(an_outcome(case, [figures], [figures]), quick=True)
    paths = write(results)
    assert [path.name for path in paths] == [
        f"quick-2026-01-02T0304-abc.{ending}" for ending in ("json", "md", "svg")
    ]
    assert main(["--render", str(paths[0])]) == 0
    assert ALL_CASES[0].title in capsys.readouterr().out


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(ALL_CASES)
