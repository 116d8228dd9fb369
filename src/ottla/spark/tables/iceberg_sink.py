"""Iceberg tables by pyiceberg, no jar: the format `ottla-iceberg`.

Tasks write data files into the table's location. The driver adds them in one snapshot, whose
properties say which query and batch it is and which offsets it ends at. A batch whose snapshot is
there already is not added again; a commit that another writer has overtaken is looked at anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.spark.crash_points import crash_point
from ottla.spark.errors import OptionError, RowError, SinkConflict
from ottla.spark.lasting_objects import OF_THIS_PROCESS
from ottla.spark.shipped import Shipped
from ottla.spark.source_options import Given
from ottla.spark.tables.batch_offsets import checkpoint_of, offsets_of_batch
from ottla.spark.tasks import StreamTask, this_task

if TYPE_CHECKING:
    import pyarrow as pa

NAMES = ("table", "checkpointLocation", "queryName", "path")
CATALOG_PREFIX = "catalog."
# In a database, tables are those of a catalog by its name.
CATALOG_NAME = "ottla"
QUERY, BATCH, OFFSETS = "ottla.query", "ottla.batch", "ottla.offsets"
_TRIES_MAX = 20

_catalogs: dict[tuple[tuple[str, str], ...], Any] = {}


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    table: str
    catalog: tuple[tuple[str, str], ...]
    checkpoint: str


class DataWritten(WriterCommitMessage):
    def __init__(self, query: str, path: str, rows: int) -> None:
        self.query = query
        self.path = path
        self.rows = rows


def parse_iceberg_options(options: Mapping[str, str]) -> IcebergOptions:
    catalog = {
        name.lower().removeprefix(CATALOG_PREFIX): text
        for name, text in options.items()
        if name.lower().startswith(CATALOG_PREFIX)
    }
    given = Given({n: t for n, t in options.items() if not n.lower().startswith(CATALOG_PREFIX)})
    given.refuse_unknown(NAMES, "the format ottla-iceberg")
    table = (given.text("table") or "").strip()
    if "." not in table:
        raise OptionError("option table is missing: which table, as namespace.name?")
    if not catalog:
        raise OptionError(
            "options catalog.* are missing, such as catalog.type=sql, catalog.uri=sqlite:///... "
            "and catalog.warehouse=file:///..."
        )
    return IcebergOptions(table, tuple(sorted(catalog.items())), checkpoint_of(given))


class IcebergStreamWriter(Shipped, DataSourceStreamArrowWriter):
    def __init__(self, options: IcebergOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> DataWritten:
        OF_THIS_PROCESS.set_apart()
        return write_data(self.options, this_task(), iterator)

    def commit(self, messages: list[DataWritten | None], batchId: int) -> None:
        OF_THIS_PROCESS.set_apart()
        written = [one for one in messages if one is not None]
        offsets = offsets_of_batch(self.options.checkpoint, batchId)
        add_snapshot(self.options, batchId, written, offsets)

    def abort(self, messages: list[DataWritten | None], batchId: int) -> None:
        """Files that no snapshot has are no part of the table; Iceberg's maintenance removes
        them. A commit that raised may have taken them in."""


def catalog_of(options: IcebergOptions) -> Any:
    from pyiceberg.catalog import load_catalog

    found = _catalogs.get(options.catalog)
    if found is None:
        given = dict(options.catalog)
        name = given.pop("name", CATALOG_NAME)
        found = _catalogs[options.catalog] = load_catalog(name, **given)
    return found


def table_for(options: IcebergOptions, schema: pa.Schema) -> Any:
    """Makes the table, and its namespace, if they are not there. All tasks of a first batch do so
    at the same moment, and a database tells all but one of them of rows that are there already."""
    for tries in range(1, _TRIES_MAX + 1):
        try:
            catalog = catalog_of(options)
            catalog.create_namespace_if_not_exists(options.table.rpartition(".")[0])
            return catalog.create_table_if_not_exists(options.table, schema=schema)
        except _database_errors():
            if tries == _TRIES_MAX:
                raise
    raise AssertionError


def _database_errors() -> tuple[type[Exception], ...]:
    """Of catalogs in a database; others come without its library."""
    try:
        from sqlalchemy.exc import DBAPIError
    except ImportError:
        return ()
    return (DBAPIError,)


def write_data(
    options: IcebergOptions, task: StreamTask, batches: Iterator[pa.RecordBatch]
) -> DataWritten:
    import pyarrow.parquet as pq

    from ottla.spark.tables.places import Place

    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return DataWritten(task.query, "", 0)
    location = table_for(options, first.schema).location()
    name = f"data/{task.file_name}"
    rows = 0
    with (
        Place(location).writing(name) as stream,
        pq.ParquetWriter(stream, first.schema, compression="zstd") as writer,
    ):
        writer.write_batch(first)
        rows += first.num_rows
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
            crash_point("task-mid-write", task.batch)
    crash_point("task-prepared", task.batch)
    return DataWritten(task.query, f"{location.rstrip('/')}/{name}", rows)


def add_snapshot(
    options: IcebergOptions,
    batch: int,
    written: list[DataWritten],
    offsets: dict[str, dict[str, int]],
) -> None:
    from pyiceberg.exceptions import CommitFailedException

    paths = [one.path for one in written if one.path]
    if not paths:
        return
    query = written[0].query
    properties = {QUERY: query, BATCH: str(batch), OFFSETS: json.dumps(offsets)}
    crash_point("before-decision", batch)
    for _ in range(_TRIES_MAX):
        table = catalog_of(options).load_table(options.table)
        if last_batch(table, query) >= batch:
            return
        try:
            table.add_files(paths, snapshot_properties=properties)
        except CommitFailedException:
            continue  # another writer was first; perhaps another run of this query
        except ValueError as wrong:
            raise RowError(
                f"table {options.table}: rows do not fit its columns ({_misfit(str(wrong))}): "
                "select what fits, or change the table's schema"
            ) from wrong
        crash_point("after-decision", batch)
        return
    raise SinkConflict(
        f"table {options.table}: others commit to it all the time; batch {batch} waits"
    )


def _misfit(text: str) -> str:
    """pyiceberg draws a table: of columns that differ, how they are there and in the rows."""
    drawn = [line.split("│") for line in text.splitlines() if "❌" in line]
    found = [f"table: {cells[2].strip()}, rows: {cells[3].strip()}" for cells in drawn]
    return "; ".join(found) or " ".join(text.split())


def last_batch(table: Any, query: str) -> int:
    """The newest batch of the query that has a snapshot, -1 if none has."""
    found = -1
    for snapshot in table.metadata.snapshots:
        summary = snapshot.summary
        if summary is not None and summary.get(QUERY) == query:
            found = max(found, int(summary.get(BATCH) or -1))
    return found
