"""Who a consumer is in its group, as a transaction needs it to commit its offsets."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, NamedTuple

from ottla.base.ids import TopicPartition


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


def as_offsets(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Positions given by hand. A broker would take those below 0, and nobody could read them."""
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets are {{(topic, partition): offset}}, not {type(given).__name__}")
    offsets = {}
    for key, one in given.items():
        try:
            topic, partition = key[0], index(key[1])  # numpy's numbers, too
            position = one if isinstance(one, OffsetAndMetadata) else OffsetAndMetadata(one)
            position = position._replace(offset=index(position.offset))
        except (TypeError, IndexError):
            raise TypeError(
                f"offsets are {{(topic, partition): offset}}, not {{{key!r}: {one!r}}}"
            ) from None
        if position.offset < 0:
            raise ValueError(f"offset {position.offset} of {topic}-{partition} is below 0")
        offsets[topic, partition] = position
    return offsets
