"""Rows of a DataFrame as records: which column is what, and which rows cannot be records.

Pure, on Arrow columns. The columns are the stock connector's: `value`, and as far as there are any
`key`, `headers`, `topic`, `partition`; texts become their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.columns.encode import RowColumns
from ottla.client.columns.partitioning import partitions_of_keys
from ottla.records.columns import Numbers
from ottla.spark.decisions import TOPIC as DECISIONS
from ottla.spark.errors import OptionError, RowError

COLUMNS = ("key", "value", "headers", "topic", "partition")


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Rows for one topic; `partitions` has -1 where the row names none, and no key either."""

    topic: str
    rows: RowColumns
    given: Numbers | None


def check_columns(names: list[str], types: list[str], topic: str) -> None:
    """`types` as Spark spells them; raises OptionError that names the column. As with the stock
    connector, other columns are left out, and the option `topic` goes before the column."""
    for name in names:
        if name not in COLUMNS and name.strip().lower() in COLUMNS:
            raise OptionError(f"column {name!r} would be left out: it is {name.strip().lower()}")
        if name in COLUMNS and names.count(name) > 1:
            raise OptionError(f"there are two columns named {name}: keep one")
    if "value" not in names:
        raise OptionError(
            "a record needs a column named value, such as to_json(struct(*)) AS value"
        )
    if not topic and "topic" not in names:
        raise OptionError("where to? Set the option topic, or have a column named topic")
    allowed = {
        "key": ("string", "binary"),
        "value": ("string", "binary"),
        "topic": ("string",),
        "partition": ("int",),
        "headers": ("array<struct<key:string,value:binary>>",),
    }
    if topic:
        del allowed["topic"]
    for name, kind in zip(names, types, strict=True):
        if kind not in allowed.get(name, (kind,)):
            raise OptionError(
                f"column {name} is {kind}, and must be {' or '.join(allowed[name])}: cast it"
            )


def topics_of(batch: pa.RecordBatch, topic: str, now_ms: int) -> Iterator[TopicRows]:
    """The rows of each topic of a batch."""
    names = batch.schema.names
    given = _partitions(batch.column("partition")) if "partition" in names else None
    rows = RowColumns(
        _bytes(batch, "key"),
        _bytes(batch, "value"),
        _headers(batch.column("headers")) if "headers" in names else None,
        np.full(batch.num_rows, now_ms, np.int64),
    )
    if topic:
        yield TopicRows(topic, rows, given)
        return
    column = batch.column("topic")
    if column.null_count:
        raise RowError("a row has no topic: its column topic is null")
    for one in pc.unique(column).to_pylist():
        if one == DECISIONS:
            raise RowError(
                f"a row names topic {DECISIONS} in its column topic, which holds what sinks have "
                "decided: choose another"
            )
        order = np.flatnonzero(pc.equal(column, one).to_numpy(zero_copy_only=False))
        yield TopicRows(one, rows.take(order), None if given is None else given[order])


def placed(rows: TopicRows, count: int, turn: int) -> Numbers:
    """A partition for each row: the one it names, that of its key, or one after the other. Rows
    without a key go to one partition in a stretch, so that batches stay large."""
    size = len(rows.rows.timestamps)
    keys = rows.rows.keys
    if keys is None or keys.null_count == size:
        partitions = np.full(size, -1, np.int64)
    else:
        partitions = partitions_of_keys(keys, count)
    if rows.given is not None:
        if len(rows.given) and int(rows.given.max()) >= count:
            raise RowError(
                f"a row names partition {int(rows.given.max())}, but {rows.topic} has {count}"
            )
        partitions = np.where(rows.given >= 0, rows.given, partitions)
    free = np.flatnonzero(partitions < 0)
    if len(free):
        stretch = -(-len(free) // count)
        partitions[free] = (np.arange(len(free)) // stretch + turn) % count
    return partitions


def _bytes(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _headers(column: Any) -> Any:
    pairs = column.flatten()
    if pairs.null_count or pairs.field("key").null_count:
        raise RowError("a row has a header that is null, or has no key, in its column headers")
    return column


def _partitions(column: Any) -> Numbers:
    # Before -1 takes the place of what is null: as with the stock connector, only null is none.
    least = pc.min(column).as_py()
    if least is not None and least < 0:
        raise RowError(f"a row names partition {least}: null is for any partition")
    found: Numbers = column.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found
