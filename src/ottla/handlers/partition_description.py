"""How a partition looks to a client on one listener: Metadata and DescribeTopicPartitions.

Owns the rule which brokers a client can reach: those that are registered, not fenced, and have an
endpoint under the name of the listener that the request came in on.

And how a partition that nobody leads is told. It is stored with an in-sync set that is never empty
(Z2); Kafka's is empty by then, and who was in it is eligible. So it is told, or a partition of one
replica would be told as whole while it can't be reached. The same goes for one whose leader's disk
has failed, until another one leads: a broker knows that of itself first.

At level 0 of `eligible.leader.replicas.version` clients are told what they know without it: nobody
is eligible, and the last member stays in the in-sync set.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ottla.base.errors import ProtocolError
from ottla.handlers.context import Context
from ottla.metadata import features, topic_names
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.protocol.error_codes import (
    LEADER_NOT_AVAILABLE,
    LISTENER_NOT_FOUND,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)

NO_LEADER = -1

Fields = dict[str, Any]
Endpoints = dict[int, tuple[str, int]]
"""Host and port by broker id, of the brokers that can be reached."""


def reachable_brokers(context: Context) -> Endpoints:
    services = context.services
    endpoints: Endpoints = {}
    for broker in services.image.brokers.values():
        if not broker.fenced:
            endpoint = services.advertised_endpoint(broker.broker_id, context.listener_name)
            if endpoint is not None:
                endpoints[broker.broker_id] = endpoint
    return endpoints


def describe_partition(
    index: int,
    state: PartitionState,
    image: MetadataImage,
    reachable: Endpoints,
    lost_by: Collection[int] = (),
) -> Fields:
    """The fields of Metadata v7+ and of DescribeTopicPartitions. `lost_by`: the brokers whose
    replica is of no use."""
    leader, code = state.leader, NONE
    if leader in lost_by:
        leader, code = NO_LEADER, LEADER_NOT_AVAILABLE
    elif leader not in reachable:
        # A leader that is there but has no such listener is a matter of configuration (KIP-103).
        code = LISTENER_NOT_FOUND if image.is_live(leader) else LEADER_NOT_AVAILABLE
        leader = NO_LEADER
    in_sync, eligible, last_known = state.in_sync, state.eligible, state.last_known
    if not features.has_eligible_leaders(image):
        eligible = last_known = ()
    elif state.leader == NO_LEADER or state.leader in lost_by:
        in_sync, eligible = (), tuple(sorted({*in_sync, *eligible}))
        if state.leader != NO_LEADER:
            last_known = (state.leader,)
    else:
        last_known = ()
    return {
        "error_code": code,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": in_sync,
        "eligible_leader_replicas": eligible,
        "last_known_elr": last_known,
        "offline_replicas": [
            replica for replica in state.replicas if replica not in reachable or replica in lost_by
        ],
    }


def lost_by(context: Context, topic: TopicImage, index: int) -> frozenset[int]:
    """Whose replica is of no use: as the image says, and as this broker knows of itself."""
    services = context.services
    known = services.image.lost_by(topic, index)
    here = services.broker_id
    return known | {here} if index in services.partitions.lost(topic.name) else known


def code_without_topic(name: str) -> int:
    """Why there is no topic of this name: there could be none, or there is none yet."""
    try:
        topic_names.validate(name)
    except ProtocolError as refused:
        return refused.code
    return UNKNOWN_TOPIC_OR_PARTITION
