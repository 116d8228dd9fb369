"""A stretch of a partition as Arrow batches: fetched ahead by one, decoded column by column.

One fetch is under way while the rows of the one before are made and taken, so a task holds two
answers at most. A range ends where the broker has shown that nothing of it is left, even if its
last offsets hold no records (markers, aborted or compacted ones).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.base.errors import OttlaError
from ottla.client.errors import ClientError, UnknownTopicError
from ottla.client.pending import Flow
from ottla.protocol.error_codes import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.spark.columns import arrow_schema
from ottla.spark.deleted_topics import DeletedTopics
from ottla.spark.errors import DataLoss, ReadStalled
from ottla.spark.fetching import Fetched, Place, fetch
from ottla.spark.ranges import OffsetRange
from ottla.spark.source_options import SourceOptions
from ottla.spark.wire import Wire, consumer_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.consumer_settings import ConsumerSettings

log = logging.getLogger(__name__)

# Of one answer: large enough that numpy's calls and Spark's are few, small enough for many tasks.
FETCH_BYTES = 4 * 1024 * 1024


class StillWaiting(ClientError):
    """Not yet; asked again until the time is up."""

    retriable = True


class ClientRangeReader:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._settings = consumer_settings(options.client)
        self._wire = Wire(self._settings, options.poll_timeout_ms, "task", waits_for_topics=False)
        self._deleted = DeletedTopics(self._wire.core)
        self._committed_only = self._settings.isolation_level == "read_committed"
        self._bytes_max = _fetch_bytes(options, self._settings)
        self._rows_max = _given(options, "max.poll.records", self._settings.max_poll_records)

    def close(self) -> None:
        self._wire.close()

    def read(self, wanted: OffsetRange, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(columns)
        position = wanted.start
        coming = self._begin(wanted, position)
        try:
            while position < wanted.end:
                fetched = self._take(coming, wanted, position)
                position = fetched.next_position
                if position < wanted.end:
                    coming = self._begin(wanted, position)
                if fetched.blocks:
                    for batch in _batches(wanted, fetched, schema):
                        yield from self._parts(batch)
        finally:
            self._cancel(coming)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        step = self._rows_max or batch.num_rows
        for first in range(0, batch.num_rows, step):
            yield batch.slice(first, step)

    def _begin(self, wanted: OffsetRange, position: int) -> Flow[Fetched]:
        shell = self._wire.shell
        shell.enter()
        try:
            return self._wire.core.spawn(
                self._wire.retried(lambda: self._fetch(wanted, position), f"reading {wanted}")
            )
        finally:
            shell.leave()

    def _take(self, coming: Flow[Fetched], wanted: OffsetRange, position: int) -> Fetched:
        try:
            return self._wire.shell.wait(coming)
        except ClientError as failure:
            if not failure.retriable:
                raise
            if self._deleted.is_likely((wanted.topic, wanted.topic_id)):
                return self._lost(wanted, position, _deleted(wanted))
            raise ReadStalled(
                f"{wanted}: nothing more came within {self._options.poll_timeout_ms} ms after "
                f"offset {position} ({failure}). Are all brokers up and within reach of every "
                "executor? kafkaConsumer.pollTimeoutMs gives them more time"
            ) from failure

    def _cancel(self, coming: Flow[Fetched]) -> None:
        if not coming.done:
            shell = self._wire.shell
            shell.enter()
            coming.cancel()
            shell.leave()

    # -- conversations with brokers -----------------------------------------------------------

    async def _fetch(self, wanted: OffsetRange, position: int) -> Fetched:
        place = Place(
            wanted.topic,
            wanted.topic_id,
            wanted.partition,
            self._committed_only,
            self._bytes_max,
            self._settings.fetch_max_wait_ms,
            self._settings.check_crcs,
            self._settings.fetch_min_bytes,
            self._settings.client_rack,
        )
        topic = (wanted.topic, wanted.topic_id)
        try:
            found = await fetch(self._wire, place, position, wanted.end)
        except UnknownTopicError:
            if not await self._deleted.ask(topic):
                raise
            return self._lost(wanted, position, _deleted(wanted))
        if found.error_code == NONE:
            self._deleted.forget(topic)
        gone = self._gone(wanted)
        if gone is None and found.error_code == OFFSET_OUT_OF_RANGE:
            return await self._out_of_range(wanted, position)
        if gone is None and found.error_code in (UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION):
            await self._wire.core.metadata.next_update()
            gone = self._gone(wanted)
        if gone is not None:
            return self._lost(wanted, position, gone)
        if found.error_code != NONE:
            raise self._wire.partition_error(wanted.topic, wanted.partition, found.error_code)
        if found.next_position == position:
            end = found.last_stable_offset if self._committed_only else found.high_watermark
            if found.size or found.throttle_ms or end < wanted.end:
                # A leader that does not know of its last records yet, or one that slows us down.
                raise StillWaiting(f"{wanted}: the leader shows {end} as the end")
            found.next_position = wanted.end
        return found

    async def _out_of_range(self, wanted: OffsetRange, position: int) -> Fetched:
        first = await self._wire.earliest(wanted.topic, wanted.partition)
        if first <= position:
            raise StillWaiting(f"{wanted}: the leader does not know offset {position} yet")
        lost = f"{min(first, wanted.end) - position} offsets from {position} on"
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{wanted.topic}-{wanted.partition}: {lost} are deleted; the partition begins at "
                f"{first} now. Keep records longer (retention.ms, retention.bytes) or read sooner; "
                "to go on without them: failOnDataLoss=false"
            )
        log.warning("%s: %s are deleted; going on, as failOnDataLoss=false says", wanted, lost)
        return Fetched(NONE, position, [], min(first, wanted.end))

    def _gone(self, wanted: OffsetRange) -> str | None:
        """How, when the topic is another one than the range was planned for."""
        info = self._wire.core.cluster.topics.get(wanted.topic)
        if not wanted.topic_id or info is None or info.topic_id == NULL_UUID:
            return None
        if str(info.topic_id) == wanted.topic_id:
            return None
        return (
            f"topic {wanted.topic} was deleted and created again while it was read (id "
            f"{wanted.topic_id}, now {info.topic_id})"
        )

    def _lost(self, wanted: OffsetRange, position: int, what: str) -> Fetched:
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{what}: {wanted} is lost from offset {position} on. Start again with a new "
                "checkpointLocation and startingOffsets=earliest, or failOnDataLoss=false to go on "
                "without those records"
            )
        log.warning(
            "%s: %s is lost from offset %d on; going on, as failOnDataLoss=false says",
            what,
            wanted,
            position,
        )
        return Fetched(NONE, position, [], wanted.end)


def _deleted(wanted: OffsetRange) -> str:
    return f"topic {wanted.topic} was deleted while it was read"


def _given(options: SourceOptions, name: str, number: int) -> int | None:
    """A limit counts if somebody has set it: the client's defaults are for other uses."""
    return number if name in options.client else None


def _fetch_bytes(options: SourceOptions, settings: ConsumerSettings) -> int:
    limits = [
        _given(options, "max.partition.fetch.bytes", settings.max_partition_fetch_bytes),
        _given(options, "fetch.max.bytes", settings.fetch_max_bytes),
    ]
    return min([one for one in limits if one is not None], default=FETCH_BYTES)


def _batches(wanted: OffsetRange, fetched: Fetched, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from ottla.client.columns.table import FetchedBlocks, table_of

    try:
        table = table_of(
            [FetchedBlocks(wanted.topic, wanted.partition, fetched.position, fetched.blocks)]
        )
    except OttlaError as failure:
        raise DataLoss(f"{wanted}: a record batch is damaged: {failure}") from failure
    if fetched.next_position > wanted.end:
        offsets = table.column("offset").to_numpy()
        table = table.slice(0, int(offsets.searchsorted(wanted.end)))
    if len(table):
        arrays = [_column(table, field) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    name = "timestamp_type" if field.name == "timestampType" else field.name
    found = table.column(name).combine_chunks().cast(field.type)
    if name != "headers":
        return found
    # Null where there are none, as the stock connector has it; the client has empty lists.
    are_none = pc.equal(pc.list_value_length(found), 0)
    return pc.if_else(are_none, pa.scalar(None, field.type), found)
