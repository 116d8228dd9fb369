"""The signed (zig-zag) varints of which a record is made.

Readers take `bytes` and a position and give the value and the position after it. Past the end of
the bytes they raise IndexError, which whoever reads a whole batch turns into its own refusal; a
varint with more bits than its type has is refused here.
"""

from __future__ import annotations

from ottla.base.errors import ProtocolError
from ottla.base.ports import Buffer
from ottla.protocol.error_codes import INVALID_RECORD

_INT32_BITS = 32
_INT64_BITS = 64


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    code = data[position]
    position += 1
    if code > 127:
        code, position = _read_rest(data, position, code, _INT32_BITS)
    return (code >> 1) ^ -(code & 1), position


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    code = data[position]
    position += 1
    if code > 127:
        code, position = _read_rest(data, position, code, _INT64_BITS)
    return (code >> 1) ^ -(code & 1), position


def _read_rest(data: Buffer, position: int, first: int, bits: int) -> tuple[int, int]:
    code = first & 127
    for shift in range(7, bits, 7):
        byte = data[position]
        position += 1
        code |= (byte & 127) << shift
        if byte < 128:
            if code >> bits:
                break
            return code, position
    raise ProtocolError(INVALID_RECORD, "a number in a record has too many bits")


def varint(value: int) -> bytes:
    """The shortest form; for 32 and 64 bit values alike."""
    code = value << 1 if value >= 0 else (-value << 1) - 1
    if code < 128:
        return _ONE_BYTE[code]
    encoded = bytearray()
    while code > 127:
        encoded.append(code & 127 | 128)
        code >>= 7
    encoded.append(code)
    return bytes(encoded)


_ONE_BYTE = tuple(bytes((code,)) for code in range(128))
