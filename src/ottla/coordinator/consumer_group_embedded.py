"""The classic consumers' own protocol in full: what a group needs to change its kind.

Subscriptions and assignments that classic members send each other through the coordinator. A
version above 3 is read as version 3: later ones only add to the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.coordinator.consumer_protocol import UnreadableSubscription
from ottla.coordinator.offsets_records import RecordReader

NEWEST_VERSION = 3

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NULL_BYTES = b"\xff\xff\xff\xff"


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]
    rack_id: str | None


class Assignment(NamedTuple):
    """`user_data` is what an assignor of the user's own making tells its members besides."""

    partitions: Mapping[str, tuple[int, ...]]
    user_data: bytes


def read_subscription(data: bytes) -> Subscription:
    reader = _Reader(data)
    try:
        version = reader.version()
        topics = tuple([reader.string() for _ in range(reader.count())])
        reader.nullable_bytes()
        owned = reader.topic_partitions() if version >= 1 else {}
        if version >= 2:
            reader.int32()  # the generation in which it owned them
        rack_id = reader.nullable_string() if version >= 3 else None
        return Subscription(version, topics, owned, rack_id or None)
    except ValueError as cause:
        raise UnreadableSubscription("a subscription that ends too early") from cause


def read_assignment(data: bytes) -> Assignment:
    reader = _Reader(data)
    try:
        reader.version()
        return Assignment(reader.topic_partitions(), reader.nullable_bytes())
    except ValueError as cause:
        raise UnreadableSubscription("an assignment that ends too early") from cause


def write_assignment(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    parts = [_INT16.pack(min(version, NEWEST_VERSION)), _INT32.pack(len(partitions))]
    for topic, held in partitions.items():
        name, indexes = topic.encode(), sorted(held)
        parts += (
            _INT16.pack(len(name)),
            name,
            struct.pack(f">i{len(indexes)}i", len(indexes), *indexes),
        )
    parts.append(_NULL_BYTES)
    return b"".join(parts)


class _Reader(RecordReader):
    __slots__ = ()

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise ValueError("a negative version")
        return min(version, NEWEST_VERSION)

    def count(self) -> int:
        """Every element takes two bytes at least, so a lie is found out before long."""
        count = self.int32()
        if count < 0:
            raise ValueError("a negative count")
        return count

    def nullable_bytes(self) -> bytes:
        length = self.int32()
        return b"" if length < 0 else self._take(length)

    def topic_partitions(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for _ in range(self.count()):
            topic = self.string()
            count = self.count()
            found[topic] = struct.unpack(f">{count}i", self._take(4 * count))
        return found
