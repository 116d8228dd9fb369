"""One fetch of one partition: the blocks of records from a position on, and where they end.

By topic id where the broker can (Fetch 13 on), so that a topic created again under the same name
answers with an error. A leader may name a replica that is nearer (`client.rack`), with an answer
that holds no records: those are read there, and what that replica does not have is the leader's to
tell. So an answer without records is always the leader's own.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, ConnectionLostError, error_for
from ottla.client.fetch_batches import FetchedBatches
from ottla.protocol.api_keys import FETCH
from ottla.protocol.error_codes import NONE
from ottla.protocol.primitives import NULL_UUID

if TYPE_CHECKING:
    from ottla.client.fetch_batches import RecordBlock
    from ottla.spark.wire import Wire

_OUTSIDE_A_SESSION = -1
_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Place:
    """What to fetch, and how."""

    topic: str
    topic_id: str
    partition: int
    committed_only: bool
    bytes_max: int
    wait_ms: int
    check_crcs: bool = True
    # An answer waits for so many bytes, `wait_ms` at most.
    bytes_min: int = 1
    # Where the reader is, for a replica near it; empty: the leader is read.
    rack: str = ""


@dataclass(slots=True)
class Fetched:
    """`error_code` is the partition's; with one, the rest is empty."""

    error_code: int
    position: int
    blocks: list[RecordBlock]
    next_position: int
    last_stable_offset: int = -1
    high_watermark: int = -1
    size: int = 0
    throttle_ms: int = 0


async def fetch(wire: Wire, place: Place, position: int, end: int | None = None) -> Fetched:
    """One attempt. Blocks that begin at `end` or behind it are left out."""
    leader = await wire.leader_of(place.topic, place.partition)
    where = (place.topic, place.partition)
    nearer = wire.nearer.get(where, _NOBODY) if place.rack else _NOBODY
    if nearer == _NOBODY:
        answer = await _ask(wire, leader, place, position, place.rack)
        nearer = answer.responses[0].partitions[0].preferred_read_replica
        if nearer in (_NOBODY, leader):
            return _taken(answer, place, position, end)
    if nearer in wire.core.cluster.brokers:
        found = await _fetch_nearer(wire, nearer, place, position, end)
        if found is not None:
            wire.nearer[where] = nearer
            return found
    # It is away, behind, or not a replica any more: the leader has everything.
    wire.nearer.pop(where, None)
    return _taken(await _ask(wire, leader, place, position, ""), place, position, end)


async def _fetch_nearer(
    wire: Wire, node_id: int, place: Place, position: int, end: int | None
) -> Fetched | None:
    """None when that replica has nothing to give, for whatever reason."""
    try:
        answer = await _ask(wire, node_id, place, position, place.rack)
    except ClientError:
        return None
    found = _taken(answer, place, position, end)
    return found if found.error_code == NONE and found.next_position > position else None


async def _ask(wire: Wire, node_id: int, place: Place, position: int, rack: str) -> Any:
    try:
        answer = await wire.core.request(node_id, FETCH, _question(wire, place, position, rack))
    except ConnectionLostError:
        wire.core.metadata.request_update()
        raise
    if answer.error_code != NONE:
        raise error_for(answer.error_code, f"fetching {place.topic}-{place.partition}")
    return answer


def _taken(answer: Any, place: Place, position: int, end: int | None) -> Fetched:
    found = answer.responses[0].partitions[0]
    if found.error_code != NONE:
        return Fetched(found.error_code, position, [], position)
    data = found.records or b""
    aborted = None
    if place.committed_only:
        aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions or ()]
    batches = FetchedBatches(
        data, 0, len(data), position, aborted=aborted, check_crcs=place.check_crcs
    )
    blocks = []
    while end is None or batches.position < end:
        block = batches.next_block()
        if block is None:
            break
        blocks.append(block)
        batches.advance(block.next_offset())
    return Fetched(
        NONE,
        position,
        blocks,
        batches.position,
        found.last_stable_offset,
        found.high_watermark,
        len(data),
        answer.throttle_time_ms,
    )


def _question(wire: Wire, place: Place, position: int, rack: str) -> dict[str, Any]:
    epoch = wire.core.cluster.leader_epoch_of(place.topic, place.partition)
    partition = {
        "partition": place.partition,
        "current_leader_epoch": epoch,
        "fetch_offset": position,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": place.bytes_max,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": place.wait_ms,
        "min_bytes": place.bytes_min,
        "max_bytes": place.bytes_max,
        "isolation_level": int(place.committed_only),
        "session_id": 0,
        "session_epoch": _OUTSIDE_A_SESSION,
        "topics": [
            {
                "topic": place.topic,
                "topic_id": uuid.UUID(place.topic_id) if place.topic_id else NULL_UUID,
                "partitions": [partition],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": rack,
    }
