"""Metadata answers, put together from pieces that stay encoded until the cluster changes.

Metadata is asked for by every client, often for every topic, and changes seldom. A topic's piece
is encoded once per version and listener and kept for as long as its TopicImage and the table of
brokers are the same objects: images are immutable, so `is` tells that nothing has changed.

Knows nothing of the wire but what surrounds the list of topics; everything is encoded by the
codec of the message schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from ottla.protocol.messages import encode_response
from ottla.protocol.primitives import uvarint

METADATA = 3
FIRST_FLEXIBLE_VERSION = 9

Fields = Mapping[str, Any]

NOTHING: Fields = {
    "throttle_time_ms": 0,
    "brokers": [],
    "cluster_id": None,
    "controller_id": -1,
    "topics": [],
    "error_code": 0,
}


class MetadataPieces:
    """What can be kept for one version, listener and choice of authorized operations."""

    __slots__ = (
        "_bare_start",
        "_head",
        "_tail",
        "_topics",
        "_trailing",
        "_version",
        "brokers",
        "controller_id",
        "features",
    )

    def __init__(self, version: int, image: MetadataImage, surroundings: Fields) -> None:
        self.brokers: Mapping[int, BrokerRegistration] = image.brokers
        self.controller_id = image.controller_id
        self.features: Mapping[str, int] = image.features
        self._version = version
        self._trailing = trailing = _trailing_bytes(version)
        self._topics: dict[str, tuple[TopicImage, bytes]] = {}
        self._bare_start = len(encode_response(METADATA, version, NOTHING)) - trailing
        empty = encode_response(METADATA, version, {**surroundings, "topics": []})
        count_size = len(self._count(0))
        self._head = empty[: len(empty) - trailing - count_size]
        self._tail = empty[len(empty) - trailing :]

    def matches(self, image: MetadataImage) -> bool:
        """Whether all that is kept here but the topics is still true."""
        return (
            image.brokers is self.brokers
            and image.controller_id == self.controller_id
            and image.features == self.features
        )

    def kept(self, topic: TopicImage) -> bytes | None:
        found = self._topics.get(topic.name)
        return found[1] if found is not None and found[0] is topic else None

    def keep(self, topic: TopicImage, fields: Fields) -> bytes:
        piece = self.encode(fields)
        self._topics[topic.name] = (topic, piece)
        return piece

    def encode(self, fields: Fields) -> bytes:
        """One topic as it stands in the list of topics."""
        alone = encode_response(METADATA, self._version, {**NOTHING, "topics": [fields]})
        return alone[self._bare_start : len(alone) - self._trailing]

    def kept_count(self) -> int:
        return len(self._topics)

    def forget_deleted(self, image: MetadataImage) -> None:
        """Without this, topics that come and go would be kept for ever."""
        if len(self._topics) > len(image.topics):
            self._topics = {
                name: kept for name, kept in self._topics.items() if name in image.topics
            }

    def join(self, topics: list[bytes]) -> bytes:
        return b"".join((self._head, self._count(len(topics)), *topics, self._tail))

    def _count(self, count: int) -> bytes:
        if self._version < FIRST_FLEXIBLE_VERSION:
            return count.to_bytes(4, "big")
        return uvarint(count + 1)


def _trailing_bytes(version: int) -> int:
    """Of what follows the topics: the cluster's operations, an error code, no tagged fields."""
    size = 0
    if 8 <= version <= 10:
        size += 4
    if version >= 13:
        size += 2
    if version >= FIRST_FLEXIBLE_VERSION:
        size += 1
    return size
