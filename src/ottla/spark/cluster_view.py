"""The doors to a cluster that the source uses: what the driver asks, what a task reads.

Ports only: `client_view` stands behind them with Ottla's client, tests with plain dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from ottla.base.ids import TopicPartition
from ottla.spark.ranges import OffsetRange
from ottla.spark.source_options import Subscription

if TYPE_CHECKING:
    import pyarrow as pa


NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicFacts:
    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    offset: int
    metadata: str


class ClusterView(Protocol):
    """The driver's questions. Every answer comes from the brokers, nothing is remembered."""

    def topics(
        self, subscription: Subscription, expected: Mapping[str, str] = NOTHING
    ) -> dict[str, TopicFacts]:
        """Those of the subscription that exist; for an assignment only its partitions. `expected`
        were there, by their ids: that one exists no more is not taken from a single broker."""

    def offsets(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """For EARLIEST, LATEST (the last stable offset when reading committed records) or a
        timestamp; a partition without a record at or after the timestamp is left out. Raises
        TopicsChanged where a topic exists no more."""

    def committed(
        self, group_id: str, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Committed]: ...

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None: ...

    def close(self) -> None: ...


class RangeReader(Protocol):
    """What a task reads with; kept from task to task."""

    def read(self, wanted: OffsetRange, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Every record of the range that the isolation level shows, in order, in batches with
        exactly these columns; raises DataLoss where records are gone."""
