"""What a task does: one stretch of one partition, as Arrow batches.

Spark keeps its Python workers from task to task, so the reader with its connections is kept in the
process, one for each set of client settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from ottla.spark.cluster_view import RangeReader
from ottla.spark.crash_points import crash_point, is_armed
from ottla.spark.lasting_objects import OF_THIS_PROCESS
from ottla.spark.ranges import OffsetRange
from ottla.spark.source_options import SourceOptions
from ottla.spark.task_memory import keep_memory
from ottla.spark.tasks import batch_number

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.row_filters import RowFilter

_readers: dict[tuple[object, ...], RangeReader] = {}


class RangePartition(InputPartition):
    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def read_range(
    options: SourceOptions, wanted: OffsetRange, filters: tuple[RowFilter, ...] = ()
) -> Iterator[pa.RecordBatch]:
    keep_memory()
    OF_THIS_PROCESS.set_apart()
    needed = options.columns
    extra = tuple(dict.fromkeys(one.column for one in filters if one.column not in needed))
    for batch in reader_for(options).read(wanted, needed + extra):
        found = batch
        for one in filters:
            found = one.apply(found)
        if extra:
            found = found.select(list(needed))
        if found.num_rows:
            yield found
        if is_armed():
            crash_point("task-mid-read", batch_number())


def reader_for(options: SourceOptions) -> RangeReader:
    key = (
        tuple(sorted(options.client.items())),
        options.poll_timeout_ms,
        options.fail_on_data_loss,
    )
    reader = _readers.get(key)
    if reader is None:
        reader = _readers[key] = open_reader(options)
    return reader


def _open_client_reader(options: SourceOptions) -> RangeReader:
    from ottla.spark.client_reader import ClientRangeReader

    return ClientRangeReader(options)


open_reader: Callable[[SourceOptions], RangeReader] = _open_client_reader
