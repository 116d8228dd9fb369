"""Goal: the judge of the chaos tests finds what it is there for.
Method: a clean history, and the same with one anomaly of each kind planted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.cluster_checker import Ack, History, Read, Refusal, anomalies

COUNT = 20


def clean() -> History:
    """Two writers, a partition each; one send whose end nobody knows is there, another is not."""
    history = History()
    for partition, writer in enumerate(("a", "b")):
        for number in range(COUNT):
            if number == 7:
                continue  # got lost on the way, and the writer knows nothing
            offset = number if number < 7 else number - 1
            if number != 11:
                history.acks.append(Ack(writer, number, partition, offset))
            read = Read("r1", writer, number, partition, offset)
            history.reads.append(read)
            history.final.append(replace(read, reader="final"))
    history.refusals.append(Refusal("a", 99))
    return history


def test_a_clean_history_is_clean() -> None:
    assert anomalies(clean()) == []


def lose(history: History) -> None:
    """The end of a partition is gone, though acknowledged; nobody had read it."""
    history.final = [one for one in history.final if (one.writer, one.number) != ("a", 19)]
    history.reads = [one for one in history.reads if (one.writer, one.number) != ("a", 19)]


def vanish(history: History) -> None:
    history.acks = [one for one in history.acks if (one.writer, one.number) != ("b", 19)]
    history.final = [one for one in history.final if (one.writer, one.number) != ("b", 19)]


def change(history: History) -> None:
    history.reads[3] = replace(history.reads[3], number=555)


def acknowledge_elsewhere(history: History) -> None:
    history.acks[2] = replace(history.acks[2], offset=3)


def double(history: History) -> None:
    history.final.append(replace(history.final[-1], offset=history.final[-1].offset + 1))


def reorder(history: History) -> None:
    one, other = history.final[4], history.final[5]
    history.final[4] = replace(other, offset=one.offset)
    history.final[5] = replace(one, offset=other.offset)


def write_what_was_refused(history: History) -> None:
    history.refusals.append(Refusal("a", 11))


def skip(history: History) -> None:
    del history.reads[5]


def read_again(history: History) -> None:
    history.reads.insert(6, history.reads[5])


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose, "lost"),
        (vanish, "vanished"),
        (change, "changed"),
        (acknowledge_elsewhere, "changed"),
        (double, "doubled"),
        (reorder, "reordered"),
        (write_what_was_refused, "refused and there"),
        (skip, "jump"),
        (read_again, "jump"),
    ],
)
def test_each_anomaly_is_found(plant: Callable[[History], None], found: str) -> None:
    history = clean()
    plant(history)
    assert any(one.startswith(found) for one in anomalies(history)), anomalies(history)
