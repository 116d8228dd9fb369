"""Kafka's hash of a key: murmur2 with 32 bits and Kafka's seed, as an unsigned number.

`columns.partitioning` hashes a whole column with the same result.
"""

from __future__ import annotations

import struct

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    words = len(data) >> 2
    code = SEED ^ len(data)
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 24) * MULTIPLIER & _MASK
        code = code * MULTIPLIER & _MASK ^ mixed
    rest = data[words << 2 :]
    if rest:
        code = (code ^ int.from_bytes(rest, "little")) * MULTIPLIER & _MASK
    code = (code ^ code >> 13) * MULTIPLIER & _MASK
    return code ^ code >> 15


def partition_of(key: bytes, partition_count: int) -> int:
    """Where the Java client puts a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
