"""What varints of one and two bytes stand for, by their bytes: for judging many of them at once.

A table is a list by the byte, or by two bytes as a little-endian word. What is no varint of that
width stands for a number larger than any size and any delta, so that no sum of fields can hide it.
Made when the broker starts, so by slices: entry by entry they would take 30 ms of that.
"""

from __future__ import annotations

from typing import Final

NOT_THAT_WIDE: Final = 1 << 64

DELTA_1_MIN: Final = -64
DELTA_2_MIN: Final = -8192


def _make_size_tables() -> tuple[list[int], list[int], list[int]]:
    """By the first one or two bytes: how long a thing with a length in front is, length included.

    The first two tables are for the length of a record in one and in two bytes. The third is for
    a value, in either width, where -1 (null) stands for no bytes.
    """
    one = [-NOT_THAT_WIDE] * 256
    two = [-NOT_THAT_WIDE] * 65536
    one[0:128:2] = range(1, 65)  # odd codes are negative
    for high in range(128):
        shortest = 2 + (high << 6)
        two[high << 8 | 128 : (high + 1) << 8 : 2] = range(shortest, shortest + 64)
    value = two.copy()
    for low in range(128):
        value[low::256] = [one[low]] * 256
    value[1::256] = [1] * 256
    value[0x0081] = 2  # null too, written longer than it needs to be
    return one, two, value


def _make_delta_tables() -> tuple[list[int], list[int]]:
    """By the one or two bytes of a timestamp delta: its value."""
    one = [NOT_THAT_WIDE] * 256
    two = [NOT_THAT_WIDE] * 65536
    one[0:128:2] = range(64)
    one[1:128:2] = range(-1, -65, -1)
    for high in range(128):
        least = high << 6
        begin, end = high << 8 | 128, (high + 1) << 8
        two[begin:end:2] = range(least, least + 64)
        two[begin + 1 : end : 2] = range(-1 - least, -65 - least, -1)
    return one, two


def _bytes_not_above(value: int) -> bytes:
    negatives = range(1 if value >= 0 else -2 * value - 1, 128, 2)
    return bytes((*range(0, 2 * value + 1, 2), *negatives))


LENGTH_1, LENGTH_2, VALUE_SIZE = _make_size_tables()
DELTA_1, DELTA_2 = _make_delta_tables()

# By a one-byte delta: every byte that stands for a smaller or equal one.
NOT_ABOVE: Final = [_bytes_not_above(value) for value in DELTA_1[:128]]
