"""Where a query starts and ends, and what is said when that cannot be known."""

from __future__ import annotations

import pytest

from ottla.spark.boundaries import resolve
from ottla.spark.cluster_view import Committed
from ottla.spark.errors import OptionError
from ottla.spark.source_options import Boundary
from tests.unit.spark.memory_view import MemoryView

PLACES = [("t", 0), ("t", 1)]


def view() -> MemoryView:
    found = MemoryView()
    found.put("t", 50, 60, first=10)
    return found


def test_ends_by_name() -> None:
    assert resolve(Boundary("earliest"), PLACES, view()) == {("t", 0): 10, ("t", 1): 10}
    assert resolve(Boundary("latest"), PLACES, view()) == {("t", 0): 50, ("t", 1): 60}


def test_offsets_with_names_among_them() -> None:
    boundary = Boundary("offsets", {"t": {0: 33, 1: -1}})
    assert resolve(boundary, PLACES, view()) == {("t", 0): 33, ("t", 1): 60}


def test_a_partition_that_was_forgotten_is_named() -> None:
    with pytest.raises(OptionError, match=r"startingOffsets must name every partition.*t-1 \(-2 "):
        resolve(Boundary("offsets", {"t": {0: 33}}), PLACES, view())
    # Times have no such names.
    with pytest.raises(OptionError, match=r"ByTimestamp must name every partition; missing: t-1$"):
        resolve(Boundary("timestamps", {"t": {0: 33}}), PLACES, view())
    with pytest.raises(OptionError, match=r"not subscribed to: t-2"):
        resolve(Boundary("offsets", {"t": {0: 1, 1: 1, 2: 1}}), PLACES, view())


def test_times() -> None:
    found = view()
    found.by_time = {("t", 0): 20, ("t", 1): 30}
    assert resolve(Boundary("timestamps", timestamp_ms=5), PLACES, found) == found.by_time
    each = Boundary("timestamps", {"t": {0: 5, 1: 5}})
    assert resolve(each, PLACES, found) == found.by_time


def test_a_time_after_the_last_record() -> None:
    found = view()
    found.by_time = {("t", 0): 20}
    with pytest.raises(OptionError, match="t-1 has no record at or after 5 ms"):
        resolve(Boundary("timestamps", timestamp_ms=5), PLACES, found)
    latest = Boundary("timestamps", timestamp_ms=5, after_last="latest")
    assert resolve(latest, PLACES, found) == {("t", 0): 20, ("t", 1): 60}


def test_from_where_a_group_is() -> None:
    found = view()
    with pytest.raises(OptionError, match="group g has committed no offset"):
        resolve(Boundary("group"), PLACES, found, group_id="g")
    found.commit("g", {("t", 0): Committed(44, "")})
    assert resolve(Boundary("group"), PLACES, found, group_id="g") == {("t", 0): 44, ("t", 1): 10}
