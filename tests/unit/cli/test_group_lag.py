"""Goal: lag is summed over the right partitions, and rates only where both looks know enough.
Method: snapshots of a prepared cluster, and made by hand.
"""

from __future__ import annotations

import pytest

from ottla.cli.failure import Failure
from ottla.cli.group_lag import Snapshot, add_rates, lag_table, rows_of, take_snapshot
from ottla.cli.group_model import GroupDetail
from ottla.cli.tables import print_rich
from tests.unit.cli.cluster import PlayedCluster

FIRST, SECOND, OTHER = ("orders", 0), ("orders", 1), ("pays", 0)


def a_snapshot(timestamp_ms: int = 10_000, read: int = 0, written: int = 0) -> Snapshot:
    return Snapshot(
        timestamp_ms,
        {"shop": {FIRST: 4 + read, SECOND: 2, OTHER: 1}, "bill": {OTHER: 5}},
        {FIRST: 10 + written, SECOND: 3, OTHER: 5},
    )


def test_a_row_for_each_topic_of_each_group() -> None:
    assert rows_of(a_snapshot(), by_partition=False) == [
        {"group": "bill", "topic": "pays", "partitions": 1, "lag": 0, "lag_max": 0},
        {"group": "shop", "topic": "orders", "partitions": 2, "lag": 7, "lag_max": 6},
        {"group": "shop", "topic": "pays", "partitions": 1, "lag": 4, "lag_max": 4},
    ]


def test_a_row_for_each_partition() -> None:
    rows = rows_of(a_snapshot(), by_partition=True)
    assert [(row["group"], row["topic"], row["partition"], row["lag"]) for row in rows] == [
        ("bill", "pays", 0, 0),
        ("shop", "orders", 0, 6),
        ("shop", "orders", 1, 1),
        ("shop", "pays", 0, 4),
    ]


def test_a_topic_that_is_gone_has_no_lag() -> None:
    snapshot = a_snapshot()
    del snapshot.latest[OTHER]
    (row,) = [row for row in rows_of(snapshot, by_partition=False) if row["group"] == "bill"]
    assert (row["lag"], row["lag_max"]) == (None, None)


def test_rates_since_the_look_before() -> None:
    now = a_snapshot(12_000, read=6, written=10)
    rows = add_rates(rows_of(now, by_partition=False), a_snapshot(), now)
    orders = rows[1]
    assert (orders["change"], orders["read_per_second"], orders["written_per_second"]) == (4, 3, 5)
    assert str(orders["change"]) == "+4"
    by_partition = add_rates(rows_of(now, by_partition=True), a_snapshot(), now)
    assert [row["change"] for row in by_partition] == [0, 4, 0, 0]


@pytest.mark.parametrize("missing", ["all", "commit", "end"])
def test_no_rate_where_the_look_before_knew_too_little(missing: str) -> None:
    before, now = a_snapshot(), a_snapshot(12_000)
    if missing == "commit":
        del before.committed["shop"][SECOND]
    if missing == "end":
        del before.latest[SECOND]
    rows = add_rates(rows_of(now, by_partition=False), None if missing == "all" else before, now)
    assert rows[1]["change"] is None
    assert rows[2]["change"] == (None if missing == "all" else 0)


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    now = a_snapshot(12_000, written=5)
    rows = add_rates(rows_of(now, by_partition=False), a_snapshot(), now)
    print_rich(lag_table(rows, by_partition=False, with_rates=True))
    assert capsys.readouterr().out.splitlines()[:3] == [
        "GROUP  TOPIC   PARTITIONS  LAG  WORST  CHANGE  READ/S  WRITTEN/S",
        "bill   pays             1    0      0      +0     0.0        0.0",
        "shop   orders           2   12     11      +5     0.0        2.5",
    ]
    print_rich(lag_table(rows_of(now, by_partition=True), by_partition=True))
    assert "GROUP  TOPIC   PARTITION  COMMITTED  LATEST  LAG" in capsys.readouterr().out


def test_snapshots_are_of_those_that_are_named_or_of_all() -> None:
    cluster = PlayedCluster(
        held={FIRST: (0, 10), SECOND: (0, 3)},
        details={
            name: GroupDetail(name, "Empty", "classic", None, 1, [])
            for name in ("shop", "bill", "new")
        },
        commits={"shop": {FIRST: 4}, "bill": {SECOND: 1}},
        leaderless={SECOND},
    )
    everything = take_snapshot(cluster.as_connection(), [])
    assert everything.committed == {"shop": {FIRST: 4}, "bill": {SECOND: 1}, "new": {}}
    assert everything.latest == {FIRST: 10}
    assert take_snapshot(cluster.as_connection(), ["new", "shop"]).committed == {
        "new": {},
        "shop": {FIRST: 4},
    }
    with pytest.raises(Failure, match="group nobody does not exist"):
        take_snapshot(cluster.as_connection(), ["shop", "nobody"])
