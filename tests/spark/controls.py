"""Two sinks that look sufficient and are not. They are made of the parts of ours, so that what
fails is the design: each leaves out one thing, and a test sees rows come twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.spark.crash_points import crash_point
from ottla.spark.sink import Message, OttlaStreamWriter, cluster_for, stream_writer
from ottla.spark.sink_protocol import sink_prefix
from pyspark_ottla import DefaultSource

if TYPE_CHECKING:
    import pyarrow as pa


class CommitsInTasks(OttlaStreamWriter):
    """Every task commits what it wrote. A batch that is done again is there twice."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        message = super().write(iterator)
        if message.written.transaction is not None:
            cluster_for(self.options).commit(message.written.transaction)
        return message

    def commit(self, messages: list[Message | None], batchId: int) -> None:
        crash_point("after-commit", batchId)

    def abort(self, messages: list[Message | None], batchId: int) -> None:
        pass


class CommitsWithoutDecision(OttlaStreamWriter):
    """The driver commits what the tasks have prepared, and writes down nowhere that it will. Who
    comes after it cannot know what is committed already."""

    def commit(self, messages: list[Message | None], batchId: int) -> None:
        cluster = cluster_for(self.options)
        written = [one.written for one in messages if one is not None]
        for number, one in enumerate(written):
            if one.transaction is not None:
                cluster.commit(one.transaction)
            if number == 0:
                crash_point("after-first-end", batchId)
        for left in cluster.open_transactions(sink_prefix(self._sink(written))):
            cluster.abort(left)

    def abort(self, messages: list[Message | None], batchId: int) -> None:
        pass


class TaskControl(DefaultSource):
    writer_class: type[OttlaStreamWriter] = CommitsInTasks

    @classmethod
    def name(cls) -> str:
        return "control-tasks"

    def streamWriter(self, schema: Any, overwrite: bool) -> OttlaStreamWriter:
        return self.writer_class(stream_writer(self.options, schema, overwrite).options)


class DecisionControl(TaskControl):
    writer_class = CommitsWithoutDecision

    @classmethod
    def name(cls) -> str:
        return "control-decision"
