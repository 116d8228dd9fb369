"""The batch source: a query over the records between two boundaries, settled when it is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.base.ids import TopicPartition
from ottla.spark import row_filters, stream_plan
from ottla.spark.boundaries import resolve
from ottla.spark.cluster_view import ClusterView
from ottla.spark.errors import OptionError
from ottla.spark.offsets import ByPartition
from ottla.spark.option_values import EARLIEST, LATEST
from ottla.spark.ranges import OffsetRange, tasks_of
from ottla.spark.reading import RangePartition, read_range
from ottla.spark.row_filters import RowFilter
from ottla.spark.shipped import Shipped
from ottla.spark.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


class OttlaBatchReader(Shipped, DataSourceReader):
    """Does not override `pushFilters`: a reader that does fails every query of a session that has
    not turned Spark's setting on."""

    def __init__(
        self, options: SourceOptions, open_view: Callable[[SourceOptions], ClusterView]
    ) -> None:
        self.options = options
        self._open_view = open_view
        self.filters: tuple[RowFilter, ...] = ()

    def partitions(self) -> list[RangePartition]:
        view = self._open_view(self.options)
        try:
            ranges = self._ranges(view)
        finally:
            view.close()
        options = self.options
        tasks = tasks_of(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(one) for one in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # where there are none, Spark makes one of its own
        return read_range(self.options, partition.wanted, self.filters)

    def _ranges(self, view: ClusterView) -> list[OffsetRange]:
        options = self.options
        topics = view.topics(options.subscription)
        options.expect_topics(topics)
        places = stream_plan.partitions_of(topics)
        start = resolve(options.start, places, view, group_id=options.group_id)
        end = resolve(options.end, places, view, option="endingOffsets")
        if options.end.kind == "offsets":
            self._refuse_beyond(end)
        earliest = view.offsets(dict.fromkeys(places, EARLIEST))
        losses = stream_plan.Losses(options.fail_on_data_loss)
        ranges = []
        for topic, partition in places:
            place = (topic, partition)
            low, high = self._bounds(place, start[place], end[place], earliest[place], losses)
            ranges.append(OffsetRange(topic, partition, low, high, topics[topic].topic_id))
        return self._narrowed(ranges, view)

    def _bounds(
        self, place: TopicPartition, low: int, high: int, first: int, losses: stream_plan.Losses
    ) -> tuple[int, int]:
        """What is there of what was asked for; the partition begins at `first`."""
        name = f"{place[0]}-{place[1]}"
        from_the_first = self.options.start.kind == "earliest"
        if low > high and not from_the_first:
            raise OptionError(
                f"{name} is to be read from offset {low} on, but up to {high} only: correct where "
                "the query starts or ends"
            )
        if low < min(first, high):
            losses.report(
                f"{name} begins at offset {first}: the records from {low} on that were asked for "
                "are deleted",
                f"Start at {first} or later",
            )
        elif 0 < high < low:
            losses.report(
                f"{name} begins at offset {first}: the records before {high} that were asked for "
                "are deleted",
                f"End at {first} or later",
            )
        low = max(low, first)
        return low, max(low, high)

    def _refuse_beyond(self, end: ByPartition) -> None:
        """A task would wait for what nobody has written. What is written and undecided is there."""
        client = {**self.options.client, "isolation.level": "read_uncommitted"}
        everything = self._open_view(replace(self.options, client=client))
        try:
            written = everything.offsets(dict.fromkeys(end, LATEST))
        finally:
            everything.close()
        for (topic, partition), high in sorted(end.items()):
            last = written.get((topic, partition), high)
            if high > last:
                raise OptionError(
                    f"option endingOffsets: {topic}-{partition} ends at {last}, so it cannot be "
                    f"read up to {high}; -1 is its end"
                )

    def _narrowed(self, ranges: list[OffsetRange], view: ClusterView) -> list[OffsetRange]:
        ranges = row_filters.narrowed(ranges, self.filters)
        moments = [one.earliest_ms for one in self.filters if one.earliest_ms is not None]
        if not moments or not ranges:
            return ranges
        asked = {(one.topic, one.partition): max(moments) for one in ranges}
        # Everything before the first record of that time is older, in whatever order it came.
        found = view.offsets(asked)
        return [
            replace(one, start=max(one.start, min(found[one.topic, one.partition], one.end)))
            for one in ranges
            if (one.topic, one.partition) in found
        ]


class FilteringBatchReader(OttlaBatchReader):
    """With the option pushFilters=true."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        ours, rest = row_filters.taken(filters)
        self.filters = tuple(ours)
        return rest
