"""Goal: a Deferred tells its value or its error exactly once, to everybody who asked."""

from __future__ import annotations

import pytest

from ottla.base.deferred import Deferred, all_of
from ottla.base.errors import InvariantError


def test_callbacks_hear_the_value_whenever_they_were_added() -> None:
    deferred: Deferred[int] = Deferred()
    heard: list[int] = []
    deferred.when_done(lambda done: heard.append(done.result()))
    deferred.resolve(7)
    deferred.when_done(lambda done: heard.append(done.result() + 1))
    assert heard == [7, 8]


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.fail(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        deferred.result()


def test_it_is_resolved_only_once() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.resolve(1)
    with pytest.raises(InvariantError):
        deferred.resolve(2)
    with pytest.raises(InvariantError):
        deferred.fail(ValueError())


def test_there_is_no_result_before_it_is_done() -> None:
    with pytest.raises(InvariantError):
        Deferred[int]().result()


def test_all_of_waits_for_the_last_and_tells_a_failure() -> None:
    first: Deferred[int] = Deferred()
    second: Deferred[str] = Deferred()
    whole = all_of([first, second])
    first.fail(ValueError("no"))
    assert not whole.done
    second.resolve("yes")
    with pytest.raises(ValueError, match="no"):
        whole.result()


def test_all_of_nothing_is_done() -> None:
    assert all_of([]).done


def test_one_tells_another_what_came_of_it() -> None:
    source: Deferred[int] = Deferred()
    target: Deferred[int] = Deferred()
    source.when_done(lambda done: done.tell(target))
    source.resolve(3)
    assert target.result() == 3
    failed: Deferred[int] = Deferred()
    failed.fail(ValueError("no"))
    told: Deferred[int] = Deferred()
    failed.tell(told)
    with pytest.raises(ValueError, match="no"):
        told.result()
