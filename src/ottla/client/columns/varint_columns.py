"""Whole columns of numbers as signed varints, in the shortest form, with numpy.

The other way of `ottla.records.columns.read_varints`: some 0.01 µs a number. Where all numbers of a
column are equally wide, as they mostly are, there is no width per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt

from ottla.records.columns import Bytes, Flags, Numbers

Codes = npt.NDArray[np.uint64]


class Varints:
    """A column of numbers. `widths` says how many bytes each takes, once if it is the same."""

    __slots__ = ("codes", "widths")

    def __init__(self, codes: Codes) -> None:
        self.codes = codes
        narrowest, widest = (_width(int(code)) for code in (codes.min(), codes.max()))
        self.widths: Numbers | int = narrowest
        if narrowest != widest:
            self.widths = np.full(len(codes), narrowest, np.int64)
            for groups in range(narrowest, widest):
                self.widths += codes >= (1 << (7 * groups))

    @classmethod
    def of(cls, values: Numbers) -> Varints:
        return cls(((values << 1) ^ (values >> 63)).view(np.uint64))

    @property
    def width_max(self) -> int:
        return self.widths if isinstance(self.widths, int) else int(self.widths.max())

    def fill(self, grid: Bytes, used: Flags, slot: int) -> None:
        """Into the columns of `grid` from `slot` on; `used` says which of them a row needs."""
        codes, widths = self.codes, self.widths
        if isinstance(widths, int):
            for place in range(widths - 1):
                grid[:, slot + place] = codes >> (7 * place) | 128
            grid[:, slot + widths - 1] = codes >> (7 * (widths - 1))
            return
        for place in range(self.width_max):
            low = (codes >> (7 * place) & 127).astype(np.uint8)
            grid[:, slot + place] = low | (widths > place + 1).view(np.uint8) << 7
            used[:, slot + place] = widths > place


def _width(code: int) -> int:
    return max(1, (code.bit_length() + 6) // 7)


class Pieces:
    """A byte string for each row, made of the same fields one after the other: numbers, or fixed
    bytes. `edges` are their positions in `packed`, and the end."""

    __slots__ = ("edges", "packed")

    def __init__(self, fields: Sequence[Varints | bytes], rows: int) -> None:
        widths = [len(field) if isinstance(field, bytes) else field.widths for field in fields]
        together: Numbers | int = reduce(add, widths)
        if isinstance(together, int):
            self.edges: Numbers = np.arange(0, (rows + 1) * together, together)
        else:
            self.edges = np.zeros(rows + 1, np.int64)
            np.cumsum(together, out=self.edges[1:])
        # Each field has room for its widest number; what rows do not need of that is left out at
        # the end, all at once. To write each number at its position takes three times as long.
        rooms = [len(field) if isinstance(field, bytes) else field.width_max for field in fields]
        grid: Bytes = np.empty((rows, sum(rooms)), np.uint8)
        used: Flags = np.ones(grid.shape, np.bool_)
        slot = 0
        for field, room in zip(fields, rooms, strict=True):
            if isinstance(field, bytes):
                grid[:, slot : slot + room] = np.frombuffer(field, np.uint8)
            else:
                field.fill(grid, used, slot)
            slot += room
        self.packed: Bytes = grid.ravel() if isinstance(together, int) else grid[used]
