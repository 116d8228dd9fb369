"""The pieces that every codec shares: varints, tagged sections, compact strings, uuids.

Owns the rule that nothing is believed before it is checked: each reader takes the buffer and a
position, compares what it is told with the bytes that are left, and only then makes an object.
What runs over the end of the buffer by a fixed size raises IndexError or struct.error; the codecs'
entrances turn those into MalformedRequest (MALFORMED), so that the hot path has no check for them.

Invariant: a reader never returns a position behind the end of the buffer.
"""

from __future__ import annotations

import struct
import uuid
from functools import lru_cache

from ottla.base.errors import MalformedRequest, check
from ottla.base.ports import Buffer

MALFORMED = (IndexError, struct.error, UnicodeDecodeError)

NULL_UUID = uuid.UUID(int=0)
"""What the wire has for "no id"; encoders take None for it as well."""

NULL_UUID_BYTES = bytes(16)

STRING_BYTES_MAX = (1 << 15) - 1
"""A string's longest, also where a varint could say more: Kafka refuses longer ones both ways."""

ONE_BYTE = tuple(bytes((value,)) for value in range(256))
"""The varint of every value below 128, and any single byte, without making it anew."""

_UVARINT_BYTES_MAX = 5
_UINT32_MAX = (1 << 32) - 1


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    first = data[position]
    if first < 128:
        return first, position + 1
    return read_long_uvarint(data, position + 1, first)


def read_long_uvarint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, already read, has its high bit set."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > _UINT32_MAX:
                break
            return value, position
    raise MalformedRequest(f"a varint has more than 32 bits or {_UVARINT_BYTES_MAX} bytes")


def uvarint(value: int) -> bytes:
    """The unsigned varint of a length or a count of ours."""
    if value < 128:
        return ONE_BYTE[value]
    if value < 16_384:
        return bytes((value & 127 | 128, value >> 7))
    if value < 2_097_152:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_tag(data: Buffer, position: int, size: int) -> tuple[int, int, int]:
    """One tagged field's head: tag, where its value begins, where it ends (within `size`)."""
    tag, position = read_uvarint(data, position)
    length, position = read_uvarint(data, position)
    end = position + length
    if end > size:
        raise MalformedRequest(f"tag {tag} declares {length} bytes, {size - position} are left")
    return tag, position, end


def skip_tags(data: Buffer, position: int, size: int, tags_max: int) -> tuple[int, int]:
    """Past a tagged section of which no tag is known: the position after it and how many it had."""
    count, position = read_uvarint(data, position)
    if count > tags_max:
        raise MalformedRequest(f"{count} tagged fields are more than may be here")
    for _ in range(count):
        _, _, position = read_tag(data, position, size)
    return position, count


def read_compact_string(data: Buffer, position: int, size: int) -> tuple[str | None, int]:
    length, position = read_uvarint(data, position)
    if length == 0:
        return None, position
    end = position + length - 1
    if end > size or length > STRING_BYTES_MAX + 1:
        raise MalformedRequest(f"a string of {length - 1} bytes, {size - position} are left")
    return str(data[position:end], "utf-8"), end


def compact_string(text: str | None) -> bytes:
    """A compact string with its length, null as one zero byte."""
    if text is None:
        return b"\0"
    encoded = text.encode()
    length = len(encoded)
    check(length <= STRING_BYTES_MAX, f"a string of {length} bytes is too long for the wire")
    return uvarint(length + 1) + encoded


def legacy_string(text: str | None) -> bytes:
    """A string with the two-byte length of the versions before tagged fields, null as -1."""
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    length = len(encoded)
    check(length <= STRING_BYTES_MAX, f"a string of {length} bytes is too long for the wire")
    return length.to_bytes(2, "big") + encoded


def tagged_field(tag: int, value: bytes) -> bytes:
    return uvarint(tag) + uvarint(len(value)) + value


# Topic ids come back in every fetch; to make one costs 1.5 µs, to find it 0.1. Bounded, so that a
# peer that sends ever new ids only makes us as slow as without it.
@lru_cache(maxsize=4096)
def uuid_of(encoded: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=encoded)


def uuid_bytes(value: uuid.UUID | None) -> bytes:
    return NULL_UUID_BYTES if value is None else value.bytes
