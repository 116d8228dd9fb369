"""Who a task of a streaming query is: the writer's interface does not say, its context does."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

from ottla.spark.errors import SparkError

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"


@dataclass(frozen=True, slots=True)
class StreamTask:
    """`attempt` is unique within the run; `query` stays over restarts, `run` does not."""

    query: str
    run: str
    batch: int
    task: int
    attempt: int

    @property
    def file_name(self) -> str:
        """Of a data file: whose it is, of which batch, and no other attempt's."""
        run = f"{self.run[:8]}-{self.attempt}"
        return f"{self.query[:8]}-{self.batch:08d}-{self.task:05d}-{run}.parquet"


def this_task() -> StreamTask:
    context = TaskContext.get()
    return StreamTask(
        query=_property(context, QUERY_ID),
        run=_property(context, RUN_ID),
        batch=int(_property(context, BATCH_ID)),
        task=context.partitionId(),
        attempt=context.taskAttemptId(),
    )


def batch_number() -> int:
    """Of a streaming query's batch; -1 in a batch query, and outside of Spark."""
    context = TaskContext.get()
    found = context.getLocalProperty(BATCH_ID) if context is not None else None
    return -1 if found is None else int(found)


def _property(context: TaskContext | None, name: str) -> str:
    found = context.getLocalProperty(name) if context is not None else None
    if found is None:
        raise SparkError(
            f"Spark does not say {name} to the task, so nothing can be written exactly once; "
            "delivery=at_least_once does without"
        )
    return str(found)
