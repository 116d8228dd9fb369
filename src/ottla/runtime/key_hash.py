"""Which partition of an internal topic holds a key: Kafka's formula, so that all tools agree.

Hashing walks over the key's UTF-16 units one by one, so the hashes of keys that come again are
remembered.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

# Longer keys are nobody's; their hash is not worth remembering.
REMEMBERED_LENGTH_MAX = 256


def java_hash(text: str) -> int:
    """What Java makes of `abs(text.hashCode())`, where the lowest number of all has no positive."""
    data = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        total = (31 * total + unit) & 0xFFFFFFFF
    if total == 0x80000000:
        return 0
    return total if total < 0x80000000 else 0x100000000 - total


_remembered: Callable[[str], int] = functools.lru_cache(maxsize=16_384)(java_hash)


def key_hash(key: str) -> int:
    return java_hash(key) if len(key) > REMEMBERED_LENGTH_MAX else _remembered(key)
