"""Goal: the judge of the chaos with transactions finds what it is there for.
Method: a clean history, and the same with one anomaly of each kind planted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.transaction_history import Seen, TransactionHistory, Value, anomalies

PARTS = 4
PARTITIONS = 2
COUNT = 12
NOBODY_KNOWS = (3, 5)
"""Of the first all is there, of the second nothing."""
ABORTED = 7


def clean() -> TransactionHistory:
    history = TransactionHistory(PARTS)
    ends = [0] * PARTITIONS
    for number in range(COUNT):
        for writer in ("a", "b"):
            if number == ABORTED:
                history.aborted.add((writer, number))
            elif number not in NOBODY_KNOWS:
                history.committed.add((writer, number))
            for part in range(PARTS):
                partition = part % PARTITIONS
                if number not in (ABORTED, NOBODY_KNOWS[1]):
                    value = Value(writer, number, part)
                    history.final.append(Seen(value, partition, ends[partition]))
                ends[partition] += 1
    history.reads = {"far": list(history.final), "near": history.final[:20]}
    return history


def test_a_clean_history_is_clean() -> None:
    assert anomalies(clean()) == []


def read_an_aborted(history: TransactionHistory) -> None:
    history.reads["near"].append(Seen(Value("a", ABORTED, 0), 0, 28))


def commit_an_aborted(history: TransactionHistory) -> None:
    history.aborted.add(("a", 8))


def tear(history: TransactionHistory) -> None:
    history.final.pop()
    history.reads = {}


def tear_what_nobody_knows(history: TransactionHistory) -> None:
    torn = Value("b", NOBODY_KNOWS[0], 2)
    history.final = [seen for seen in history.final if seen.value != torn]
    history.reads = {}


def lose(history: TransactionHistory) -> None:
    def stays(seen: Seen) -> bool:
        return (seen.value.writer, seen.value.number) != ("a", 9)

    history.final = list(filter(stays, history.final))
    history.reads = {}


def double(history: TransactionHistory) -> None:
    history.final.append(replace(history.final[-1], offset=history.final[-1].offset + 1))


def reorder(history: TransactionHistory) -> None:
    one, other = history.final[0], history.final[2]
    history.final[0] = replace(other, offset=one.offset)
    history.final[2] = replace(one, offset=other.offset)
    history.reads = {}


def vanish(history: TransactionHistory) -> None:
    history.reads["near"].insert(8, Seen(Value("a", NOBODY_KNOWS[1], 0), 0, 8))


def leave_out(history: TransactionHistory) -> None:
    del history.reads["near"][8]


def read_again(history: TransactionHistory) -> None:
    history.reads["far"].insert(8, history.reads["far"][6])


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (read_an_aborted, "aborted read"),
        (commit_an_aborted, "aborted read"),
        (tear, "torn"),
        (tear_what_nobody_knows, "torn"),
        (lose, "lost commit"),
        (double, "doubled"),
        (reorder, "reordered"),
        (vanish, "other read"),
        (leave_out, "other read"),
        (read_again, "other read"),
    ],
)
def test_each_anomaly_is_found(plant: Callable[[TransactionHistory], None], found: str) -> None:
    history = clean()
    plant(history)
    assert any(one.startswith(found) for one in anomalies(history)), anomalies(history)
