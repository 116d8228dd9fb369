"""Moving partitions to other brokers (KIP-455).

While a move is under way the partition has the target's replicas first and those to be removed
behind them. It is done once every replica that was added is in sync; then the removed ones are
dropped in one write. A new target replaces the old one: it is counted from the replicas that the
partition had before any move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.base.ids import NO_BROKER
from ottla.metadata.assignment import check_replicas, refused
from ottla.metadata.decision import Decision, decided
from ottla.metadata.elections import PartitionResult
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.metadata.partition_rules import NOBODY, MayLead, PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.topic_settings import TopicSettings
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
    image: MetadataImage,
    moves: Iterable[Reassignment],
    settings: TopicSettings,
    *,
    allow_factor_change: bool = True,
) -> Decision[list[PartitionResult]]:
    """Each is decided on what the ones before it have made of the partition."""
    changed: dict[str, dict[int, PartitionState]] = {}
    results = []
    for move in moves:
        result = PartitionResult(move.topic, move.partition)
        results.append(result)
        try:
            topic, state = _find(image, changed, move)
            mover = _Mover(
                image,
                image.may_lead_in(topic, move.partition),
                image.unclean_brokers() | image.lost_by(topic, move.partition),
                settings.min_in_sync(topic),
            )
            after = mover.moved(state, move.replicas, allow_factor_change)
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, error.message or None
            continue
        changed.setdefault(topic.name, {})[move.partition] = after
    # The state is written even if only the replicas differ: its version must move, so that a
    # leader that does not know of them yet can't change the in-sync set of what is no more.
    writes = PartitionWrites(image)
    for name, states in changed.items():
        for index, state in states.items():
            writes.add(image.topics[name], index, state)
    return decided(image, writes.operations(), results)


def maybe_complete(state: PartitionState, may_lead: MayLead, in_sync_min: int) -> PartitionState:
    """The partition after its move, if all that were added are in sync; else as it is."""
    target = state.target_replicas()
    in_sync = {replica for replica in state.in_sync if replica in target}
    if not state.is_reassigning() or not in_sync or not set(state.adding) <= in_sync:
        return state
    completed = settled(state, target, may_lead, in_sync_min)
    # The one who leads now is better than nobody.
    return state if completed.leader == NO_BROKER else completed


def settled(
    state: PartitionState,
    replicas: tuple[int, ...],
    may_lead: MayLead,
    in_sync_min: int,
    unknowing: Collection[int] = NOBODY,
) -> PartitionState:
    """The partition on `replicas` only, at rest: who else was in sync, or led, is so no longer.

    A new epoch if anybody is left behind: a fetch of theirs must not count any more.
    """
    kept = replace(
        state,
        replicas=replicas,
        adding=(),
        removing=(),
        last_known=tuple(replica for replica in state.last_known if replica in replicas),
    )
    left_behind = not set(state.replicas) <= set(replicas)
    return PartitionChange(
        kept, may_lead, in_sync_min, unknowing=unknowing, new_epoch=left_behind
    ).built()


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


class _Mover(NamedTuple):
    """Decides about one partition."""

    image: MetadataImage
    may_lead: MayLead
    unknowing: frozenset[int]
    in_sync_min: int

    def moved(
        self, state: PartitionState, target: Sequence[int] | None, allow_factor_change: bool
    ) -> PartitionState:
        if target is None:
            return self._cancelled(state)
        check_replicas(self.image, target)
        original = state.original_replicas()
        if not allow_factor_change and len(target) != len(original):
            message = f"The replication factor is changed from {len(original)} to {len(target)}"
            raise ProtocolError(INVALID_REPLICATION_FACTOR, message)
        removing = tuple(replica for replica in original if replica not in target)
        begun = replace(
            self._restricted(state, tuple(target) + removing),
            adding=tuple(replica for replica in target if replica not in original),
            removing=removing,
        )
        return maybe_complete(begun, self.may_lead, self.in_sync_min)

    def _cancelled(self, state: PartitionState) -> PartitionState:
        if not state.is_reassigning():
            raise ProtocolError(NO_REASSIGNMENT_IN_PROGRESS)
        return self._restricted(state, state.original_replicas())

    def _restricted(self, state: PartitionState, replicas: tuple[int, ...]) -> PartitionState:
        # Whom the controller is about to take out may not be who is left when others have gone.
        knowing = {*state.in_sync, *state.eligible} - self.unknowing
        left = set(replicas)
        if not left & set(state.in_sync) or (knowing and not left & knowing):
            raise refused("None of the replicas that would be left is in sync.")
        return settled(state, replicas, self.may_lead, self.in_sync_min, self.unknowing)
