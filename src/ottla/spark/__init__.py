"""Topics as Spark DataFrames, and DataFrames as topics: `spark.read.format("ottla")`.

The room of the data source (batch and streaming), the exactly-once sink, the listener that keeps
consumer groups in step with queries, and the runner of `ottla pipeline`. It sees the client, never
the broker; nothing else in Ottla imports it, and it imports Spark only where Spark calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.listener import GroupListener

__all__ = ["attach"]


def attach(spark: Any, settings: Mapping[str, str] | None = None) -> GroupListener:
    """Keeps the consumer groups of this session's queries where their last batches ended.

    Without it a query commits when its next batch is planned. `settings` are client settings that
    the brokers of the queries ask for, such as `security.protocol`.
    """
    from ottla.spark.listener import GroupListener

    listener = GroupListener(settings or {})
    spark.streams.addListener(listener)
    return listener
