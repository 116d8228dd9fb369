"""Elections that an administrator asks for: the preferred leader back, or a leader at any price.

How a leader is chosen is said in `partition_rules`; here is whether an election is called for, and
what is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.base.errors import ProtocolError
from ottla.base.ids import NO_BROKER, TopicPartition
from ottla.metadata.decision import Decision, decided
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.partition_rules import PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.topic_settings import TopicSettings
from ottla.protocol.error_codes import (
    ELECTION_NOT_NEEDED,
    ELIGIBLE_LEADERS_NOT_AVAILABLE,
    INVALID_REQUEST,
    NONE,
    PREFERRED_LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
)

PREFERRED, UNCLEAN = 0, 1


@dataclass(slots=True)
class PartitionResult:
    topic: str
    partition: int
    error_code: int = NONE
    error_message: str | None = None


def decide_elect_leaders(
    image: MetadataImage,
    partitions: Iterable[TopicPartition],
    election_type: int,
    settings: TopicSettings,
) -> Decision[list[PartitionResult]]:
    """One result per partition, also where it is named twice."""
    wanted = list(partitions)
    if election_type not in (PREFERRED, UNCLEAN):
        message = f"Unknown election type {election_type}"
        return Decision(
            [], [PartitionResult(topic, index, INVALID_REQUEST, message) for topic, index in wanted]
        )
    outcomes: dict[TopicPartition, PartitionResult] = {}
    writes = PartitionWrites(image)
    for topic, index in dict.fromkeys(wanted):
        outcomes[topic, index] = result = PartitionResult(topic, index)
        try:
            elected = _elect(image, topic, index, election_type, settings)
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            writes.add(image.topics[topic], index, elected)
    return decided(image, writes.operations(), [outcomes[partition] for partition in wanted])


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


def _elect(
    image: MetadataImage, topic: str, index: int, election_type: int, settings: TopicSettings
) -> PartitionState:
    if topic not in image.topics:
        raise ProtocolError(UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    state = image.partition(topic, index)
    if state is None:
        raise ProtocolError(UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    if _is_settled(state, election_type):
        raise ProtocolError(ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    elected = PartitionChange(
        state,
        image.may_lead_in(image.topics[topic], index),
        settings.min_in_sync(image.topics[topic]),
        unknowing=image.unclean_brokers() | image.lost_by(image.topics[topic], index),
        prefer_first=election_type == PREFERRED,
        unclean=election_type == UNCLEAN,
    ).built()
    if election_type == UNCLEAN and elected.leader == NO_BROKER:
        message = "Eligible topic partition leaders are not available."
        raise ProtocolError(ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    if election_type == PREFERRED and elected.leader != state.replicas[0]:
        message = "The preferred leader was not available."
        raise ProtocolError(PREFERRED_LEADER_NOT_AVAILABLE, message)
    return elected
