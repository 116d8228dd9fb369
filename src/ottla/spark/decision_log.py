"""The decisions of all sinks: a compacted topic, and what this process has read of it.

A process reads its sink's partition once from the beginning and goes on from there, so a look costs
one fetch. `newest(settled=True)` is for owners: nothing that was stored before the call can be
missing from its answer, even while the decision of another sink is still on its way in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.errors import error_for
from ottla.client.fetch_records import read_records
from ottla.client.murmur2 import murmur2
from ottla.protocol.api_keys import CREATE_TOPICS, METADATA
from ottla.protocol.error_codes import (
    INVALID_REPLICATION_FACTOR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.spark.client_reader import StillWaiting
from ottla.spark.decisions import TOPIC, Decision, decision_of
from ottla.spark.errors import SinkConflict
from ottla.spark.fetching import Place, fetch
from ottla.spark.wire import Wire

if TYPE_CHECKING:
    from ottla.client.fetch_batches import RecordBlock

PARTITIONS = 8
REPLICAS_MAX = 3
# Small segments: what is compacted away is what nobody has to read.
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
_FETCH_BYTES = 1024 * 1024
_WAIT_MS = 100


class DecisionLog:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._topic_id = ""
        self._count = 0
        # By partition: how far it was read, and what was found there.
        self._positions: dict[int, int] = {}
        self._newest: dict[str, bytes | None] = {}

    def newest(self, sink: str, *, settled: bool) -> Decision | None:
        self._wire.call(lambda: self._catch_up_with(sink, settled), f"reading {TOPIC}")
        value = self._newest.get(sink)
        return None if value is None else decision_of(sink, value)

    def of_query(self, query: str) -> list[Decision]:
        """The newest of each sink, settled."""
        self._wire.call(self._catch_up_with_all, f"reading {TOPIC}")
        found = [_readable(sink, value) for sink, value in sorted(self._newest.items())]
        return [one for one in found if one is not None and one.query == query]

    async def partition_of(self, sink: str) -> int:
        await self._find_topic()
        return (murmur2(sink.encode()) & 0x7FFFFFFF) % self._count

    async def _catch_up_with(self, sink: str, settled: bool) -> None:
        await self._catch_up(await self.partition_of(sink), settled)

    async def _catch_up_with_all(self) -> None:
        await self._find_topic()
        for partition in range(self._count):
            await self._catch_up(partition, settled=True)

    async def _catch_up(self, partition: int, settled: bool) -> None:
        goal: int | None = None
        while True:
            position = self._positions.get(partition, 0)
            place = Place(TOPIC, self._topic_id, partition, True, _FETCH_BYTES, 0)
            found = await fetch(self._wire, place, position)
            if found.error_code == OFFSET_OUT_OF_RANGE:
                # Cleaned up in front of us; what is gone is older than what is there.
                self._positions[partition] = await self._wire.earliest(TOPIC, partition)
                continue
            if found.error_code != NONE:
                self._forget()
                raise self._wire.partition_error(TOPIC, partition, found.error_code)
            if found.blocks:
                self._learn(found.blocks, position, partition)
            self._positions[partition] = found.next_position
            if goal is None:
                goal = found.high_watermark if settled else found.last_stable_offset
            if found.next_position >= goal:
                return
            if found.next_position == position:
                if found.size or found.last_stable_offset >= goal:
                    raise StillWaiting(f"{TOPIC}-{partition} shows nothing at {position}")
                # Another sink's decision is under way here: its outcome is a matter of a moment,
                # or of that transaction's time-out if its driver is dead.
                await self._wire.core.sleep_until(self._wire.core.now_ms + _WAIT_MS)

    def _learn(self, blocks: list[RecordBlock], position: int, partition: int) -> None:
        found = read_records((TOPIC, partition), blocks, position)
        for record in found.some(0, len(found)):
            if record.key is not None:
                self._newest[record.key.decode(errors="replace")] = record.value

    async def _find_topic(self) -> None:
        if self._count:
            return
        core = self._wire.core
        answer = await core.request(
            core.least_loaded(),
            METADATA,
            {
                "topics": [{"topic_id": NULL_UUID, "name": TOPIC}],
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            },
        )
        found = answer.topics[0]
        core.cluster.update(answer, all_topics=False)
        if found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            await self._create()
            raise StillWaiting(f"{TOPIC} is being created")
        if found.error_code != NONE:
            raise error_for(found.error_code, TOPIC)
        core.metadata.want(TOPIC)
        self._count = len(found.partitions)
        self._topic_id = "" if found.topic_id == NULL_UUID else str(found.topic_id)

    async def _create(self) -> None:
        """As durable as what it decides on: a decision that is lost is a batch written twice. How
        many brokers there are is tried out: those that can be seen leave out who is away."""
        replicas = REPLICAS_MAX
        code, message = await self._ask_to_create(replicas)
        while code == INVALID_REPLICATION_FACTOR and replicas > 1:
            replicas -= 1
            code, message = await self._ask_to_create(replicas)
        if code not in (NONE, TOPIC_ALREADY_EXISTS):
            raise error_for(code, f"creating {TOPIC}", message)

    async def _ask_to_create(self, replicas: int) -> tuple[int, str | None]:
        core = self._wire.core
        settings = {**SETTINGS, "min.insync.replicas": str(max(replicas - 1, 1))}
        node_id = core.cluster.controller_id
        if node_id not in core.cluster.brokers:
            node_id = core.least_loaded()
        answer = await core.request(
            node_id,
            CREATE_TOPICS,
            {
                "topics": [
                    {
                        "name": TOPIC,
                        "num_partitions": PARTITIONS,
                        "replication_factor": replicas,
                        "assignments": [],
                        "configs": [
                            {"name": name, "value": value} for name, value in settings.items()
                        ],
                    }
                ],
                "timeout_ms": self._wire.settings.request_timeout_ms,
                "validate_only": False,
            },
        )
        return answer.topics[0].error_code, answer.topics[0].error_message

    def _forget(self) -> None:
        """The topic may be another one by now: everything is asked and read anew."""
        self._count = 0
        self._positions.clear()
        self._newest.clear()


def _readable(sink: str, value: bytes | None) -> Decision | None:
    """None for what another version or somebody else has written: whose it is cannot be told, and
    who asks for that sink itself hears of it."""
    try:
        return None if value is None else decision_of(sink, value)
    except SinkConflict:
        return None
