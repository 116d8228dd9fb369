"""Byte strings of several columns, row by row behind each other, in any order of the rows.

Arrow's views are 16 bytes for each string: its length, and where it is, or the string itself if it
is short. Those are what is put in order, by numpy; the bytes are moved once, to where they belong,
when Arrow makes plain strings of the views. To sort the rows first and join them then moves them
twice: of rows of 1 KB 0.31 µs each instead of 0.2, of 100 B 0.08 to 0.12 instead of 0.05.

Never looks into a string. No Python object per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.records.columns import Numbers

_VIEW = np.dtype("V16")
_INLINE_BYTES_MAX = 12


class Strings(NamedTuple):
    """A binary column; `order` names the rows in the order in which they are wanted, if they do not
    stand in it already. What is null has no bytes: Arrow makes its view an empty one, whatever
    stands behind it."""

    array: pa.Array
    order: Numbers | None = None


def gather(columns: Sequence[Strings], tail: bytes = b"") -> tuple[pa.Buffer, Numbers]:
    """The bytes of the first row of each column, of the second and so on, and the tail (of 12 bytes
    at most); where each row begins, and the tail."""
    count, rows = len(columns), len(columns[0].array)
    together = pa.concat_arrays([column.array.cast(pa.binary_view()) for column in columns])
    _, view_bytes, *data = together.buffers()
    views = np.frombuffer(view_bytes, _VIEW)[together.offset : together.offset + len(together)]
    wanted: npt.NDArray[np.void] = np.empty(rows * count + 1, _VIEW)
    grid = wanted[:-1].reshape(rows, count)
    for slot, column in enumerate(columns):
        part = views[slot * rows : (slot + 1) * rows]
        grid[:, slot] = part if column.order is None else part[column.order]
    wanted[-1:] = np.frombuffer(_inline(tail), _VIEW)
    buffers = [None, pa.py_buffer(wanted), *data]
    joined = pa.Array.from_buffers(pa.binary_view(), len(wanted), buffers).cast(pa.binary())
    _, edges, joined_bytes = joined.buffers()
    return joined_bytes, np.frombuffer(edges, np.int32)[::count][: rows + 1].astype(np.int64)


def _inline(short: bytes) -> bytes:
    assert len(short) <= _INLINE_BYTES_MAX
    return len(short).to_bytes(4, "little") + short.ljust(_INLINE_BYTES_MAX, b"\0")
