"""Who a consumer is in its group, as a transaction needs it to commit its offsets."""

from __future__ import annotations

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to be read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
