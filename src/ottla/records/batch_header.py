"""The 61 bytes before the records of a batch (format 2, the only one that is stored or served).

Owns the layout: one struct, the place of each field in the tuple it gives, the attribute bits and
the positions of the few fields that a broker may write. A header is a plain tuple, because one is
made for every batch that comes in. Never judges a header: that is `validation`, at the door.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

from ottla.base.ports import Buffer

Header: TypeAlias = tuple[int, ...]

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size

# Places in the tuple.
BASE_OFFSET = 0
BATCH_LENGTH = 1
LEADER_EPOCH = 2
MAGIC = 3
CRC = 4
ATTRIBUTES = 5
LAST_OFFSET_DELTA = 6
BASE_TIMESTAMP = 7
MAX_TIMESTAMP = 8
PRODUCER_ID = 9
PRODUCER_EPOCH = 10
BASE_SEQUENCE = 11
RECORD_COUNT = 12

# Positions in the bytes. The CRC covers everything from the attributes to the end.
LENGTH_END = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35
RECORD_COUNT_POSITION = 57

MAGIC_V2 = 2

# Bits of the attributes.
CODEC_MASK = 0x07
LOG_APPEND_TIME_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40


def read_header(buffer: Buffer, position: int = 0) -> Header:
    """The fields of the header at `position`; the caller knows that 61 bytes are there."""
    return HEADER.unpack_from(buffer, position)
