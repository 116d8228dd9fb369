"""Names of the files in a partition directory, exactly as Apache Kafka has them."""

from __future__ import annotations

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

EXTENT = ".extent"
"""Beside the `.swap` files of a segment that replaces several: where the last of those ends."""

SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

OFFSET_DIGITS = 20


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset that a file's name begins with; None if it does not begin with one."""
    digits = name[:OFFSET_DIGITS]
    if len(digits) == OFFSET_DIGITS and digits.isdecimal() and name[OFFSET_DIGITS:21] == ".":
        return int(digits)
    return None


def suffix_of(name: str) -> str:
    """What follows the offset: `.log`, `.index.swap`, ..."""
    return name[OFFSET_DIGITS:]
