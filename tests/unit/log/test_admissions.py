"""Goal: a yes of the coordinator counts for one leadership and until the transaction is over."""

from __future__ import annotations

import pytest

from ottla.log.admissions import Admissions


@pytest.fixture
def admissions() -> Admissions:
    return Admissions()


def test_a_yes_is_remembered(admissions: Admissions) -> None:
    assert not admissions.has(0, 7, 0)
    ticket = admissions.ask(0, 7)
    assert not admissions.has(0, 7, 0)
    assert admissions.admit(0, 7, 3, ticket)
    assert admissions.has(0, 7, 3)
    assert not admissions.has(0, 7, 2)
    assert not admissions.has(0, 8, 3)


def test_the_next_leadership_knows_nothing(admissions: Admissions) -> None:
    assert admissions.admit(0, 7, 0, admissions.ask(0, 7))
    late = admissions.ask(0, 8)
    assert not admissions.has(1, 7, 0)
    assert not admissions.admit(1, 8, 0, late)
    admissions.ask(1, 9)
    assert not admissions.has(0, 7, 0)


def test_a_yes_that_comes_too_late(admissions: Admissions) -> None:
    ticket = admissions.ask(0, 7)
    admissions.revoke(7)
    assert not admissions.admit(0, 7, 0, ticket)
    again = admissions.ask(0, 7)
    assert again != ticket
    assert not admissions.admit(0, 7, 0, ticket)
    assert admissions.admit(0, 7, 0, again)
    admissions.revoke(7)
    assert not admissions.has(0, 7, 0)


def test_questions_of_the_same_time(admissions: Admissions) -> None:
    first, second, third = (admissions.ask(0, 7) for _ in range(3))
    assert admissions.admit(0, 7, 0, first)
    assert admissions.admit(0, 7, 0, second)
    admissions.revoke(7)
    assert not admissions.admit(0, 7, 0, third)


def test_a_no_tears_the_ticket_up(admissions: Admissions) -> None:
    first, second = admissions.ask(0, 7), admissions.ask(0, 7)
    admissions.refuse(7, first)
    assert not admissions.admit(0, 7, 0, second)
    assert len(admissions) == 0
