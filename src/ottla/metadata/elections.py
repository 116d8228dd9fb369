"""Who leads a partition: choosing a leader, and the elections that an administrator asks for.

A leader comes out of the in-sync set, else out of the eligible replicas, which have everything that
was committed (KIP-966). Only an unclean election, which may lose records, takes another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ottla.base.errors import ProtocolError
from ottla.base.ids import NO_BROKER, TopicPartition
from ottla.metadata import nodes, paths
from ottla.metadata.decision import Decision, decided
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.nodes import StateContent
from ottla.metadata.store import Write
from ottla.protocol.error_codes import (
    ELECTION_NOT_NEEDED,
    ELIGIBLE_LEADERS_NOT_AVAILABLE,
    INVALID_REQUEST,
    NONE,
    PREFERRED_LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
)

PREFERRED, UNCLEAN = 0, 1

IsLive = Callable[[int], bool]


@dataclass(slots=True)
class PartitionResult:
    topic: str
    partition: int
    error_code: int = NONE
    error_message: str | None = None


def elect_leader(state: PartitionState, is_live: IsLive, *, unclean: bool) -> StateContent | None:
    """The state with a new leader; None if there is nobody who may lead."""
    for replica in state.target_replicas() + state.removing:
        if replica in state.in_sync and is_live(replica):
            return _led_by(state, replica, state.in_sync)
    for replica in state.replicas:
        if replica in state.eligible and is_live(replica):
            return _led_by(state, replica, (replica,))
    if not unclean:
        return None
    for replica in (*state.last_known, *state.replicas):
        if replica in state.replicas and is_live(replica):
            # What the others have beyond this one is cut off when they follow it.
            return _led_by(state, replica, (replica,), eligible=())
    return None


def state_write(image: MetadataImage, topic: str, index: int, state: StateContent) -> Write:
    """On top of the version of the partition that `image` has."""
    content = nodes.partition_state(image.controller_epoch, state)
    version = image.topics[topic].partitions[index].partition_epoch
    return Write(paths.partition_state(topic, index), content, version)


def decide_elect_leaders(
    image: MetadataImage, partitions: Iterable[TopicPartition], election_type: int
) -> Decision[list[PartitionResult]]:
    """One result per partition, also where it is named twice."""
    wanted = list(partitions)
    if election_type not in (PREFERRED, UNCLEAN):
        message = f"Unknown election type {election_type}"
        return Decision(
            [], [PartitionResult(topic, index, INVALID_REQUEST, message) for topic, index in wanted]
        )
    outcomes: dict[TopicPartition, PartitionResult] = {}
    writes: list[Write] = []
    for topic, index in dict.fromkeys(wanted):
        outcomes[topic, index] = result = PartitionResult(topic, index)
        try:
            elected = _elect(image, topic, index, election_type)
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            writes.append(state_write(image, topic, index, elected))
    return decided(image, writes, [outcomes[partition] for partition in wanted])


def partitions_to_elect(image: MetadataImage, election_type: int) -> list[TopicPartition]:
    """Those for which an election of everything has something to do or to complain of."""
    return [
        (topic.name, index)
        for topic in image.topics.values()
        for index, state in topic.partitions.items()
        if not _is_settled(state, election_type)
    ]


def _is_settled(state: PartitionState, election_type: int) -> bool:
    if election_type == UNCLEAN:
        return state.leader != NO_BROKER
    return state.leader == state.replicas[0]


def _elect(image: MetadataImage, topic: str, index: int, election_type: int) -> StateContent:
    if topic not in image.topics:
        raise ProtocolError(UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    state = image.partition(topic, index)
    if state is None:
        raise ProtocolError(UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    if _is_settled(state, election_type):
        raise ProtocolError(ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    if election_type == UNCLEAN:
        elected = elect_leader(state, image.is_live, unclean=True)
        if elected is None:
            message = "No replica of the partition is alive."
            raise ProtocolError(ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
        return elected
    preferred = state.replicas[0]
    if preferred not in state.in_sync or not image.is_live(preferred):
        message = "The preferred leader was not available."
        raise ProtocolError(PREFERRED_LEADER_NOT_AVAILABLE, message)
    return _led_by(state, preferred, state.in_sync)


def _led_by(
    state: PartitionState,
    leader: int,
    in_sync: Sequence[int],
    *,
    eligible: tuple[int, ...] | None = None,
) -> StateContent:
    kept = state.eligible if eligible is None else eligible
    return StateContent(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        in_sync=tuple(in_sync),
        eligible=tuple(replica for replica in kept if replica not in in_sync),
        last_known=(),
    )
