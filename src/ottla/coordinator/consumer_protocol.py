"""What classic consumers tell each other through the coordinator: subscriptions and assignments.

The coordinator relays these bytes without a look, with one exception: which topics a group reads
decides whether its offsets may be deleted or expire. Version 0 is a prefix of every later version.
"""

from __future__ import annotations

import struct

from ottla.base.errors import OttlaError

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


class UnreadableSubscription(OttlaError):
    """Bytes that are no subscription of a consumer."""


def subscribed_topics(subscription: bytes) -> list[str]:
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(subscription)
        # Each name takes two bytes at least: a count beyond that is a lie.
        if version < 0 or not 0 <= count <= len(subscription) // _LENGTH.size:
            raise UnreadableSubscription(f"version {version} with {count} topics")
        topics = []
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, position)
            position += _LENGTH.size
            name = subscription[position : position + length]
            if length < 0 or len(name) != length:
                raise UnreadableSubscription("a topic's name runs over the end")
            topics.append(name.decode())
            position += length
        return topics
    except (struct.error, UnicodeDecodeError) as cause:
        raise UnreadableSubscription("it ends too early, or holds no text") from cause
