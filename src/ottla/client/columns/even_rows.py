"""Rows of one shape as records: where all keys are as long as each other, and all values, and all
rows have one time, the bytes of a batch differ from those of the last one in keys and values alone.

Everything else is written once for a shape and a number of records (`_Skeleton`), and copied; keys
and values go into it as whole blocks. A quarter of what `encode.Encoder` takes, which serves all
other rows and must give the same bytes.

Never decides where batches begin. No Python object per record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.client.columns.encode import RECORD_OVERHEAD_MAX, RecordStretch, RowColumns
from ottla.records.columns import Numbers
from ottla.records.varints import varint

Bytes = npt.NDArray[np.uint8]

ROW_BYTES_MAX = 4_096
"""Of keys and values: of larger rows little is won."""

_NO_KEY = -1
# Up to which place in its batch the number of a record takes one byte, two and so on.
_WIDTH_ENDS = (1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 31)


class _Block(NamedTuple):
    """Records of one size, one behind the other."""

    first: int
    """Its first record, counted from the begin of the batch."""
    end: int
    position: int
    record_bytes: int
    key_at: int
    value_at: int


class _Skeleton(NamedTuple):
    records: Bytes
    blocks: list[_Block]


class EvenRows:
    """The same face as `encode.Encoder`; made by `even_rows`."""

    __slots__ = ("_key_bytes", "_keys", "_time_ms", "_value_bytes", "_values", "sizes_max")

    def __init__(self, keys: Bytes | None, values: Bytes, time_ms: int) -> None:
        self._keys = keys
        self._values = values
        self._key_bytes = _NO_KEY if keys is None else keys.shape[1]
        self._value_bytes = values.shape[1]
        self._time_ms = time_ms
        size_max = RECORD_OVERHEAD_MAX + 1  # the number of headers
        for length in (self._key_bytes, self._value_bytes):
            size_max += len(varint(length)) + max(length, 0)
        self.sizes_max: Numbers = np.full(len(values), size_max, np.int64)

    def encode(self, cuts: Sequence[int]) -> Iterator[RecordStretch]:
        """Batches of the rows from each cut to the next; the first is 0, the last the end."""
        for begin, end in pairwise(cuts):
            skeleton = _skeleton(self._key_bytes, self._value_bytes, end - begin)
            records = skeleton.records.copy()
            for block in skeleton.blocks:
                self._fill(records, block, begin)
            yield RecordStretch(records.data, end - begin, self._time_ms, self._time_ms)

    def _fill(self, records: Bytes, block: _Block, begin: int) -> None:
        count = block.end - block.first
        last = block.position + count * block.record_bytes
        grid = records[block.position : last].reshape(count, block.record_bytes)
        rows = slice(begin + block.first, begin + block.end)
        if self._keys is not None:
            grid[:, block.key_at : block.key_at + self._key_bytes] = self._keys[rows]
        grid[:, block.value_at : block.value_at + self._value_bytes] = self._values[rows]


def even_rows(rows: RowColumns, order: Numbers | None = None) -> EvenRows | None:
    """These rows, or those of an order; None where they are not of one shape, or nothing is won."""
    times = rows.timestamps
    if rows.headers is not None or rows.values is None or (times != times[0]).any():
        return None
    values = _as_grid(rows.values)
    if values is None:
        return None
    keys = None
    if rows.keys is not None:
        keys = _as_grid(rows.keys)
        if keys is None:
            return None
    if values.shape[1] + (0 if keys is None else keys.shape[1]) > ROW_BYTES_MAX:
        return None
    if order is not None:
        keys, values = None if keys is None else keys[order], values[order]
    return EvenRows(keys, values, int(times[0]))


def _as_grid(array: pa.Array) -> Bytes | None:
    """The bytes of a binary array, a row for each value; None if they differ in length."""
    if array.null_count:
        return None
    _, edge_bytes, data = array.buffers()
    edges = np.frombuffer(edge_bytes, np.int32)[array.offset : array.offset + len(array) + 1]
    size = int(edges[1]) - int(edges[0])
    if size == 0 or ((edges[1:] - edges[:-1]) != size).any():
        return None
    flat = np.frombuffer(data, np.uint8)[int(edges[0]) : int(edges[-1])]
    return flat.reshape(len(array), size)


@lru_cache(maxsize=2)
def _skeleton(key_bytes: int, value_bytes: int, count: int) -> _Skeleton:
    """So many records without their keys and values; full batches of a table are all alike."""
    blocks: list[_Block] = []
    grids: list[Bytes] = []
    first = position = 0
    for width, width_end in enumerate(_WIDTH_ENDS, 1):
        end = min(width_end, count)
        if end <= first:
            break
        grid, key_at, value_at = _grid(key_bytes, value_bytes, first, end, width)
        blocks.append(_Block(first, end, position, grid.shape[1], key_at, value_at))
        grids.append(grid.ravel())
        position += grid.size
        first = end
    return _Skeleton(np.concatenate(grids), blocks)


def _grid(
    key_bytes: int, value_bytes: int, first: int, end: int, width: int
) -> tuple[Bytes, int, int]:
    """Records whose numbers take `width` bytes; where in each its key and its value are."""
    key_head, value_head = varint(key_bytes), varint(value_bytes)
    key_room = max(key_bytes, 0)
    # Attributes and the time are one byte each, and so is the number of headers.
    body_bytes = 3 + width + len(key_head) + key_room + len(value_head) + value_bytes
    head = varint(body_bytes) + b"\0\0"
    number_at = len(head)
    key_at = number_at + width + len(key_head)
    value_at = key_at + key_room + len(value_head)
    grid = np.zeros((end - first, value_at + value_bytes + 1), np.uint8)
    grid[:, :number_at] = np.frombuffer(head, np.uint8)
    numbers = np.arange(first, end, dtype=np.int64) << 1
    for place in range(width):
        more = 128 if place < width - 1 else 0
        grid[:, number_at + place] = numbers >> 7 * place & 127 | more
    grid[:, number_at + width : key_at] = np.frombuffer(key_head, np.uint8)
    grid[:, key_at + key_room : value_at] = np.frombuffer(value_head, np.uint8)
    return grid, key_at, value_at
