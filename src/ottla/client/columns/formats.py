"""What the formats of keys and values share: rows that cannot be read, and rows without a value.

A format decodes many rows at once and knows only that some of them are broken. Here the broken ones
are found by halves, so that one of them among a million costs some twenty attempts and not a
million; they are raised, or become null where the caller wants that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa

from ottla.client.columns.errors import ColumnError
from ottla.records.columns import Numbers


class BrokenRows(Exception):
    """Some of the rows are not what their format says."""


class Format(ABC):
    """Decodes a column of bytes into one of `type`."""

    def __init__(self, type_: pa.DataType, errors: str) -> None:
        if errors not in ("raise", "null"):
            raise ColumnError(f"errors={errors!r}: 'raise' or 'null' is needed")
        self.type = type_
        self._errors = errors

    def decode(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Null stays null."""
        chunks = []
        first = 0
        for chunk in column.chunks:
            if len(chunk):
                chunks.append(self._decode_chunk(chunk, first))
            first += len(chunk)
        return pa.chunked_array(chunks, self.type)

    def _decode_chunk(self, values: pa.Array, first: int) -> pa.Array:
        if values.null_count == 0:
            return self._decode_some(values, np.arange(first, first + len(values)))
        missing = values.is_null().to_numpy(zero_copy_only=False)
        present = np.flatnonzero(~missing)
        if not len(present):
            return pa.nulls(len(values), self.type)
        decoded = self._decode_some(values.take(pa.array(present)), first + present)
        places = np.zeros(len(values), np.int64)
        places[present] = np.arange(len(present))
        return decoded.take(pa.array(places, mask=missing))

    def _decode_some(self, values: pa.Array, rows: Numbers) -> pa.Array:
        """`rows` are their places in the column."""
        try:
            return self.decode_rows(values)
        except BrokenRows as cause:
            if len(values) > 1:
                half = len(values) // 2
                return pa.concat_arrays(
                    [
                        self._decode_some(values.slice(0, half), rows[:half]),
                        self._decode_some(values.slice(half), rows[half:]),
                    ]
                )
            if self._errors == "null":
                return pa.nulls(1, self.type)
            raise ColumnError(f"row {rows[0]} is {cause}: {_shown(values[0].as_py())}") from cause

    @abstractmethod
    def decode_rows(self, values: pa.Array) -> pa.Array:
        """All of these, none of which is null, or BrokenRows."""


def _shown(value: bytes) -> str:
    return repr(value[:80]) + ("..." if len(value) > 80 else "")
