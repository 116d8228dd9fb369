"""A stretch of a partition as Arrow batches: fetched ahead by one, decoded column by column.

One fetch is under way while the rows of the one before are made and taken, so a task holds two
answers at most. The topic is asked for by its id where the broker can: a topic that was created
again under the same name answers with an error, never with its own records.

A range ends where the broker has shown that nothing of it is left, even if its last offsets hold no
records (markers, aborted or compacted ones).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.base.errors import OttlaError
from ottla.client.errors import ClientError, ConnectionLostError, error_for
from ottla.client.fetch_batches import FetchedBatches
from ottla.client.pending import Flow
from ottla.protocol.api_keys import FETCH
from ottla.protocol.error_codes import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.spark.columns import arrow_schema
from ottla.spark.errors import DataLoss, ReadStalled
from ottla.spark.ranges import OffsetRange
from ottla.spark.source_options import SourceOptions
from ottla.spark.wire import Wire

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.fetch_batches import RecordBlock

log = logging.getLogger(__name__)

# Of one answer: large enough that numpy's calls and Spark's are few, small enough for many tasks.
FETCH_BYTES = 4 * 1024 * 1024
_OUTSIDE_A_SESSION = -1


@dataclass(slots=True)
class Fetched:
    """An answer: the blocks from `position` on, and where the next one begins."""

    position: int
    blocks: list[RecordBlock]
    next_position: int


class ClientRangeReader:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wire = Wire(options.client, "task")
        self._isolation = int(self._wire.settings.isolation_level == "read_committed")
        given = options.client.get("max.partition.fetch.bytes")
        self._fetch_bytes = FETCH_BYTES if given is None else int(given)

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
                    yield from _batches(wanted, fetched, schema)
        finally:
            self._cancel(coming)

    def _begin(self, wanted: OffsetRange, position: int) -> Flow[Fetched]:
        shell = self._wire.shell
        shell.enter()
        try:
            return self._wire.core.spawn(self._until_there(wanted, position))
        finally:
            shell.leave()

    def _take(self, coming: Flow[Fetched], wanted: OffsetRange, position: int) -> Fetched:
        try:
            return self._wire.shell.wait(coming)
        except ClientError as failure:
            if not failure.retriable:
                raise
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

    async def _until_there(self, wanted: OffsetRange, position: int) -> Fetched:
        core = self._wire.core
        deadline_ms = core.now_ms + self._options.poll_timeout_ms
        return await core.retry(
            lambda: self._fetch(wanted, position), deadline_ms, f"reading {wanted}"
        )

    async def _fetch(self, wanted: OffsetRange, position: int) -> Fetched:
        leader = await self._wire.leader_of(wanted.topic, wanted.partition)
        self._check_topic(wanted, position)
        try:
            answer = await self._wire.core.request(leader, FETCH, self._question(wanted, position))
        except ConnectionLostError:
            self._wire.core.metadata.request_update()
            raise
        if answer.error_code != NONE:
            raise error_for(answer.error_code, f"fetching {wanted}")
        found = answer.responses[0].partitions[0]
        if found.error_code == OFFSET_OUT_OF_RANGE:
            return await self._out_of_range(wanted, position)
        if found.error_code in (UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION):
            await self._wire.core.metadata.next_update()
            self._check_topic(wanted, position)
        if found.error_code != NONE:
            raise self._wire.partition_error(wanted.topic, wanted.partition, found.error_code)
        return self._unpacked(wanted, position, found, answer.throttle_time_ms)

    def _question(self, wanted: OffsetRange, position: int) -> dict[str, Any]:
        settings = self._wire.settings
        partition = {
            "partition": wanted.partition,
            "current_leader_epoch": self._wire.core.cluster.leader_epoch_of(
                wanted.topic, wanted.partition
            ),
            "fetch_offset": position,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": self._fetch_bytes,
        }
        return {
            "replica_id": -1,
            "max_wait_ms": settings.fetch_max_wait_ms,
            "min_bytes": settings.fetch_min_bytes,
            "max_bytes": max(settings.fetch_max_bytes, self._fetch_bytes),
            "isolation_level": self._isolation,
            "session_id": 0,
            "session_epoch": _OUTSIDE_A_SESSION,
            "topics": [
                {
                    "topic": wanted.topic,
                    "topic_id": uuid.UUID(wanted.topic_id) if wanted.topic_id else NULL_UUID,
                    "partitions": [partition],
                }
            ],
            "forgotten_topics_data": [],
            "rack_id": settings.client_rack,
        }

    def _unpacked(
        self, wanted: OffsetRange, position: int, found: Any, throttle_ms: int
    ) -> Fetched:
        data = found.records or b""
        aborted = None
        if self._isolation:
            aborted = [
                (one.producer_id, one.first_offset) for one in found.aborted_transactions or ()
            ]
        batches = FetchedBatches(
            data,
            0,
            len(data),
            position,
            aborted=aborted,
            check_crcs=self._wire.settings.check_crcs,
        )
        blocks = []
        while batches.position < wanted.end:
            block = batches.next_block()
            if block is None:
                break
            blocks.append(block)
            batches.advance(block.next_offset())
        reached = batches.position
        if reached == position:
            end = found.last_stable_offset if self._isolation else found.high_watermark
            if data or throttle_ms or end < wanted.end:
                # A leader that does not know of its last records yet, or one that slows us down.
                raise StillWaiting(f"{wanted}: the leader shows {end} as the end")
            reached = wanted.end
        return Fetched(position, blocks, reached)

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
        return Fetched(position, [], min(first, wanted.end))

    def _check_topic(self, wanted: OffsetRange, position: int) -> None:
        """Raises when the topic is another one than the range was planned for."""
        info = self._wire.core.cluster.topics.get(wanted.topic)
        if not wanted.topic_id or info is None or info.topic_id == NULL_UUID:
            return
        if str(info.topic_id) != wanted.topic_id:
            raise DataLoss(
                f"topic {wanted.topic} was deleted and created again while it was read (id "
                f"{wanted.topic_id}, now {info.topic_id}): {wanted} is lost from offset {position} "
                "on. Start again with a new checkpointLocation and startingOffsets=earliest"
            )


class StillWaiting(ClientError):
    """Not yet; asked again until the time is up."""

    retriable = True


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
    names = {"timestampType": "timestamp_type"}
    arrays = [
        table.column(names.get(field.name, field.name)).combine_chunks().cast(field.type)
        for field in schema
    ]
    if len(table):
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
