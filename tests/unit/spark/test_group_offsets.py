"""A query's progress in a consumer group."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.spark.cluster_view import Committed
from ottla.spark.errors import OptionError
from ottla.spark.group_offsets import RENEW_SECONDS, GroupOffsets
from ottla.spark.offsets import Position
from tests.unit.spark.memory_view import MemoryView


def at(offset: int, other: int = 7) -> Position:
    return Position({("t", 0): offset, ("t", 1): other}, {"t": "id"})


def offsets_of(view: MemoryView) -> dict[TopicPartition, int]:
    return {place: one.offset for place, one in view.groups["g"].items()}


def test_the_group_follows_the_query() -> None:
    view = MemoryView()
    group = GroupOffsets(view, "g", "1/a")
    assert group.keep(at(5))
    assert group.keep(at(9))
    assert offsets_of(view) == {("t", 0): 9, ("t", 1): 7}


def test_what_has_not_moved_is_not_committed_again() -> None:
    view = MemoryView()
    group = GroupOffsets(view, "g", "1/a")
    group.keep(at(5))
    view.groups["g"].clear()
    group.keep(at(5))
    group.keep(at(6))
    assert offsets_of(view) == {("t", 0): 6}


def test_partitions_at_rest_are_committed_once_a_day() -> None:
    view = MemoryView()
    now = [0.0]
    group = GroupOffsets(view, "g", "1/a", clock=lambda: now[0])
    group.keep(at(5))
    view.groups["g"].clear()  # a week without a commit
    now[0] += RENEW_SECONDS - 1
    group.keep(at(5))
    assert offsets_of(view) == {}
    now[0] += 1
    group.keep(at(5))
    assert offsets_of(view) == {("t", 0): 5, ("t", 1): 7}
    view.groups["g"].clear()
    group.keep(at(5))
    assert offsets_of(view) == {}


def test_a_report_that_comes_late_does_not_move_the_group_back() -> None:
    """The source commits as well, and may be batches ahead of what a listener hears."""
    view = MemoryView()
    source = GroupOffsets(view, "g", "1/a")
    listener = GroupOffsets(view, "g", "1/a", only_forward=True)
    source.keep(at(9))
    assert listener.keep(at(5, 8))
    assert offsets_of(view) == {("t", 0): 9, ("t", 1): 8}
    assert listener.keep(at(10, 8))
    assert offsets_of(view) == {("t", 0): 10, ("t", 1): 8}


def test_what_another_query_has_committed_holds_no_report_back() -> None:
    view = MemoryView()
    GroupOffsets(view, "g", "1/a").keep(at(9))
    assert GroupOffsets(view, "g", "2/b", only_forward=True).keep(at(5))
    assert offsets_of(view) == {("t", 0): 5, ("t", 1): 7}


def test_of_two_queries_in_one_group_the_younger_is_refused() -> None:
    view = MemoryView()
    older = GroupOffsets(view, "g", "1/a", look_around=True)
    younger = GroupOffsets(view, "g", "2/b", look_around=True)
    older.keep(at(5))
    younger.keep(at(3))
    older.keep(at(6))  # it goes on as if nothing were
    with pytest.raises(OptionError, match=r"another query commits.*group g.*kafka\.group\.id"):
        younger.keep(at(4))


def test_a_restart_finds_its_own_commits_and_those_of_the_dead() -> None:
    view = MemoryView()
    GroupOffsets(view, "g", "1/a", look_around=True).keep(at(5))
    for query in ("1/a", "2/b"):
        again = GroupOffsets(view, "g", query, look_around=True)
        again.keep(at(6))
        again.keep(at(7))
        assert offsets_of(view)["t", 0] == 7


def test_a_commit_that_fails_costs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryView):
        def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
            raise OttlaError("nobody answers")

    view = Away()
    group = GroupOffsets(view, "g", "1/a")
    with caplog.at_level(logging.WARNING):
        assert not group.keep(at(5))
    assert "group g not committed: nobody answers" in caplog.text
