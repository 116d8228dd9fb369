"""Goal: a Deferred tells its value or its error exactly once, to everybody who asked."""

from __future__ import annotations

import pytest

from ottla.base.deferred import Deferred
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
