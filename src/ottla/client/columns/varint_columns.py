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

from ottla.records.columns import Bytes, Numbers

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

    def write(self, packed: Bytes, at: Numbers) -> None:
        """Each at its position."""
        codes, widths = self.codes, self.widths
        if isinstance(widths, int):
            for place in range(widths - 1):
                packed[at + place] = (codes >> (7 * place) & 127 | 128).astype(np.uint8)
            packed[at + (widths - 1)] = (codes >> (7 * (widths - 1))).astype(np.uint8)
            return
        place = 0
        while len(at):
            is_last = widths == place + 1
            low = (codes & 127).astype(np.uint8)
            packed[at + place] = low | (~is_last).view(np.uint8) << 7
            place += 1
            going_on = np.flatnonzero(~is_last)
            at, widths, codes = at[going_on], widths[going_on], codes[going_on]
            codes >>= np.uint64(7)


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
        self.packed: Bytes = np.empty(int(self.edges[-1]), np.uint8)
        at = self.edges[:-1]
        for field, width in zip(fields, widths, strict=True):
            if isinstance(field, bytes):
                for place, byte in enumerate(field):
                    self.packed[at + place] = byte
            else:
                field.write(self.packed, at)
            at = at + width
