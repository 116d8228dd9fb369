"""What members of a classic group tell each other through the coordinator (ConsumerProtocol).

Owns the bytes of a subscription (0 to 3: since 1 with owned partitions, 2 generation, 3 rack) and
of an assignment. Version 3 is written; any later one is read as 3, as Kafka's clients agreed. They
come from other members: what is no such thing raises MalformedRequest, and no count is believed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ottla.base.errors import MalformedRequest
from ottla.base.ids import TopicPartition

VERSION_MAX = 3
NO_GENERATION = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


@dataclass(slots=True, kw_only=True)
class Subscription:
    """What one member says of itself."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack: str | None = None
    instance_id: str | None = None
    """Not in the bytes: the coordinator tells it beside them."""


@dataclass(slots=True)
class Assignment:
    partitions: list[TopicPartition] = field(default_factory=list)
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    return b"".join(
        (
            _INT16.pack(VERSION_MAX),
            _INT32.pack(len(subscription.topics)),
            *(_string(topic) for topic in subscription.topics),
            _bytes(subscription.user_data),
            encode_partitions(subscription.owned),
            _INT32.pack(subscription.generation),
            _INT16.pack(-1) if subscription.rack is None else _string(subscription.rack),
        )
    )


def decode_subscription(data: bytes) -> Subscription:
    reader = Reader(data)
    version = reader.version()
    topics = [reader.string() for _ in range(reader.count(2))]
    subscription = Subscription(topics=topics, user_data=reader.nullable_bytes())
    if version >= 1:
        subscription.owned = reader.partitions()
    if version >= 2:
        subscription.generation = reader.int32()
    if version >= 3:
        subscription.rack = reader.nullable_string()
    return subscription


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None
) -> bytes:
    return _INT16.pack(0) + encode_partitions(partitions) + _bytes(user_data)


def decode_assignment(data: bytes) -> Assignment:
    if not data:
        return Assignment()  # a leader that does not know this member
    reader = Reader(data)
    reader.version()
    return Assignment(reader.partitions(), reader.nullable_bytes())


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Topics in order, each with its partitions."""
    parts = []
    for topic, group in groupby(sorted(partitions), key=lambda partition: partition[0]):
        numbers = [partition for _, partition in group]
        parts.append(_string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return _INT32.pack(len(parts)) + b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


class Reader:
    """Reads from the start on; what is missing at the end raises MalformedRequest."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def version(self) -> int:
        version = self._int16()
        if version < 0:
            raise MalformedRequest(f"a member's bytes have version {version}")
        return version

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def count(self, size_min: int) -> int:
        """A count of things of at least so many bytes each."""
        count = self.int32()
        if not 0 <= count * size_min <= self.left():
            raise MalformedRequest(f"a member's bytes cannot hold {count} entries")
        return count

    def left(self) -> int:
        return len(self._data) - self.position

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedRequest("a name is missing in a member's bytes")
        return text

    def nullable_string(self) -> str | None:
        length = self._int16()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as cause:
            raise MalformedRequest("a name in a member's bytes is no text") from cause

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.count(6)):
            topic = self.string()
            count = self.count(4)
            numbers = struct.unpack(f">{count}i", self._take(4 * count))
            found += [(topic, number) for number in numbers]
        return found

    def _int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= self.left():
            raise MalformedRequest("a member's bytes end too early")
        start, self.position = self.position, self.position + size
        return self._data[start : self.position]


PartitionCounts = Mapping[str, int]
Members = Mapping[str, Subscription]
Assignments = dict[str, list[TopicPartition]]
