"""Parquet files, every row once: the format `ottla-parquet`.

Tasks write files where nobody looks for data (`_ottla/staged`). The driver writes the batch's
manifest, the list of files that count with the offsets that they hold: that is the commit. Then it
moves them into place. A batch that comes again finds its manifest and moves what is not moved yet.
What no manifest lists is removed when its batch is over.

Readers need nothing of ours: Spark and others pass over what begins with an underscore.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.spark import option_values as values
from ottla.spark.crash_points import crash_point
from ottla.spark.errors import OptionError, SinkConflict
from ottla.spark.lasting_objects import OF_THIS_PROCESS
from ottla.spark.shipped import Shipped
from ottla.spark.source_options import Given
from ottla.spark.tables.batch_offsets import checkpoint_of, offsets_of_batch
from ottla.spark.tables.places import Place
from ottla.spark.tasks import StreamTask, this_task

if TYPE_CHECKING:
    import pyarrow as pa

NAMES = ("path", "compression", "checkpointLocation", "queryName")
STAGED = "_ottla/staged"
COMMITS = "_ottla/commits"


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    path: str
    compression: str
    checkpoint: str


class FileWritten(WriterCommitMessage):
    def __init__(self, query: str, name: str, rows: int) -> None:
        self.query = query
        self.name = name
        self.rows = rows


def parse_parquet_options(options: Mapping[str, str]) -> ParquetOptions:
    given = Given(options)
    given.refuse_unknown(NAMES, "the format ottla-parquet")
    path = (given.text("path") or "").strip()
    if not path:
        raise OptionError("option path is missing: where do the files go?")
    compression = values.choice(
        "compression", given.text("compression") or "zstd", ("zstd", "snappy", "gzip", "none")
    )
    return ParquetOptions(path, compression, checkpoint_of(given))


class ParquetStreamWriter(Shipped, DataSourceStreamArrowWriter):
    def __init__(self, options: ParquetOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FileWritten:
        OF_THIS_PROCESS.set_apart()
        return write_file(Place(self.options.path), self.options, this_task(), iterator)

    def commit(self, messages: list[FileWritten | None], batchId: int) -> None:
        OF_THIS_PROCESS.set_apart()
        written = [one for one in messages if one is not None]
        offsets = offsets_of_batch(self.options.checkpoint, batchId)
        commit_files(Place(self.options.path), batchId, written, offsets)

    def abort(self, messages: list[FileWritten | None], batchId: int) -> None:
        """Looks first: a commit that raised may have happened."""
        written = [one for one in messages if one is not None]
        place = Place(self.options.path)
        if written and place.exists(manifest_name(written[0].query, batchId)):
            roll_forward(place, written[0].query, batchId)
            return
        for one in written:
            place.remove(f"{STAGED}/{one.name}")


def write_file(
    place: Place, options: ParquetOptions, task: StreamTask, batches: Iterator[pa.RecordBatch]
) -> FileWritten:
    """No file where there are no rows."""
    import pyarrow.parquet as pq

    name = task.file_name
    rows = 0
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return FileWritten(task.query, "", 0)
    compression = None if options.compression == "none" else options.compression
    with (
        place.writing(f"{STAGED}/{name}") as stream,
        pq.ParquetWriter(stream, first.schema, compression=compression) as writer,
    ):
        writer.write_batch(first)
        rows += first.num_rows
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
            crash_point("task-mid-write", task.batch)
    crash_point("task-prepared", task.batch)
    return FileWritten(task.query, name, rows)


def commit_files(
    place: Place, batch: int, written: list[FileWritten], offsets: dict[str, dict[str, int]]
) -> None:
    query = written[0].query
    files = [one.name for one in written if one.name]
    manifest = {
        "query": query,
        "batch": batch,
        "rows": sum(one.rows for one in written),
        "files": files,
        "offsets": offsets,
    }
    crash_point("before-decision", batch)
    # False: a run before this one has decided, with files of its own.
    place.create(manifest_name(query, batch), json.dumps(manifest, indent=1).encode())
    crash_point("after-decision", batch)
    roll_forward(place, query, batch)
    _remove_dead(place, query, batch)
    crash_point("after-commit", batch)


def roll_forward(place: Place, query: str, batch: int) -> None:
    for number, name in enumerate(manifest_of(place, query, batch)["files"]):
        if not place.move(f"{STAGED}/{name}", name) and not place.exists(name):
            raise SinkConflict(
                f"{place.path(name)} belongs to batch {batch} and is gone: somebody has removed "
                "files of this directory while the query was running"
            )
        if number == 0:
            crash_point("after-first-end", batch)


def manifest_of(place: Place, query: str, batch: int) -> Any:
    return json.loads(place.read(manifest_name(query, batch)))


def manifest_name(query: str, batch: int) -> str:
    return f"{COMMITS}/{query}/{batch:012d}.json"


def _remove_dead(place: Place, query: str, batch: int) -> None:
    """What tasks of this batch or earlier ones have left, and no manifest has taken."""
    for name in place.names(STAGED):
        owner, number = name.split("-")[:2]
        if owner == query[:8] and int(number) <= batch:
            place.remove(f"{STAGED}/{name}")
