"""Goal: answers of a busy turn are sent together, those of any other at once, and none too late.
Method: turns of a loop, and their time, are the test's own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.limits import TURN_ANSWERS_MAX
from ottla.net.turn import Turn

PASSES = 63
"""Answers between two looks, while turns are not busy. A look takes two turns."""


class Peer:
    def __init__(self, sent: list[int], number: int) -> None:
        self._sent = sent
        self._number = number

    def send_now(self) -> None:
        self._sent.append(self._number)


class Loop:
    def __init__(self) -> None:
        self.now = 0.0
        self.at_the_end: list[Callable[[], None]] = []
        self.sent: list[int] = []
        self.turn = Turn(self.at_the_end.append, lambda: self.now)

    def answers(self, count: int, took_s: float = 0.0) -> list[bool]:
        """Whether each was kept; the one at hand has number 0, those behind it 1, 2 and so on."""
        kept = []
        for number in range(count):
            self.now += took_s
            kept.append(self.turn.keeps(Peer(self.sent, number)))
        return kept

    def end(self) -> None:
        called, self.at_the_end[:] = list(self.at_the_end), []
        for one in called:
            one()

    def whole_turn(self, count: int) -> list[int]:
        """What was kept and then sent."""
        self.sent.clear()
        self.answers(count)
        assert not self.sent or count > TURN_ANSWERS_MAX
        self.end()
        return list(self.sent)


def busy_loop() -> Loop:
    loop = Loop()
    for _ in range(2):
        loop.whole_turn(4)
    return loop


def test_the_answers_of_a_turn_behind_a_busy_one_are_sent_at_its_end() -> None:
    loop = Loop()
    assert loop.whole_turn(9) == [], "nobody knows where in it the look began"
    assert loop.whole_turn(4) == []
    assert loop.whole_turn(6) == [0, 1, 2, 3, 4, 5]
    assert loop.whole_turn(2) == [0, 1], "the turn before was still busy"
    assert loop.whole_turn(9) == [], "the one before was not"
    assert not loop.at_the_end


def test_turns_that_are_not_busy_are_looked_at_now_and_then() -> None:
    loop, looked = Loop(), 0
    for _ in range(10 * (PASSES + 2)):
        assert loop.answers(1) == [False]
        looked += len(loop.at_the_end)
        loop.end()
    assert looked == 20


@pytest.mark.parametrize("count", [4, 8, 16, 21, 50])
def test_busy_turns_are_noticed_at_the_next_look(count: int) -> None:
    loop = Loop()
    for _ in range(2):
        loop.whole_turn(1)
    turns = 0
    while not loop.whole_turn(count):
        turns += 1
        assert turns <= PASSES // count + 2


def test_no_more_than_so_many_are_kept() -> None:
    loop = busy_loop()
    assert loop.answers(TURN_ANSWERS_MAX) == [True] * TURN_ANSWERS_MAX
    assert loop.sent == list(range(TURN_ANSWERS_MAX))
    loop.answers(1)
    loop.end()
    assert loop.sent[TURN_ANSWERS_MAX:] == [0]


def test_none_is_kept_for_longer_than_a_moment() -> None:
    loop = busy_loop()
    loop.answers(7, took_s=0.00015)
    assert loop.sent == [0, 1, 2, 3, 4]
    loop.end()
    assert loop.sent == list(range(7))
