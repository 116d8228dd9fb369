"""Our own source and sink with a Python object for each value: what Arrow spares them.

The same readers and writers do the work; rows go to Spark and come from it as tuples, in a process
that collects its garbage as Spark has it (`ottla.spark.lasting_objects`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from ottla.spark.lasting_objects import OF_THIS_PROCESS
from ottla.spark.sink import OttlaStreamWriter, stream_writer
from ottla.spark.source import batch_reader, schema_of

NAME = "bench-rows"
# As many as Spark puts into an Arrow batch.
ROWS_AT_ONCE = 10_000


class RowSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return schema_of(self.options)

    def reader(self, schema: Any) -> RowReader:
        return RowReader(batch_reader(self.options, schema.names))

    def streamWriter(self, schema: Any, overwrite: bool) -> RowWriter:
        return RowWriter(stream_writer(self.options, schema, overwrite), schema.names)


class RowReader(DataSourceReader):
    def __init__(self, arrow: Any) -> None:
        self.arrow = arrow

    def partitions(self) -> Any:
        return self.arrow.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        OF_THIS_PROCESS.put_back()
        for batch in self.arrow.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class RowWriter(DataSourceStreamWriter):
    def __init__(self, arrow: OttlaStreamWriter, names: list[str]) -> None:
        self.arrow = arrow
        self.names = names

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        OF_THIS_PROCESS.put_back()
        return self.arrow.write(self._batches(iterator))

    def _batches(self, rows: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            columns = [list(column) for column in zip(*some, strict=True)]
            yield pa.RecordBatch.from_pydict(dict(zip(self.names, columns, strict=True)))

    def commit(self, messages: list[Any], batchId: int) -> None:
        self.arrow.commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        self.arrow.abort(messages, batchId)
