"""Rows of one shape: the short way gives the same bytes as the one that serves all rows."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

from ottla.client.columns.encode import Encoder, RowColumns
from ottla.client.columns.even_rows import ROW_BYTES_MAX, even_rows

NOW_MS = 1_794_857_750_896


def column(rows: int, size: int, skipped: int = 0) -> pa.Array:
    """Random values of one size; with some in front that are not part of it."""
    data = os.urandom((rows + skipped) * size)
    values = [data[at : at + size] for at in range(0, len(data), size)]
    return pa.array(values, pa.binary()).slice(skipped)


def rows_of(keys: pa.Array | None, values: pa.Array | None) -> RowColumns:
    rows = max(len(one) for one in (keys, values) if one is not None)
    return RowColumns(keys, values, None, np.full(rows, NOW_MS, np.int64))


@pytest.mark.parametrize("key_bytes", [None, 1, 8, 63, 64])
@pytest.mark.parametrize("value_bytes", [1, 50, 63, 64, 100, 1_000])
@pytest.mark.parametrize("cuts", [[0, 1], [0, 64, 130], [0, 65, 200, 201]])
def test_the_bytes_are_the_same(key_bytes: int | None, value_bytes: int, cuts: list[int]) -> None:
    keys = None if key_bytes is None else column(cuts[-1], key_bytes, 3)
    rows = rows_of(keys, column(cuts[-1], value_bytes, 5))
    even, usual = even_rows(rows), Encoder(rows)
    assert even is not None
    assert even.sizes_max.tolist() == usual.sizes_max.tolist()
    for one, other in zip(even.encode(cuts), usual.encode(cuts), strict=True):
        assert bytes(one.records) == bytes(other.records)
        assert one[1:] == other[1:]


def test_the_bytes_are_the_same_in_another_order() -> None:
    rows = rows_of(column(130, 8, 3), column(130, 50, 5))
    order = np.arange(130)[::-1]
    even = even_rows(rows, order)
    assert even is not None
    (one,), (other,) = even.encode([0, 130]), Encoder(rows, order).encode([0, 130])
    assert bytes(one.records) == bytes(other.records)


def test_numbers_of_three_bytes() -> None:
    rows = rows_of(None, column(8_300, 3))
    even = even_rows(rows)
    assert even is not None
    (one,), (other,) = even.encode([0, 8_300]), Encoder(rows).encode([0, 8_300])
    assert bytes(one.records) == bytes(other.records)


@pytest.mark.parametrize(
    "rows",
    [
        rows_of(None, pa.array([b"a", b"bc"], pa.binary())),
        rows_of(None, pa.array([b"a", None], pa.binary())),
        rows_of(None, pa.array([b"", b""], pa.binary())),
        rows_of(pa.array([b"a", b"bc"], pa.binary()), pa.array([b"a", b"b"], pa.binary())),
        rows_of(pa.array([None, b"b"], pa.binary()), pa.array([b"a", b"b"], pa.binary())),
        rows_of(pa.array([b"a", b"b"], pa.binary()), None),
        rows_of(None, pa.array([bytes(ROW_BYTES_MAX + 1)], pa.binary())),
        rows_of(None, pa.array([b"a", b"b"], pa.binary()))._replace(
            timestamps=np.array([1, 2], np.int64)
        ),
        rows_of(None, pa.array([b"a"], pa.binary()))._replace(
            headers=pa.array([[{"key": "h", "value": b"1"}]])
        ),
    ],
)
def test_other_rows_take_the_usual_way(rows: RowColumns) -> None:
    assert even_rows(rows) is None
