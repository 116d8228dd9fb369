"""What an assignor is given and what it gives back.

An assignor is a function of the members and topics, and of nothing else: the same in, the same out.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.coordinator.consumer_records import Partitions


class MemberSpec(NamedTuple):
    """`target` is what the member was to have so far; of `topic_ids` every one exists."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[uuid.UUID]
    target: Partitions


class TopicSpec(NamedTuple):
    """`racks` are those of the replicas of each partition; () where nobody asks for racks."""

    partition_count: int
    racks: Sequence[frozenset[str]] = ()


Topics = Mapping[uuid.UUID, TopicSpec]
Assigned = dict[str, Partitions]
Assignor = Callable[[Sequence[MemberSpec], Topics], Assigned]


def is_near(spec: TopicSpec, partition: int, rack_id: str | None) -> bool:
    """Whether a replica of the partition is in the member's rack."""
    return rack_id is not None and bool(spec.racks) and rack_id in spec.racks[partition]
