"""Goal: listing, lag and deleting answer for the groups that were meant.
Method: the commands over a cluster in memory.
"""

from __future__ import annotations

import json

import pytest

from ottla.cli import group, main
from ottla.cli.group_model import GroupDetail, GroupMember
from tests.unit.cli.cluster import PlayedCluster

FIRST = ("orders", 0)
MEMBER = GroupMember("m", None, "c", "h", [FIRST], None)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PlayedCluster:
    cluster = PlayedCluster(
        held={FIRST: (0, 10)},
        details={
            "shop": GroupDetail("shop", "Stable", "classic", "range", 1, [MEMBER]),
            "bill": GroupDetail("bill", "Empty", "consumer", None, 1, []),
        },
        commits={"shop": {FIRST: 4}},
    )
    monkeypatch.setattr(group, "connect", lambda bootstrap, config: cluster)
    return cluster


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("", ["shop", "bill"]),
        ("--state empty", ["bill"]),
        ("--state Stable --state Empty", ["shop", "bill"]),
        ("--protocol classic", ["shop"]),
        ("--protocol classic --state Empty", []),
    ],
)
def test_lists(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], options: str, names: list[str]
) -> None:
    assert main.run(["group", "list", *options.split(), "-o", "json"]) == 0
    assert [row["group"] for row in json.loads(capsys.readouterr().out)] == names


def test_a_list_for_people(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["group", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "GROUP  STATE   PROTOCOL",
        "shop   Stable  classic",
        "bill   Empty   consumer",
    ]


def test_lag(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["group", "lag", "shop", "bill"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "GROUP  TOPIC   PARTITIONS  LAG  WORST",
        "shop   orders           1    6      6",
    ]
    assert captured.err == "group bill has committed nothing\n"
    assert main.run(["group", "lag", "--partitions", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["partition"], row["committed_offset"], row["latest_offset"]) == (0, 4, 10)
    assert main.run(["group", "lag", "--watch", "--count", "1"]) == 0
    assert "shop orders lag 6" in capsys.readouterr().out


def test_described_groups_and_members(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("describe", "members"):
        assert main.run(["group", command, "shop", "-o", "json"]) == 0
        (document,) = json.loads(capsys.readouterr().out)
        assert document["group"] == "shop"
        assert main.run(["group", command, "shop"]) == 0
        assert capsys.readouterr().out.startswith("shop: Stable, classic protocol")


def test_deleting(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["group", "delete", "bill", "shop", "--yes"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "deleted bill\n"
    assert captured.err == "ottla: group shop: not empty\n"
    assert cluster.deleted == ["bill"]


def test_deleting_what_is_not_there(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["group", "delete", "bill", "nobody"]) == 1
    assert "group nobody does not exist" in capsys.readouterr().err
    assert cluster.deleted == []
    assert main.run(["group", "delete", "bill", "nobody", "--if-exists", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"group": "bill", "deleted": True},
        {"group": "nobody", "deleted": False},
    ]
