"""Goal: a plan goes to the partitions that were named, is only shown unless it is meant, and never
touches a group that is at work.
Method: the command itself over a cluster in memory.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli import group_reset_command, main
from ottla.cli.group_model import GroupDetail, GroupMember
from tests.unit.cli.cluster import PlayedCluster

FIRST, SECOND, OTHER = ("orders", 0), ("orders", 1), ("pays", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PlayedCluster:
    cluster = PlayedCluster(
        held={FIRST: (0, 10), SECOND: (5, 9), OTHER: (0, 3)},
        details={"shop": GroupDetail("shop", "Empty", "classic", None, 1, [])},
        commits={"shop": {FIRST: 4, OTHER: 3}},
    )
    monkeypatch.setattr(group_reset_command, "connect", lambda bootstrap, config: cluster)
    return cluster


def reset(*arguments: str) -> int:
    return main.run(["group", "reset", "shop", *arguments])


def test_a_dry_run_changes_nothing(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reset("--topic", "orders", "--to-earliest") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "TOPIC   PARTITION  COMMITTED  NEW",
        "orders          0          4    0",
        "orders          1          -    5",
    ]
    assert captured.err == "nothing is changed: this was a dry run, --execute does it\n"
    assert cluster.commits["shop"] == {FIRST: 4, OTHER: 3}


def test_it_is_done_when_it_is_meant(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reset("--topic", "orders:1", "-t", "pays", "--to-offset", "1", "--execute") == 0
    assert cluster.commits["shop"] == {FIRST: 4, SECOND: 5, OTHER: 1}
    assert capsys.readouterr().err == "orders-1 has no offset 1; the nearest is 5\n"


@pytest.mark.parametrize(
    ("topics", "moved"),
    [
        (["orders:0", "orders:1"], {FIRST: 10, SECOND: 9, OTHER: 3}),
        (["orders:0", "orders:0,1"], {FIRST: 10, SECOND: 9, OTHER: 3}),
        (["orders:1", "orders:1"], {FIRST: 4, SECOND: 9, OTHER: 3}),
        (["orders", "orders:1"], {FIRST: 10, SECOND: 9, OTHER: 3}),
        (["orders:1", "orders"], {FIRST: 10, SECOND: 9, OTHER: 3}),
    ],
)
def test_a_topic_that_is_named_twice_is_all_that_was_named(
    cluster: PlayedCluster, topics: list[str], moved: dict[tuple[str, int], int]
) -> None:
    named = [text for topic in topics for text in ("--topic", topic)]
    assert reset(*named, "--to-latest", "--execute") == 0
    assert cluster.commits["shop"] == moved


def test_all_topics_are_those_with_a_commit(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.commits["shop"][("gone", 0)] = 8
    assert reset("--all-topics", "--shift-by", "-2", "--execute", "-o", "json") == 0
    captured = capsys.readouterr()
    assert cluster.commits["shop"] == {FIRST: 2, OTHER: 1, ("gone", 0): 8}
    assert json.loads(captured.out) == {
        "group": "shop",
        "executed": True,
        "partitions": [
            {"topic": "orders", "partition": 0, "current_offset": 4, "new_offset": 2},
            {"topic": "pays", "partition": 0, "current_offset": 3, "new_offset": 1},
        ],
    }
    assert "gone-0 is left as it is" in captured.err


def test_export_and_from_file(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert reset("--all-topics", "--to-current", "--export") == 0
    text = capsys.readouterr().out
    assert text == "orders,0,4\npays,0,3\n"
    path = tmp_path / "offsets.csv"
    path.write_text(text)
    cluster.commits["shop"] = {FIRST: 9}
    assert reset("--from-file", str(path), "--execute") == 0
    assert cluster.commits["shop"] == {FIRST: 4, OTHER: 3}


def test_by_time(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.times = {FIRST: 6}
    assert reset("-t", "orders", "--to-datetime", "2026-01-31T08:00:00+02:00", "--execute") == 0
    assert cluster.commits["shop"] == {FIRST: 6, SECOND: 9, OTHER: 3}
    assert "2026-01-31T08:00:00+02:00 is 2026-01-31T06:00:00.000Z" in capsys.readouterr().err
    cluster.times = {FIRST: 7}
    assert reset("-t", "orders:0", "--by-duration", "PT1H", "--execute") == 0
    assert cluster.commits["shop"][FIRST] == 7


def test_a_group_at_work_is_refused(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    member = GroupMember("m", None, "c", "h", [FIRST], None)
    cluster.details["shop"] = GroupDetail("shop", "Stable", "classic", "range", 1, [member])
    assert reset("-t", "orders", "--to-latest", "--execute") == 1
    assert capsys.readouterr().err == (
        "ottla: group shop: offsets can only be reset while the group is inactive, but it is Stable"
        " with 1 member; stop them first\n"
    )
    assert cluster.commits["shop"] == {FIRST: 4, OTHER: 3}


def test_a_group_that_is_not_there_yet_is_made(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["group", "reset", "new"]
    assert main.run([*arguments, "-t", "orders", "--to-latest", "--execute"]) == 0
    assert cluster.commits["new"] == {FIRST: 10, SECOND: 9}
    assert main.run(["group", "reset", "other", "--all-topics", "--to-latest"]) == 1
    assert "group other has committed nothing; name topics" in capsys.readouterr().err


def test_what_cannot_be_done_is_one_line(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert reset("-t", "orders", "--shift-by", "1") == 1
    assert capsys.readouterr().err == (
        "ottla: group shop: orders-1 has no committed offset to shift from\n"
    )
    assert reset("-t", "orders:7", "--to-latest") == 1
    assert "topic orders has no partition 7" in capsys.readouterr().err
    assert reset("--from-file", str(tmp_path / "none")) == 1
    assert "cannot be taken" in capsys.readouterr().err
    (tmp_path / "bad").write_text("orders,0\n")
    assert reset("--from-file", str(tmp_path / "bad")) == 1
    assert "line 1 should be topic,partition,offset" in capsys.readouterr().err
