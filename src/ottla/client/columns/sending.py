"""A table as record batches, ready for a producer: which columns, which partitions, which cuts.

Takes the table window by window, so that memory stays small and numpy's arrays stay in the cache;
in each window, rows are put in the order of their partitions, cut into batches and encoded at once.

Never sends anything. Always holds: rows of one partition stay in the order of the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.base.ports import Buffer
from ottla.client.columns.encode import Encoder, RecordStretch, RowColumns, cut_by_size
from ottla.client.columns.errors import ColumnError
from ottla.client.columns.even_rows import even_rows
from ottla.client.columns.partitioning import partitions_of_keys
from ottla.client.columns.table import HEADER_TYPE
from ottla.client.errors import RecordTooLargeError
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import INT_MAX
from ottla.protocol.error_codes import MESSAGE_TOO_LARGE
from ottla.records.batch_header import HEADER, HEADER_SIZE, LENGTH_END, MAGIC_V2
from ottla.records.columns import Numbers
from ottla.records.compression import CODEC_NAMES, NONE, compress

WINDOW_ROWS_MAX = 12_288
WINDOW_BYTES_MAX = 16 * 1024 * 1024
_WINDOW_BYTES_LIMIT = 4 * WINDOW_BYTES_MAX
BATCH_BYTES = 256 * 1024
"""A table is there already: its batches need not be as small as those of records that come one by
one. Larger ones are compressed better and cost the broker less."""

NO_PARTITION = -1

_EMPTY_HEADER = bytes(HEADER_SIZE)


class TableColumns(NamedTuple):
    """The names of the columns to send; None for what records are not to have."""

    key: str | None
    value: str | None
    headers: str | None
    timestamp: str | None
    partition_by: str | None


class BatchRules(NamedTuple):
    """What the producer's settings say about batches."""

    batch_bytes: int
    request_bytes: int
    codec: int
    level: int | None
    is_round_robin: bool
    ignores_keys: bool


def rules_of(settings: ProducerSettings, level: int | None) -> BatchRules:
    if callable(settings.partitioner_class):
        raise ColumnError(
            "a function as partitioner.class is asked record by record: name a column of"
            " partitions (partition_by) instead"
        )
    return BatchRules(
        max(settings.batch_size, BATCH_BYTES),
        settings.max_request_size,
        CODEC_NAMES.index(settings.compression_type),
        level,
        settings.round_robin,
        settings.partitioner_ignore_keys,
    )


class EncodedBatch(NamedTuple):
    partition: int
    """NO_PARTITION if it may go anywhere."""
    encoded: bytearray
    record_count: int


def as_table(given: Any) -> pa.Table:
    """Arrow as it is; pandas, polars and everything else by their Arrow bridges."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    name = type(given).__name__
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return pa.table(given)
        if hasattr(given, "__dataframe__"):
            return pa.Table.from_pandas(given, preserve_index=False)
    except pa.ArrowException as cause:
        raise ColumnError(f"no Arrow table can be made of this {name}: {cause}") from cause
    if hasattr(given, "collect"):
        raise ColumnError(f"a {name} is no table yet: collect() it")
    raise ColumnError(f"a {name} is no table: Arrow, pandas or polars is needed")


class TableEncoder:
    """One table on its way to one topic."""

    def __init__(
        self,
        table: pa.Table,
        columns: TableColumns,
        rules: BatchRules,
        now_ms: int,
    ) -> None:
        self._rules = rules
        self._now_ms = now_ms
        self._rows = table.num_rows
        self._columns = columns
        self._keys = _column(table, columns.key)
        self._values = _column(table, columns.value)
        self._headers = _column(table, columns.headers)
        self._times = _column(table, columns.timestamp)
        self._by = _column(table, columns.partition_by)
        if self._rows:  # an empty frame of pandas has no types
            self._check_types()
        columns_used = (self._keys, self._values, self._headers)
        self._used = [column for column in columns_used if column is not None]
        size = sum(column.nbytes for column in self._used)
        mean_bytes = max(1, size // max(1, self._rows))
        self._window_rows = max(1, min(WINDOW_ROWS_MAX, WINDOW_BYTES_MAX // mean_bytes))
        largest_bytes = sum(map(_largest_bytes, self._used))
        self._is_even = largest_bytes * self._window_rows <= _WINDOW_BYTES_LIMIT

    def batches(self, partition_count: int) -> Iterator[EncodedBatch]:
        first = 0
        while first < self._rows:
            rows = self._rows_of_window(first)
            try:
                columns = self._window(first, rows)
                partitions = self._partitions(first, rows, columns.keys, partition_count)
            except pa.ArrowException as cause:
                raise ColumnError(f"rows {first} to {first + rows - 1}: {cause}") from cause
            yield from self._encode(first, columns, partitions)
            first += rows

    def _rows_of_window(self, first: int) -> int:
        """Fewer than elsewhere in the table where rows are large."""
        rows: int = min(self._window_rows, self._rows - first)
        if not self._is_even:
            while rows > 1 and self._bytes_of(first, rows) > _WINDOW_BYTES_LIMIT:
                rows //= 2
        return rows

    def _bytes_of(self, first: int, rows: int) -> int:
        return sum(column.slice(first, rows).nbytes for column in self._used)

    # -- columns ---------------------------------------------------------------------------------

    def _check_types(self) -> None:
        for name, column in (("key", self._keys), ("value", self._values)):
            if column is not None and not _is_bytes(column.type):
                raise ColumnError(
                    f"{name}={getattr(self._columns, name)!r} is of type {column.type}: binary or"
                    " string is needed; cast it, or encode it first"
                )
        if self._headers is not None and not _are_headers(self._headers.type):
            raise ColumnError(
                f"headers={self._columns.headers!r} is of type {self._headers.type}:"
                " list<struct<key: string, value: binary>> is needed"
            )
        if self._times is not None and not _is_time(self._times.type):
            raise ColumnError(
                f"timestamp={self._columns.timestamp!r} is of type {self._times.type}:"
                " a timestamp or milliseconds are needed"
            )
        by = self._by
        if by is not None and not (pa.types.is_integer(by.type) or _is_bytes(by.type)):
            raise ColumnError(
                f"partition_by={self._columns.partition_by!r} is of type {by.type}: numbers of"
                " partitions, or binary or string to be hashed like keys, are needed"
            )

    def _window(self, first: int, rows: int) -> RowColumns:
        headers = None
        if self._headers is not None:
            headers = _slice(self._headers, first, rows, pa.list_(HEADER_TYPE))
            pairs = headers.flatten()
            if pairs.null_count or pairs.field(0).null_count:
                raise ColumnError(f"headers={self._columns.headers!r}: a header has no key")
        return RowColumns(
            None if self._keys is None else _slice(self._keys, first, rows, pa.binary()),
            None if self._values is None else _slice(self._values, first, rows, pa.binary()),
            headers,
            self._timestamps(first, rows),
        )

    def _timestamps(self, first: int, rows: int) -> Numbers:
        if self._times is None:
            return np.full(rows, self._now_ms, np.int64)
        wanted = pa.int64() if pa.types.is_integer(self._times.type) else pa.timestamp("ms")
        times = _slice(self._times, first, rows, wanted).cast(pa.int64())
        if times.null_count:
            times = times.fill_null(self._now_ms)
        found: Numbers = times.to_numpy()
        if found.min() < 0:
            row = first + int(found.argmin())
            raise ColumnError(
                f"timestamp={self._columns.timestamp!r}: row {row} is of a time before 1970"
            )
        return found

    def _partitions(
        self, first: int, rows: int, keys: pa.Array | None, partition_count: int
    ) -> Numbers:
        if self._by is None:
            if self._rules.is_round_robin:
                return np.arange(first, first + rows) % partition_count
            if keys is None or self._rules.ignores_keys:
                return np.full(rows, NO_PARTITION, np.int64)
            return partitions_of_keys(keys, partition_count)
        if not pa.types.is_integer(self._by.type):
            return partitions_of_keys(_slice(self._by, first, rows, pa.binary()), partition_count)
        column = _slice(self._by, first, rows, pa.int64())
        given: Numbers = column.drop_null().to_numpy()
        if len(given) and not (given.min() >= 0 and given.max() < partition_count):
            raise ColumnError(
                f"partition_by={self._columns.partition_by!r}: the topic has partitions 0 to"
                f" {partition_count - 1}, not {given.min()} to {given.max()}"
            )
        partitions: Numbers = column.fill_null(NO_PARTITION).to_numpy()
        return partitions

    # -- batches ---------------------------------------------------------------------------------

    def _encode(
        self, first: int, columns: RowColumns, partitions: Numbers
    ) -> Iterator[EncodedBatch]:
        order = None
        if (partitions[1:] != partitions[:-1]).any():
            order = np.argsort(partitions, kind="stable")
            partitions = partitions[order]
        encoder = even_rows(columns, order) or Encoder(columns, order)
        self._check_sizes(encoder.sizes_max, first, order)
        bounds = np.flatnonzero(partitions[1:] != partitions[:-1]) + 1
        edges = [0, *bounds.tolist(), len(partitions)]
        limit = min(self._rules.batch_bytes, self._rules.request_bytes) - HEADER_SIZE
        cuts: list[int] = []
        for start, end in pairwise(edges):
            cuts += cut_by_size(encoder.sizes_max, start, end, limit)
        places = partitions[cuts].tolist()
        for place, stretch in zip(places, encoder.encode([*cuts, len(partitions)]), strict=True):
            yield EncodedBatch(place, self._batch(stretch), stretch.record_count)

    def _check_sizes(self, sizes_max: Numbers, first: int, order: Numbers | None) -> None:
        largest = int(sizes_max.argmax())
        size = int(sizes_max[largest]) + HEADER_SIZE
        if size > self._rules.request_bytes:
            row = first + (largest if order is None else int(order[largest]))
            raise RecordTooLargeError(
                MESSAGE_TOO_LARGE,
                f"row {row} of the table",
                f"it may take {size} bytes, max.request.size is {self._rules.request_bytes};"
                " rows of earlier windows have been sent",
            )

    def _batch(self, stretch: RecordStretch) -> bytearray:
        codec = self._rules.codec
        records: Buffer = stretch.records
        if codec != NONE:
            records = compress(codec, records, self._rules.level)
        encoded = bytearray().join((_EMPTY_HEADER, records))  # one copy, and no zeros before it
        # The producer's numbers and the checksum are set when it is sent.
        HEADER.pack_into(
            encoded,
            0,
            0,
            len(encoded) - LENGTH_END,
            -1,
            MAGIC_V2,
            0,
            codec,
            stretch.record_count - 1,
            stretch.base_timestamp,
            stretch.max_timestamp,
            -1,
            -1,
            -1,
            stretch.record_count,
        )
        return encoded


def _column(table: pa.Table, name: str | None) -> pa.ChunkedArray | None:
    if name is None:
        return None
    places = table.schema.get_all_field_indices(name)
    if len(places) != 1:
        known = ", ".join(table.column_names)
        raise ColumnError(f"the table has {len(places)} columns {name!r}; there are {known}")
    column = table.column(places[0])
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if pa.types.is_dictionary(column.type):
        column = _without_dictionary(column)
    return column


def _without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not _is_bytes(column.type.value_type):
        return column.cast(column.type.value_type)
    # Arrow has no such cast for the views of polars, and 32 bits may be too few for all values.
    plain = pa.large_binary()
    chunks = [one.dictionary.cast(plain).take(one.indices) for one in column.chunks]
    return pa.chunked_array(chunks, plain)


def _largest_bytes(column: pa.ChunkedArray) -> float:
    """Of one row; without an end where that takes long to find out."""
    types, kind = pa.types, column.type
    if types.is_binary(kind) or types.is_string(kind) or types.is_large_binary(kind):
        return pc.max(pc.binary_length(column)).as_py() or 0
    return math.inf


def _slice(column: pa.ChunkedArray, first: int, rows: int, kind: pa.DataType) -> pa.Array:
    chunks = column.slice(first, rows).chunks
    arrays = [chunk if chunk.type == kind else _as_kind(chunk, kind) for chunk in chunks]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _as_kind(chunk: pa.Array, kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_large_binary(chunk.type) or types.is_large_string(chunk.type):
        edges = np.frombuffer(chunk.buffers()[1], np.int64)
        if edges[chunk.offset + len(chunk)] > INT_MAX:
            # It lies far behind in a large buffer: a copy begins at its own beginning.
            chunk = chunk.take(pa.array(np.arange(len(chunk))))
    # Parts of a millisecond are left out; else nothing may get lost.
    is_finer = types.is_timestamp(chunk.type) and chunk.type.unit in ("us", "ns")
    return chunk.cast(kind, safe=not is_finer)


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_string(kind)
        or types.is_large_binary(kind)
        or types.is_large_string(kind)
        or types.is_binary_view(kind)
        or types.is_string_view(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_null(kind)
    )


def _are_headers(kind: pa.DataType) -> bool:
    types = pa.types
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return False
    pair = kind.value_type
    return bool(
        types.is_struct(pair)
        and [field.name for field in pair] == ["key", "value"]
        and all(_is_bytes(field.type) for field in pair)
    )


def _is_time(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_timestamp(kind) or types.is_date(kind) or types.is_integer(kind))
