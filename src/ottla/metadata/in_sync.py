"""In-sync sets that leaders propose: which of them may be written, and on which versions.

A leader may change the set of a partition that it leads in that very epoch, on top of the very
state that it knows. Who joins must be in the life that caught up, and must be there to stay: not
fenced, not stopping, not back from a loss of power (KIP-841, KIP-903), and on a disk that works.
Both nodes of its registration are checked in the same commit, so that a broker that restarts
meanwhile does not inherit what its earlier life has earned.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

from ottla.metadata import paths
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.partition_rules import PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.store import Operation
from ottla.metadata.topic_settings import TopicSettings


class Proposal(Protocol):
    """What `replication` proposes."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def in_sync(self) -> tuple[int, ...]: ...
    @property
    def joining(self) -> tuple[tuple[int, int], ...]: ...


P = TypeVar("P", bound=Proposal)


class InSyncDecision(NamedTuple):
    """`refused`: for each proposal, in order, whether it can't be taken."""

    operations: list[Operation]
    refused: list[bool]


def decide_in_sync_changes(
    image: MetadataImage, leader: int, proposals: Iterable[P], settings: TopicSettings
) -> InSyncDecision:
    """One commit for all that can be taken; each partition may be proposed for once."""
    writes = PartitionWrites(image)
    refused = []
    for proposal in proposals:
        state = image.partition(proposal.topic, proposal.partition)
        takes = state is not None and _may_be_taken(image, leader, state, proposal)
        refused.append(not takes)
        if state is None or not takes:
            continue
        topic = image.topics[proposal.topic]
        changed = PartitionChange(
            state,
            image.may_lead_in(topic, proposal.partition),
            settings.min_in_sync(topic),
            in_sync=proposal.in_sync,
        ).built()
        # Also where nothing changes: the version must grow, so that a proposal that was lost can't
        # be accepted any more (Z4).
        writes.write(topic, proposal.partition, changed)
        for broker, _ in proposal.joining:
            writes.check(paths.broker_id(broker))
            writes.check(paths.broker_epoch(broker))
    return InSyncDecision(writes.operations(), refused)


def _may_be_taken(
    image: MetadataImage, leader: int, state: PartitionState, proposal: Proposal
) -> bool:
    if state.leader != leader or state.leader_epoch != proposal.leader_epoch:
        return False
    if state.partition_epoch != proposal.partition_epoch:
        return False
    members = set(proposal.in_sync)
    if leader not in members or not members <= set(state.replicas):
        return False
    if len(members) != len(proposal.in_sync):
        return False
    if members - set(state.in_sync) != {broker for broker, _ in proposal.joining}:
        return False
    lost = image.lost_by(image.topics[proposal.topic], proposal.partition)
    return all(
        broker not in lost and _may_join(image, broker, epoch) for broker, epoch in proposal.joining
    )


def _may_join(image: MetadataImage, broker_id: int, epoch: int) -> bool:
    broker = image.brokers.get(broker_id)
    return (
        broker is not None
        and broker.epoch == epoch
        and not (broker.fenced or broker.shutting_down or broker.unclean)
    )
