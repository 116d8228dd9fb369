"""The streaming source: where a query is, how far a batch goes, which task reads what.

One object lives in the driver for a whole run, with one connection; copies of another go to the
tasks, where only `read` is called. `partitions` is a function of its two positions: a batch that
Spark repeats after a crash reads the same records. Nothing hangs on `commit` and `stop`: Spark
calls the first a batch late, the second not at all.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.spark import defaults, stream_plan
from ottla.spark.admission import TriggerPace, shares
from ottla.spark.boundaries import resolve
from ottla.spark.cluster_view import NOTHING, ClusterView, TopicFacts
from ottla.spark.errors import TopicsChanged
from ottla.spark.group_offsets import GroupOffsets
from ottla.spark.offsets import ByPartition, Position, position_of, ranges_between
from ottla.spark.option_values import EARLIEST, LATEST
from ottla.spark.ranges import tasks_of
from ottla.spark.reading import RangePartition, read_range
from ottla.spark.shipped import Shipped
from ottla.spark.source_options import STREAM, Boundary, SourceOptions, start_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

OpenView = Callable[[SourceOptions], ClusterView]


class OttlaStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, open_view: OpenView) -> None:
        self.options = options
        self._open_view = open_view
        self._view: ClusterView | None = None
        self._losses = stream_plan.Losses(options.fail_on_data_loss)
        self._pace = TriggerPace(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._topics: dict[str, TopicFacts] = {}
        self._topics_until_ms = 0
        self._group: GroupOffsets | None = None
        # Who reads, where the checkpoint does not say: it has no batch yet, or none that commits.
        self._query = f"{time.time_ns():020d}/{uuid.uuid4().hex[:12]}"
        # Where the first batch begins, if it is this run's.
        self._began: ByPartition | None = None
        # The ends at the start of an availableNow run; later records wait for the next run.
        self._target: ByPartition | None = None
        self._latest: Position | None = None
        self._turn = 0

    # -- in the driver ------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        topics = self._topics_now()
        options = self.options
        options.expect_topics(topics)
        offsets = resolve(
            self._start(topics),
            stream_plan.partitions_of(topics),
            self._connected(),
            group_id=options.group_id,
        )
        topic_ids = {topic: facts.topic_id for topic, facts in topics.items()}
        self._began = offsets
        return self._signed(Position(offsets, topic_ids)).as_spark()

    def _signed(self, position: Position) -> Position:
        """`position`, with what the options say of the group and the brokers now: a checkpoint has
        those of its last batch."""
        options = self.options
        query = position.query or self._query
        # A preview moves nobody: what it has seen, the query has not done.
        if not options.commit_offsets or defaults.preview_rows():
            group_id = ""
        else:
            group_id = options.group_id or f"{options.group_id_prefix}-{query[-12:]}"
        servers = options.client["bootstrap.servers"]
        return replace(position, group_id=group_id, query=query, servers=servers)

    def _start(self, topics: dict[str, TopicFacts]) -> Boundary:
        """Where a reset says; offsets of a reset are for all sources of a pipeline, so each takes
        those of its own topics."""
        options = self.options
        reset = start_of(defaults.starting_offsets(), STREAM)
        if reset is None or reset.kind != "offsets":
            return reset or options.start
        assigned = options.subscription.partitions
        mine = {
            topic: {
                partition: number
                for partition, number in numbers.items()
                if not assigned or partition in assigned[topic]
            }
            for topic, numbers in reset.offsets.items()
            if topic in topics
        }
        if not mine:
            log.warning(
                "the offsets of the reset name none of %s: starting at %s",
                ", ".join(sorted(topics)),
                options.start.kind,
            )
            return options.start
        return Boundary("offsets", mine)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        given = self._signed(position_of(start))
        if self._latest is None:
            # startingOffsets counts in the first run only: say where this one really begins.
            log.warning("reading on from %s as group %s", given.next_offsets, given.group_id)
        self._commit(given)
        try:
            return self._next(start, given, limit)
        except TopicsChanged as changed:
            log.warning("%s: looking at the topics anew", changed)
            self._topics_until_ms = 0
            return self._next(start, given, limit)

    def _next(self, start: dict[str, Any], given: Position, limit: ReadLimit) -> dict[str, Any]:
        """Raises TopicsChanged where the list of topics is older than what the brokers say."""
        topics = self._topics_now(self._expected(given))
        position = stream_plan.without_lost_topics(
            given, topics, self._losses, self.options.subscription
        )
        if not topics:
            self.options.expect_topics(topics)
        view = self._connected()
        fresh = [
            place
            for place in stream_plan.partitions_of(topics)
            if place not in position.next_offsets
            and (self._target is None or place in self._target)
        ]
        first = view.offsets(dict.fromkeys(fresh, EARLIEST)) if fresh else {}
        stream_plan.check_new_partitions(first, self._losses)
        latest = self._ends(position, [*position.next_offsets, *first])
        cut = stream_plan.receded(position, latest)
        if cut and view.topics(self.options.subscription) != topics:
            raise TopicsChanged("the ends of partitions are of other topics than those known")
        position = stream_plan.after_cut(position, cut, self._losses)
        self._latest = stream_plan.next_position(position, topics, first, latest, None)
        if self._target is not None:
            latest = {place: min(end, self._target.get(place, 0)) for place, end in latest.items()}
        if position is given and not self._admits(position, first, latest, limit):
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        self._turn += 1
        found = stream_plan.next_position(position, topics, first, latest, rows_max, self._turn)
        if found.next_offsets == given.next_offsets and found.topic_ids == given.topic_ids:
            return start
        if given.next_offsets == self._began:
            found = stream_plan.with_beginning(found, self._began)
        return found.as_spark()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.as_spark()

    def prepareForTriggerAvailableNow(self) -> None:
        # A stale list of partitions would leave some for the next run, though they have records.
        self._topics_until_ms = 0
        places = stream_plan.partitions_of(self._topics_now())
        self._target = self._connected().offsets(dict.fromkeys(places, LATEST))
        if defaults.preview_rows():
            first = resolve(self.options.start, places, self._connected())
            some = shares(
                {place: end - first[place] for place, end in self._target.items()},
                defaults.preview_rows(),
            )
            self._target = {place: first[place] + count for place, count in some.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        ranges = ranges_between(position_of(start), position_of(end))
        options = self.options
        tasks = tasks_of(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(one) for one in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Comes when the next batch is planned, and for the last one never: see `latestOffset`."""

    def stop(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None

    # -- in a task ----------------------------------------------------------------------------

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_range(self.options, partition.wanted)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None, "_group": None}

    # -- inside -------------------------------------------------------------------------------

    def _connected(self) -> ClusterView:
        if self._view is None:
            self._view = self._open_view(self.options)
        return self._view

    def _expected(self, position: Position) -> dict[str, str]:
        """Topics that the query has read and still subscribes to."""
        wants = self.options.subscription.wants
        still = {topic for topic, partition in position.next_offsets if wants(topic, partition)}
        return {topic: position.topic_ids.get(topic, "") for topic in still}

    def _topics_now(self, expected: Mapping[str, str] = NOTHING) -> dict[str, TopicFacts]:
        now_ms = _now_ms()
        if now_ms >= self._topics_until_ms or not expected.keys() <= self._topics.keys():
            self._topics = self._connected().topics(self.options.subscription, expected)
            self._topics_until_ms = now_ms + self.options.metadata_ttl_ms
        return self._topics

    def _admits(
        self, position: Position, first: ByPartition, latest: ByPartition, limit: ReadLimit
    ) -> bool:
        available = stream_plan.backlog(position, first, latest)
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return available > 0
        return self._pace.admits(available, _now_ms())

    def _ends(self, position: Position, places: list[Any]) -> ByPartition:
        """The ends of the partitions; where one lies before what was read, it is asked again."""
        asked = dict.fromkeys(places, LATEST)
        latest = self._connected().offsets(asked)
        for _ in range(self.options.fetch_offset_retries):
            if not stream_plan.receded(position, latest):
                return latest
            time.sleep(self.options.fetch_offset_retry_interval_ms / 1000)
            latest = self._connected().offsets(asked)
        return latest

    def _commit(self, position: Position) -> None:
        """What `start` says is done: batches end when the next one is planned."""
        if not position.group_id:
            return
        if self._group is None or self._group.group_id != position.group_id:
            self._group = GroupOffsets(
                self._connected(),
                position.group_id,
                position.query,
                look_around=bool(self.options.group_id),
            )
        self._group.keep(position)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
