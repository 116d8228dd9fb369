"""The writers that Spark calls: one object for each batch in the driver, a copy in each task.

They hold options and nothing else; what is kept from batch to batch is kept in the process.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla.spark import no_effect
from ottla.spark.defaults import completed
from ottla.spark.errors import OptionError
from ottla.spark.lasting_objects import OF_THIS_PROCESS
from ottla.spark.rows_to_records import check_columns
from ottla.spark.shipped import Shipped
from ottla.spark.sink_options import AT_LEAST_ONCE, SinkOptions, parse_sink_options
from ottla.spark.sink_protocol import (
    Attempt,
    Written,
    abort_at_once,
    abort_batch,
    commit_at_once,
    commit_batch,
    token_of_run,
    write_task,
)
from ottla.spark.task_memory import keep_memory
from ottla.spark.tasks import this_task
from ottla.spark.wire import producer_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.client_sink import ClientSinkCluster

_clusters: dict[tuple[object, ...], ClientSinkCluster] = {}

NO_BATCH = -1
BATCH_QUERY = "batch"


class Message(WriterCommitMessage):
    def __init__(self, written: Written) -> None:
        self.written = written


def stream_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> OttlaStreamWriter:
    return OttlaStreamWriter(_checked(options, schema, overwrite, streaming=True))


def batch_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> OttlaBatchWriter:
    return OttlaBatchWriter(_checked(options, schema, overwrite, streaming=False))


def _checked(
    options: Mapping[str, str], schema: Any, overwrite: bool, *, streaming: bool
) -> SinkOptions:
    OF_THIS_PROCESS.set_apart()
    parsed = parse_sink_options(completed(options), streaming=streaming)
    producer_settings(parsed.client)
    no_effect.tell(parsed.client, no_effect.WRITING)
    if overwrite and not streaming:
        raise OptionError('a topic cannot be overwritten: use mode("append")')
    check_columns(
        schema.names, [field.dataType.simpleString() for field in schema.fields], parsed.topic
    )
    return parsed


def cluster_for(options: SinkOptions) -> ClientSinkCluster:
    from ottla.spark.client_sink import ClientSinkCluster

    key = (
        tuple(sorted(options.client.items())),
        options.topic,
        options.delivery,
    )
    found = _clusters.get(key)
    if found is None:
        found = _clusters[key] = ClientSinkCluster(options)
    return found


def _write_at_least_once(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    from ottla.spark.client_sink import ClientTransaction

    writer = ClientTransaction(cluster_for(options), None)
    rows = 0
    for batch in batches:
        if batch.num_rows:
            writer.write(batch)
            rows += batch.num_rows
    writer.flush()
    return Written("", "", rows, None)


class OttlaStreamWriter(Shipped, DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        keep_memory()
        OF_THIS_PROCESS.set_apart()
        options = self.options
        if options.delivery == AT_LEAST_ONCE:
            return Message(_write_at_least_once(options, iterator))
        here = this_task()
        attempt = Attempt(
            sink=options.sink_id or here.query,
            query=here.query,
            run=here.run,
            batch=here.batch,
            task=here.task,
            attempt=here.attempt,
        )
        return Message(write_task(cluster_for(options), attempt, iterator))

    def commit(self, messages: list[Message | None], batchId: int) -> None:
        if self.options.delivery == AT_LEAST_ONCE:
            return
        written = [one.written for one in messages if one is not None]
        commit_batch(cluster_for(self.options), self._sink(written), batchId, written)

    def abort(self, messages: list[Message | None], batchId: int) -> None:
        found = [None if one is None else one.written for one in messages]
        written = [one for one in found if one is not None]
        if self.options.delivery == AT_LEAST_ONCE or not written:
            return
        abort_batch(cluster_for(self.options), self._sink(written), batchId, found)

    def _sink(self, written: list[Written]) -> str:
        return self.options.sink_id or written[0].query


class OttlaBatchWriter(Shipped, DataSourceArrowWriter):
    """With sinkId and batchToken a batch is written once however often it is tried.

    Without them nobody would ever come back to finish what a dead driver has left. So its
    transactions keep their time-out, and a driver that dies while it commits leaves a part."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.run = uuid.uuid4().hex
        self.sink = options.sink_id or f"batch-{self.run}"
        # Every write without a token is a batch of its own.
        self.token = options.batch_token or token_of_run(self.run)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        keep_memory()
        OF_THIS_PROCESS.set_apart()
        options = self.options
        if options.delivery == AT_LEAST_ONCE:
            return Message(_write_at_least_once(options, iterator))
        context = TaskContext.get()
        attempt = Attempt(
            sink=self.sink,
            query=BATCH_QUERY,
            run=self.run,
            batch=NO_BATCH,
            task=context.partitionId(),
            attempt=context.taskAttemptId(),
            token=self.token,
            is_lasting=bool(options.sink_id),
        )
        return Message(write_task(cluster_for(options), attempt, iterator))

    def commit(self, messages: list[Message | None]) -> None:
        written = [one.written for one in messages if one is not None]
        if self.options.delivery == AT_LEAST_ONCE:
            return
        cluster = cluster_for(self.options)
        if self.options.sink_id:
            commit_batch(cluster, self.sink, NO_BATCH, written, self.token)
        else:
            commit_at_once(cluster, self.sink, written)

    def abort(self, messages: list[Message | None]) -> None:
        if self.options.delivery == AT_LEAST_ONCE:
            return
        cluster = cluster_for(self.options)
        if self.options.sink_id:
            found = [None if one is None else one.written for one in messages]
            abort_batch(cluster, self.sink, NO_BATCH, found, self.token)
        else:
            abort_at_once(cluster, self.sink)
