"""Goal: what is shown of a group agrees with what members have and what is committed.
Method: prepared groups; the text on stdout.
"""

from __future__ import annotations

import pytest

from ottla.cli import group_view
from ottla.cli.failure import Failure
from ottla.cli.group_model import GroupDetail, GroupMember
from tests.unit.cli.cluster import PlayedCluster

FIRST, SECOND, GONE = ("orders", 0), ("orders", 1), ("gone", 0)
ANNA = GroupMember("anna-1", "desk", "anna", "10.0.0.1", [FIRST], None)
BERT = GroupMember("bert-1", None, "bert", "10.0.0.2", [SECOND], None)


def a_cluster() -> PlayedCluster:
    return PlayedCluster(
        held={FIRST: (0, 10), SECOND: (5, 9)},
        details={
            "shop": GroupDetail("shop", "Stable", "classic", "range", 1, [ANNA, BERT]),
            "idle": GroupDetail("idle", "Empty", "consumer", None, 2, []),
        },
        commits={"shop": {FIRST: 4, GONE: 3}},
    )


def test_committed_and_assigned_partitions_both_have_a_row() -> None:
    (group,) = group_view.describe_groups(a_cluster().as_connection(), ["shop", "shop"])
    assert {key: group[key] for key in list(group)[:-1]} == {
        "group": "shop",
        "state": "Stable",
        "protocol": "classic",
        "assignor": "range",
        "coordinator": 1,
        "member_count": 2,
        "lag": 6,
    }
    gone, first, second = group["partitions"]
    assert (gone["topic"], gone["latest_offset"], gone["lag"]) == ("gone", None, None)
    assert first == {
        "topic": "orders",
        "partition": 0,
        "committed_offset": 4,
        "latest_offset": 10,
        "lag": 6,
        "member_id": "anna-1",
        "client_id": "anna",
        "host": "10.0.0.1",
    }
    assert (second["committed_offset"], second["lag"], second["client_id"]) == (None, None, "bert")


def test_nobody_is_asked_about_a_partition_without_a_leader() -> None:
    cluster = a_cluster()
    cluster.leaderless = {FIRST}
    (group,) = group_view.describe_groups(cluster.as_connection(), ["shop"])
    assert group["partitions"][1]["latest_offset"] is None


def test_groups_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    described = group_view.describe_groups(a_cluster().as_connection(), ["shop", "idle"])
    group_view.show_groups(described)
    assert capsys.readouterr().out.splitlines() == [
        "shop: Stable, classic protocol, assignor range, 2 members, coordinator 1, lag 6",
        "TOPIC   PARTITION  COMMITTED  LATEST  LAG  MEMBER  HOST",
        "gone            0          3       -    -  -       -",
        "orders          0          4      10    6  anna-1  10.0.0.1",
        "orders          1          -       9    -  bert-1  10.0.0.2",
        "",
        "idle: Empty, consumer protocol, 0 members, coordinator 2",
        "nothing committed, nothing assigned",
    ]


def test_a_name_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster()
    cluster.details["a\n\x1b[2J"] = GroupDetail("a\n\x1b[2J", "Empty", "consumer", None, 2, [])
    group_view.show_members(group_view.members_of_groups(cluster.as_connection(), ["a\n\x1b[2J"]))
    shown = capsys.readouterr().out
    assert shown == "a\\n\\x1b[2J: Empty, consumer protocol, 0 members, coordinator 2\n"


def test_members_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster()
    group_view.show_members(group_view.members_of_groups(cluster.as_connection(), ["shop"]))
    assert capsys.readouterr().out.splitlines() == [
        "shop: Stable, classic protocol, assignor range, 2 members, coordinator 1",
        "MEMBER  INSTANCE  CLIENT  HOST      PARTITIONS",
        "anna-1  desk      anna    10.0.0.1  orders:0",
        "bert-1  -         bert    10.0.0.2  orders:1",
    ]


def test_the_target_is_shown_while_partitions_move(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster()
    full = GroupMember("a", None, "a", "h", [FIRST, SECOND], [FIRST])
    empty = GroupMember("b", None, "b", "h", [], [SECOND])
    cluster.details["shop"] = GroupDetail("shop", "Rebalancing", "consumer", None, 1, [full, empty])
    described = group_view.members_of_groups(cluster.as_connection(), ["shop"])
    assert described[0]["members"][0]["target"] == [{"topic": "orders", "partition": 0}]
    group_view.show_members(described)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "MEMBER  INSTANCE  CLIENT  HOST  PARTITIONS  TARGET",
        "a              -  a       h     orders:0-1  orders:0",
        "b              -  b       h     -           orders:1",
    ]


def test_a_name_that_is_nearly_right() -> None:
    connection = a_cluster().as_connection()
    with pytest.raises(Failure, match="group shp does not exist; did you mean shop"):
        group_view.existing_groups(connection, ["shop", "shp"])
    with pytest.raises(Failure, match=r"group xyz does not exist$"):
        group_view.existing_groups(connection, ["xyz"])


def test_ranges() -> None:
    def row(topic: str, partition: int) -> dict[str, object]:
        return {"topic": topic, "partition": partition}

    rows = [row("b", 3), row("a", 2), row("a", 0), row("a", 1), row("a", 7)]
    assert group_view.ranges_of(rows) == "a:0-2,7 b:3"
    assert group_view.ranges_of([]) is None


def test_lag_never_is_negative() -> None:
    assert group_view.lag_of(12, 10) == 0
    assert group_view.lag_of(None, 10) is None
    assert group_view.lag_of(12, None) is None
    assert group_view.sum_of([None, 3, 4]) == 7
    assert group_view.sum_of([None]) is None
