"""How stretches of partitions become tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.ranges import OffsetRange, divided, tasks_of


def ranges_of(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", number, 100, 100 + size) for number, size in enumerate(sizes)]


def sizes_of(tasks: list[OffsetRange]) -> list[int]:
    return [task.size for task in tasks]


@pytest.mark.parametrize(
    ("sizes", "least", "most", "expected"),
    [
        ([10, 20], 0, None, [10, 20]),
        ([10, 0, 20], 0, None, [10, 20]),
        ([10], 3, None, [3, 3, 4]),
        ([10, 20], 3, None, [10, 10, 10]),
        ([1, 100], 4, None, [1, 33, 33, 34]),  # the small one is not divided
        ([2], 10, None, [1, 1]),
        ([10, 20], 0, 8, [5, 5, 6, 7, 7]),
        ([], 4, None, []),
    ],
)
def test_shares(sizes: list[int], least: int, most: int | None, expected: list[int]) -> None:
    assert sizes_of(tasks_of(ranges_of(*sizes), least, most)) == expected


@given(
    st.lists(st.integers(0, 500), max_size=6),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(1, 100)),
)
def test_every_offset_is_in_exactly_one_task(
    sizes: list[int], least: int, most: int | None
) -> None:
    ranges = ranges_of(*sizes)
    tasks = tasks_of(ranges, least, most)
    offsets = [(task.partition, offset) for task in tasks for offset in range(task.start, task.end)]
    assert offsets == [
        (one.partition, offset) for one in ranges for offset in range(one.start, one.end)
    ]
    assert all(task.size > 0 for task in tasks)
    if most is not None:
        assert all(task.size <= most for task in tasks)


def test_a_range_is_not_divided_into_more_parts_than_it_has_offsets() -> None:
    assert len(divided(OffsetRange("t", 0, 5, 7), 9)) == 2
