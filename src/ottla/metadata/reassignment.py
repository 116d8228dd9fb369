"""Moving partitions to other brokers (KIP-455).

While a move is under way the partition has the target's replicas first and those to be removed
behind them. It is done once every replica that was added is in sync; then the removed ones are
dropped in one write. A new target replaces the old one: it is counted from the replicas that the
partition had before any move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.base.ids import NO_BROKER
from ottla.metadata.assignment import Moving, check_replicas, refused, topic_write
from ottla.metadata.decision import Decision, decided
from ottla.metadata.elections import IsLive, PartitionResult, state_write
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.metadata.nodes import StateContent
from ottla.metadata.store import Write
from ottla.protocol.error_codes import (
    INVALID_REPLICATION_FACTOR,
    NO_REASSIGNMENT_IN_PROGRESS,
    UNKNOWN_TOPIC_OR_PARTITION,
)


class Reassignment(NamedTuple):
    """`replicas` None: stop the move that is under way and go back."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


def decide_alter_reassignments(
    image: MetadataImage, moves: Iterable[Reassignment], *, allow_factor_change: bool = True
) -> Decision[list[PartitionResult]]:
    """Each is decided on what the ones before it have made of the partition."""
    changed: dict[str, dict[int, PartitionState]] = {}
    results = []
    for move in moves:
        result = PartitionResult(move.topic, move.partition)
        results.append(result)
        try:
            topic, state = _find(image, changed, move)
            after = _moved(image, state, move.replicas, allow_factor_change)
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, error.message or None
            continue
        changed.setdefault(topic.name, {})[move.partition] = after
    writes = [
        write
        for name, states in changed.items()
        for write in partition_writes(image, image.topics[name], states)
    ]
    return decided(image, writes, results)


def partition_writes(
    image: MetadataImage, topic: TopicImage, changed: Mapping[int, PartitionState]
) -> list[Write]:
    """The topic's node and the state of each changed partition.

    The state is written even if only the replicas differ: its version must move, so that a leader
    that does not know of them yet can't change the in-sync set of a partition that is no more.
    """
    really = {index: state for index, state in changed.items() if state != topic.partitions[index]}
    if not really:
        return []
    partitions = {**topic.partitions, **really}
    moving: Moving = {
        index: (state.adding, state.removing)
        for index, state in partitions.items()
        if state.is_reassigning()
    }
    replicas = {index: state.replicas for index, state in partitions.items()}
    return [
        topic_write(topic, replicas, moving),
        *(
            state_write(image, topic.name, index, _content(state))
            for index, state in really.items()
        ),
    ]


def maybe_complete(state: PartitionState, is_live: IsLive) -> PartitionState:
    """The partition after its move, if all that were added are in sync; else as it is."""
    target = state.target_replicas()
    in_sync = tuple(replica for replica in state.in_sync if replica in target)
    if not state.is_reassigning() or not in_sync or not set(state.adding) <= set(in_sync):
        return state
    leader = state.leader
    if leader not in in_sync:
        leader = next((r for r in target if r in in_sync and is_live(r)), NO_BROKER)
        if leader == NO_BROKER:
            return state  # the one who leads now is better than nobody
    return _settled(state, target, in_sync, leader)


def _find(
    image: MetadataImage, changed: Mapping[str, Mapping[int, PartitionState]], move: Reassignment
) -> tuple[TopicImage, PartitionState]:
    topic = image.topics.get(move.topic)
    if topic is None:
        message = f"Unable to find a topic named {move.topic}."
        raise ProtocolError(UNKNOWN_TOPIC_OR_PARTITION, message)
    state = topic.partitions.get(move.partition)
    if state is None:
        message = f"Unable to find partition {move.topic}:{move.partition}."
        raise ProtocolError(UNKNOWN_TOPIC_OR_PARTITION, message)
    return topic, changed.get(move.topic, {}).get(move.partition, state)


def _moved(
    image: MetadataImage,
    state: PartitionState,
    target: Sequence[int] | None,
    allow_factor_change: bool,
) -> PartitionState:
    if target is None:
        return _cancelled(image, state)
    check_replicas(image, target)
    original = state.original_replicas()
    if not allow_factor_change and len(target) != len(original):
        message = f"The replication factor is changed from {len(original)} to {len(target)}"
        raise ProtocolError(INVALID_REPLICATION_FACTOR, message)
    removing = tuple(replica for replica in original if replica not in target)
    replicas = tuple(target) + removing
    begun = replace(
        _restricted(image, state, replicas),
        adding=tuple(replica for replica in target if replica not in original),
        removing=removing,
    )
    return maybe_complete(begun, image.is_live)


def _cancelled(image: MetadataImage, state: PartitionState) -> PartitionState:
    if not state.is_reassigning():
        raise ProtocolError(NO_REASSIGNMENT_IN_PROGRESS)
    return _restricted(image, state, state.original_replicas())


def _restricted(
    image: MetadataImage, state: PartitionState, replicas: tuple[int, ...]
) -> PartitionState:
    """The partition on `replicas` only, at rest: who else was in sync, or led, is so no longer."""
    in_sync = tuple(replica for replica in state.in_sync if replica in replicas)
    if not in_sync:
        raise refused("None of the replicas that would be left is in sync.")
    leader = state.leader
    if leader not in in_sync:
        leader = next((r for r in replicas if r in in_sync and image.is_live(r)), NO_BROKER)
    return _settled(state, replicas, in_sync, leader)


def _settled(
    state: PartitionState, replicas: tuple[int, ...], in_sync: tuple[int, ...], leader: int
) -> PartitionState:
    """A new epoch if anybody is left behind: a fetch of theirs must not count any more."""
    left_behind = not set(state.replicas) <= set(replicas)
    return PartitionState(
        leader=leader,
        leader_epoch=state.leader_epoch + (left_behind or leader != state.leader),
        replicas=replicas,
        in_sync=in_sync,
        partition_epoch=state.partition_epoch,
        eligible=tuple(replica for replica in state.eligible if replica in replicas),
        last_known=tuple(replica for replica in state.last_known if replica in replicas),
    )


def _content(state: PartitionState) -> StateContent:
    return StateContent(
        state.leader, state.leader_epoch, state.in_sync, state.eligible, state.last_known
    )
