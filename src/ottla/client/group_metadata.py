"""Who a consumer is in its group, as a transaction needs it to commit its offsets."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, NamedTuple

from ottla.base.ids import TopicPartition

_LONG_MAX = 2**63 - 1


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
            index(position.offset)
        except (TypeError, IndexError):
            raise TypeError(
                f"offsets are {{(topic, partition): offset}}, not {{{key!r}: {one!r}}}"
            ) from None
        epoch, metadata = position.leader_epoch, position.metadata
        if not isinstance(epoch, int) or not isinstance(metadata, str | None):
            raise TypeError(
                "a position is an offset, leader_epoch (a number) and metadata (a text),"
                f" not {position!r}"
            )
        offset = as_long(position.offset, f"offset of {topic}-{partition}")
        offsets[topic, partition] = position._replace(offset=offset)
    return offsets


def as_long(given: Any, what: str) -> int:
    """A number that can be said to a broker; its numbers below 0 have other meanings."""
    try:
        number = index(given)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {type(given).__name__}") from None
    if not 0 <= number <= _LONG_MAX:
        wrong = "below 0" if number < 0 else f"above {_LONG_MAX}"
        raise ValueError(f"{what}: {number} is {wrong}")
    return number
