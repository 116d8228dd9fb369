"""Questions that stock clients do not ask, or whose answers they hide, to one broker of a cluster.

Written and read with kio and not with our own codecs (see tests/compat/wire.py).
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, Protocol

from tests.cluster.waiting import until
from tests.compat.wire import Wire

LATEST = -1
CONSUMER, DEBUGGER = -1, -2
NO_EPOCH = -1

NONE = 0
OFFSET_OUT_OF_RANGE = 1
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
NOT_ENOUGH_REPLICAS = 19
INVALID_REQUIRED_ACKS = 21
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75


class Reachable(Protocol):
    """A cluster whose brokers listen on this machine."""

    @property
    def broker_ids(self) -> list[int]: ...
    def port(self, broker_id: int, /) -> int: ...


def wire_to(cluster: Reachable, broker_id: int) -> Wire:
    return Wire(f"127.0.0.1:{cluster.port(broker_id)}")


def metadata(cluster: Reachable, broker_id: int, topic: str) -> Any:
    schema: Any = import_module("kio.schema.metadata.v12.request")
    request = schema.MetadataRequest(
        topics=(schema.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=topic),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    with wire_to(cluster, broker_id) as wire:
        return wire.call(request)


def partition_of(cluster: Reachable, broker_id: int, topic: str) -> Any:
    """What the broker tells of the topic's first partition."""
    (told,) = metadata(cluster, broker_id, topic).topics
    return min(told.partitions, key=lambda one: int(one.partition_index))


def until_told(cluster: Reachable, topic: str) -> None:
    """Until every broker that is there knows the topic and the leaders of its partitions."""

    def is_told(broker_id: int) -> bool:
        try:
            (told,) = metadata(cluster, broker_id, topic).topics
        except ConnectionError:
            return True
        return bool(told.partitions) and all(int(one.leader_id) >= 0 for one in told.partitions)

    for broker_id in cluster.broker_ids:
        until(partial(is_told, broker_id), f"{topic} is known")


def until_served(cluster: Reachable, topic: str) -> None:
    """Until the first partition is open wherever it has a replica, and its leader leads.

    A topic is answered for when one broker has acted on it, and every broker tells of it as soon as
    it has heard; the others may still open their replicas, and refuse what comes meanwhile.
    """
    (told,) = metadata(cluster, cluster.broker_ids[0], topic).topics
    part = min(told.partitions, key=lambda one: int(one.partition_index))

    def is_served(broker_id: int, who: int) -> bool:
        return int(latest(cluster, broker_id, topic, who=who).error_code) == NONE

    for broker_id in map(int, part.replica_nodes):
        until(partial(is_served, broker_id, DEBUGGER), f"{topic} is open on {broker_id}")
    until(partial(is_served, int(part.leader_id), CONSUMER), f"{topic} is led")


def latest(
    cluster: Reachable, broker_id: int, topic: str, *, who: int = CONSUMER, epoch: int = NO_EPOCH
) -> Any:
    schema: Any = import_module("kio.schema.list_offsets.v7.request")
    part = schema.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=epoch, timestamp=LATEST
    )
    request = schema.ListOffsetsRequest(
        replica_id=who,
        isolation_level=0,
        topics=(schema.ListOffsetsTopic(name=topic, partitions=(part,)),),
    )
    with wire_to(cluster, broker_id) as wire:
        return wire.call(request).topics[0].partitions[0]


def end_of_log(cluster: Reachable, broker_id: int, topic: str) -> int:
    """Where the broker's own log ends, whatever is committed."""
    return int(latest(cluster, broker_id, topic, who=DEBUGGER).offset)


def watermark(cluster: Reachable, broker_id: int, topic: str) -> int:
    return int(latest(cluster, broker_id, topic).offset)


def end_of_epoch(cluster: Reachable, broker_id: int, topic: str, epoch: int) -> Any:
    schema: Any = import_module("kio.schema.offset_for_leader_epoch.v4.request")
    part = schema.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=NO_EPOCH, leader_epoch=epoch
    )
    request = schema.OffsetForLeaderEpochRequest(
        replica_id=CONSUMER, topics=(schema.OffsetForLeaderTopic(topic=topic, partitions=(part,)),)
    )
    with wire_to(cluster, broker_id) as wire:
        return wire.call(request).topics[0].partitions[0]


def fetch(
    cluster: Reachable,
    broker_id: int,
    topic: str,
    offset: int,
    *,
    epoch: int = NO_EPOCH,
    rack: str = "",
    replica_id: int = CONSUMER,
    port: int | None = None,
) -> Any:
    """Fetch 12 of the first partition, outside of any session."""
    schema: Any = import_module("kio.schema.fetch.v12.request")
    part = schema.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    request = schema.FetchRequest(
        replica_id=replica_id,
        max_wait=timedelta(0),
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(schema.FetchTopic(topic=topic, partitions=(part,)),),
        forgotten_topics_data=(),
        rack_id=rack,
    )
    with Wire(f"127.0.0.1:{port or cluster.port(broker_id)}") as wire:
        answer = wire.call(request)
        return answer.responses[0].partitions[0] if answer.responses else answer


def lag(cluster: Reachable, broker_id: int, topic: str) -> int:
    schema: Any = import_module("kio.schema.describe_log_dirs.v4.request")
    wanted = schema.DescribableLogDirTopic(topic=topic, partitions=(0,))
    with wire_to(cluster, broker_id) as wire:
        answer = wire.call(schema.DescribeLogDirsRequest(topics=(wanted,)))
    (found,) = (part for one in answer.results for told in one.topics for part in told.partitions)
    return int(found.offset_lag)
