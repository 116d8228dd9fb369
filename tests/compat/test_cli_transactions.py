"""`ottla txn` and `ottla explain` against a real broker.

One partition is written by two transactional producers of our own client, so that every fate of a
record stands in it: committed, aborted, open, committed behind an open one.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client import Admin, Producer
from tests.compat.command import OTTLA, Ottla
from tests.compat.confluent import new_name
from tests.compat.conftest import MakeNode
from tests.compat.nodes import wait_until
from tests.compat.transaction_wire import TransactionWire
from tests.patience import SECONDS_MAX


@pytest.fixture
def ottla(bootstrap: str) -> Ottla:
    return Ottla(bootstrap)


class Story:
    """0, 1 committed, 2 their marker; 3 aborted, 4 its marker; 5 open; 6 committed, 7 its marker.

    A group has committed 4.
    """

    def __init__(self, ottla: Ottla, bootstrap: str) -> None:
        self.topic = ottla.new_topic()
        self.first, self.second = new_name("first"), new_name("second")
        self.group = new_name("group")
        settings = {"bootstrap.servers": bootstrap, "transaction.timeout.ms": 600_000}
        # They linger until they are flushed, so that what belongs together is one batch.
        self._producers = [
            Producer(settings, transactional_id=name, compression_type="gzip", linger_ms=60_000)
            for name in (self.first, self.second)
        ]
        first, second = self._producers
        first.init_transactions()
        with first.transaction():
            first.send(self.topic, b"one" * 200, key=b"k")
            first.send(self.topic, b"two", headers=[("h", b"1")])
        first.begin_transaction()
        first.send(self.topic, b"three")
        first.flush(SECONDS_MAX)
        first.abort_transaction()
        first.begin_transaction()
        first.send(self.topic, b"four")
        first.flush(SECONDS_MAX)
        second.init_transactions()
        with second.transaction():
            second.send(self.topic, b"five")
        with Admin(bootstrap_servers=bootstrap) as admin:
            assert admin.alter_group_offsets(self.group, {(self.topic, 0): 4}) == {
                (self.topic, 0): None
            }

            # The end of a transaction is answered before its markers are written, and those are
            # there before the coordinator has heard of it.
            def is_written() -> bool:
                (end,) = admin.list_offsets({(self.topic, 0): -1}).values()
                (told,) = admin.describe_transactions([self.second])
                has_ended = end is not None and end.offset == 8
                return has_ended and told.state == "CompleteCommit"

            wait_until(is_written, SECONDS_MAX, "all markers are there")

    def close(self) -> None:
        for producer in self._producers:
            producer.close(0)


@pytest.fixture
def story(ottla: Ottla, bootstrap: str) -> Iterator[Story]:
    story = Story(ottla, bootstrap)
    yield story
    story.close()


def explain(ottla: Ottla, story: Story, offset: int) -> Any:
    return ottla("explain", story.topic, "0", str(offset), "-o", "json").document()


def test_every_fate_of_a_record_is_explained(ottla: Ottla, story: Story) -> None:
    told = [explain(ottla, story, offset) for offset in range(9)]
    kinds = ["record"] * 2 + ["marker", "record"] * 2 + ["record", "marker", "beyond_end"]
    assert [one["status"] for one in told] == kinds
    outcomes = ["committed"] * 3 + ["aborted"] * 2 + ["open"] + ["committed"] * 2
    assert [one["transaction"]["outcome"] for one in told[:8]] == outcomes
    markers = [one["transaction"]["marker_offset"] for one in told[:8]]
    assert markers == [2, 2, 2, 4, 4, None, 7, 7]
    names = [one["transaction"]["transactional_id"] for one in told[:8]]
    assert names == [story.first] * 6 + [story.second] * 2
    for_committed = [one["visible"]["read_committed"] for one in told]
    assert for_committed == [True] * 2 + [False] * 7
    for_all = [one["visible"]["read_uncommitted"] for one in told]
    assert for_all == [kind == "record" for kind in kinds]
    assert [one["log"]["last_stable_offset"] for one in told] == [5] * 9
    assert [one["groups"][0]["is_past"] for one in told] == [True] * 4 + [False] * 5
    held_back_by = [[one["transactional_id"] for one in each["held_back_by"]] for each in told]
    assert held_back_by == [[]] * 5 + [[story.first]] * 3 + [[]]


def test_who_wrote_a_record_and_how_it_is_stored(ottla: Ottla, story: Story) -> None:
    told = explain(ottla, story, 1)
    described = ottla("txn", "describe", story.first, "-o", "json").document()[0]
    assert told["producer"]["producer_id"] == described["producer_id"]
    assert told["producer"]["sequence"] == 1
    batch = told["batch"]
    assert (batch["base_offset"], batch["last_offset"], batch["record_count"]) == (0, 1, 2)
    assert (batch["codec"], batch["leader_epoch"]) == ("gzip", 0)
    assert batch["size_bytes"] < batch["uncompressed_bytes"]
    record = told["record"]
    assert (record["key"], record["value_bytes"], record["headers"]) == (None, 3, 1)
    assert explain(ottla, story, 0)["record"]["key"] == "k"


def test_an_offset_is_explained_in_words(ottla: Ottla, story: Story) -> None:
    def words(offset: int) -> str:
        done = ottla("explain", story.topic, "0", str(offset))
        assert done.code == 0, done.err
        return done.out.decode()

    assert words(0).startswith(f"{story.topic}-0 offset 0: a record, committed\n")
    assert f"{story.first}, committed: marker at offset 2" in words(0)
    assert f"groups past  {story.group}" in words(0)
    assert "a record, aborted: missing for read_committed readers" in words(3)
    assert "a record of an open transaction" in words(5)
    assert f"waits for    {story.first}, open from offset 5 on" in words(6)
    assert "not there yet: the high watermark is 8" in words(8)
    assert f"not yet past {story.group} (at 4)" in words(8)


def test_what_is_below_the_log_start_was_deleted(ottla: Ottla, story: Story) -> None:
    done = ottla("topic", "records", story.topic, "--delete-before", "2", "--yes")
    assert done.code == 0, done.err
    told = explain(ottla, story, 1)
    assert (told["status"], told["log"]["log_start_offset"]) == ("below_log_start", 2)
    done = ottla("explain", story.topic, "0", "1")
    assert "missing, below the log start 2: deleted by retention or on request" in done.out.decode()


def test_what_does_not_exist_is_not_explained(ottla: Ottla, story: Story) -> None:
    done = ottla("explain", story.topic, "7", "0")
    assert (done.code, done.out) == (1, b"")
    assert done.err == f"ottla: topic {story.topic} has the partitions 0 to 0, and no 7\n"
    done = ottla("explain", new_name("nothing"), "0", "0")
    assert (done.code, done.out) == (1, b"")
    assert "does not exist" in done.err


def test_transactions_are_listed_and_described(ottla: Ottla, story: Story) -> None:
    rows = {one["transactional_id"]: one for one in ottla("txn", "list", "-o", "json").document()}
    assert rows[story.first]["state"] == "Ongoing"
    assert rows[story.second]["state"] == "CompleteCommit"
    ongoing = ottla("txn", "list", "--state", "ongoing", "-o", "json").document()
    names = {one["transactional_id"] for one in ongoing}
    assert story.first in names
    assert story.second not in names
    mine = str(rows[story.second]["producer_id"])
    found = ottla("txn", "list", "--producer-id", mine, "-o", "json").document()
    assert [one["transactional_id"] for one in found] == [story.second]
    assert ottla("txn", "list", "--longer-than", "24h", "-o", "json").document() == []
    assert story.first in ottla("txn", "list").out.decode()

    first, second = ottla("txn", "describe", story.first, story.second, "-o", "json").document()
    assert first["partitions"] == [{"topic": story.topic, "partition": 0}]
    assert (first["state"], first["timeout_ms"]) == ("Ongoing", 600_000)
    assert (second["state"], second["partitions"]) == ("CompleteCommit", [])
    assert (first["open_ms"] is None, second["open_ms"] is None) == (False, True)
    text = ottla("txn", "describe", story.first).out.decode()
    assert text.startswith(f"{story.first}: Ongoing\n")
    assert "time-out     10.0 min" in text
    assert f"1 partition  {story.topic}-0" in text
    done = ottla("txn", "describe", f"{story.first}x")
    assert done.code == 1
    assert f"no coordinator knows the transactional id {story.first}x" in done.err


def test_an_open_transaction_is_aborted_by_its_id(ottla: Ottla, story: Story) -> None:
    done = ottla("txn", "abort", story.first)
    assert (done.code, done.out.decode()) == (0, f"aborted {story.first}\n"), done.err

    def is_stable() -> bool:
        return bool(explain(ottla, story, 6)["visible"]["read_committed"])

    wait_until(is_stable, SECONDS_MAX, "nothing is held back any more")
    assert explain(ottla, story, 5)["transaction"]["outcome"] == "aborted"
    again = ottla("txn", "abort", story.first, "-o", "json").document()
    assert again["aborted"] is False


def test_a_living_transaction_does_not_hang(ottla: Ottla, story: Story) -> None:
    arguments = ("--topic", story.topic, "--quiet", "0s")
    assert ottla("txn", "find-hanging", *arguments, "-o", "json").document() == []
    done = ottla("txn", "find-hanging", *arguments)
    assert (done.code, done.out, done.err) == (0, b"", "nothing hangs in 1 partition\n")


def test_what_hangs_is_found_and_ended(make_node: MakeNode) -> None:
    """Only a broker that does not verify lets it in."""
    node = make_node({"transaction.partition.verification.enable": "false"})
    ottla = Ottla(node.bootstrap)
    topic = ottla.new_topic()
    with TransactionWire(node.bootstrap).ready() as wire:
        assert wire.write(topic, 0, version=11) == 0
    arguments = ("txn", "find-hanging", "--quiet", "0s", "-o", "json")
    # Younger than a millisecond it is not looked at.
    wait_until(lambda: ottla(*arguments).document(), SECONDS_MAX, "it is found")
    (found,) = ottla(*arguments).document()
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 0, 0)
    assert "is without this partition" in found["why"]
    assert ottla("txn", "find-hanging", "-o", "json").document() == []
    assert topic in ottla(*arguments[:-2]).out.decode()

    where = ("--topic", topic, "--partition", "0", "--start-offset")
    done = ottla("txn", "abort", *where, "7")
    assert done.code == 1
    assert "begins at offset 7; open ones begin at 0" in done.err
    done = ottla("txn", "abort", *where, "0")
    assert (done.code, done.out.decode()) == (0, f"aborted {topic}-0 from offset 0\n"), done.err
    assert ottla(*arguments).document() == []
    told = ottla("explain", topic, "0", "0", "-o", "json").document()
    assert told["transaction"]["outcome"] == "aborted"


def test_the_exactly_once_demo_on_a_broker_of_its_own(tmp_path: Path) -> None:
    """What came twice or never without transactions is chance; with them it is none."""
    done = subprocess.run(
        [*OTTLA, "demo", "exactly-once", "--kills", "1", "--records", "120"],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    last = re.compile(
        r"Exactly once: 120 records, \d kills; commit after: \d+ twice, 0 lost;"
        r" commit before: 0 twice, \d+ lost; transactions: 0 twice, 0 lost; [\d.]+ s"
    )
    assert last.fullmatch(done.stdout.splitlines()[-1])
    assert list(tmp_path.iterdir()) == []


def test_the_exactly_once_demo_leaves_nothing_behind(ottla: Ottla) -> None:
    before = {row["topic"] for row in ottla.topics()}
    with ottla.start(
        "demo",
        "exactly-once",
        "--kills",
        "0",
        "--records",
        "40",
        "--bootstrap-server",
        ottla.environment["OTTLA_BOOTSTRAP"],
    ) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"no job died within a transaction" in out
    assert b"0 kills; commit after: 0 twice, 0 lost; commit before: 0 twice, 0 lost;" in out
    left = {row["topic"] for row in ottla.topics()} - before
    assert not [name for name in left if name.startswith("exactly-once-")]
