"""The four codecs of a batch, written the way the Java client does and read within bounds.

Owns the framing that Kafka expects around each codec and the promise that unpacking never makes
more than `limit + 1` bytes, whatever the data declare. Anything that does not unpack raises
CORRUPT_MESSAGE, anything longer than `limit` MESSAGE_TOO_LARGE, and nothing else is raised.

What Java readers cannot take is not written, and refused when it comes in: lz4 frames whose blocks
depend on each other (Kafka's reader has no memory between blocks) or on a dictionary, a second
frame, and bytes after the end.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable
from struct import Struct
from typing import Final

import cramjam

from ottla.base.errors import ProtocolError, check
from ottla.base.ports import Buffer
from ottla.protocol.error_codes import (
    CORRUPT_MESSAGE,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_INT32 = Struct(">i")
_UINT32_LITTLE = Struct("<I")

# zlib's window size for "a gzip header and trailer around it".
_GZIP_WINDOW_BITS = 31
_GZIP_LEVEL_DEFAULT = zlib.Z_DEFAULT_COMPRESSION
_ZSTD_LEVEL_DEFAULT = 3

# snappy-java's stream: a mark, version 1, readable by version 1, then blocks of 32 KiB, each with
# its length in front.
_XERIAL_MARK = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MARK + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024

# An lz4 frame as the Java client opens it: version 1, independent blocks of at most 64 KiB, no
# checksums; the last byte is the checksum of the two before it. The high bit of a block's length
# says that the block is stored as it is; a length of 0 ends the frame.
_LZ4_MARK = b"\x04\x22\x4d\x18"
_LZ4_HEADER = _LZ4_MARK + b"\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 1 << 31
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_VERSION_AND_INDEPENDENCE = 0xE0
_LZ4_VERSION_1_INDEPENDENT = 0x60
_LZ4_BLOCK_CHECKSUMS = 0x10
_LZ4_CONTENT_SIZE = 0x08
_LZ4_CONTENT_CHECKSUM = 0x04
_LZ4_UNKNOWN_TO_KAFKA = 0x03  # a dictionary, and what is reserved
# Kafka's name for "no level": the fast compressor. Every other level is one of the high compressor.
_LZ4_LEVEL_FAST = 9

# What cramjam says when the output does not fit into the buffer it was given (a test holds it to
# that); every other message of a DecompressionError means that the data are damaged.
_OUTPUT_FULL = "failed to write whole buffer"
_FIRST_GUESS_BYTES = 64 * 1024
_FIRST_GUESS_RATIO = 4
_NEXT_GUESS_RATIO = 4
# Room of this size is mapped, and goes back to the system when it is closed. The allocator would
# keep it, once for each thread of the pool, and a few bombs would cost memory for good.
_MAPPED_BYTES_MIN = 1024 * 1024
_GZIP_PIECE_BYTES = 64 * 1024


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    check(0 <= codec < len(_COMPRESSORS), f"unknown codec {codec}")
    return _COMPRESSORS[codec](data, level)


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    if not 0 <= codec < len(_DECOMPRESSORS):
        raise ProtocolError(UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {codec}")
    unpacked = _DECOMPRESSORS[codec](data, limit)
    if len(unpacked) > limit:
        raise _too_large(limit)
    return unpacked


def _too_large(limit: int) -> ProtocolError:
    return ProtocolError(MESSAGE_TOO_LARGE, f"the records unpack to more than {limit} bytes")


def _damaged(codec: int) -> ProtocolError:
    return ProtocolError(CORRUPT_MESSAGE, f"the records are no {CODEC_NAMES[codec]} data")


def _keep(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _kept(data: Buffer, limit: int) -> bytes:
    return bytes(data)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    chosen = _GZIP_LEVEL_DEFAULT if level is None else level
    compressor = zlib.compressobj(chosen, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    """One gzip member: several would be legal, but no client writes them, and each costs a copy
    of all the rest, so that many empty ones would hold up the broker."""
    decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        unpacked = decompressor.decompress(data, min(limit + 1, _MAPPED_BYTES_MIN))
        if len(unpacked) == _MAPPED_BYTES_MIN <= limit:
            unpacked = _gzip_in_pieces(decompressor, unpacked, limit)
    except zlib.error as cause:
        raise _damaged(GZIP) from cause
    if len(unpacked) > limit:
        raise _too_large(limit)
    if not decompressor.eof or decompressor.unused_data:
        raise _damaged(GZIP)
    return unpacked


def _gzip_in_pieces(decompressor: zlib._Decompress, first: bytes, limit: int) -> bytes:
    """The rest behind `first`, in mapped room: zlib itself would take it from the allocator. In
    small pieces of what is packed, too, since what is left of one is copied each time."""
    packed = memoryview(decompressor.unconsumed_tail)
    with mmap.mmap(-1, limit + _GZIP_PIECE_BYTES) as mapped:
        mapped[: len(first)] = first
        filled, position = len(first), 0
        left: Buffer = b""
        while True:
            if not left and position < len(packed):
                left = packed[position : position + _GZIP_PIECE_BYTES]
                position += _GZIP_PIECE_BYTES
            piece = decompressor.decompress(left, _GZIP_PIECE_BYTES)
            mapped[filled : filled + len(piece)] = piece
            filled += len(piece)
            if filled > limit:
                raise _too_large(limit)
            left = decompressor.unconsumed_tail
            if decompressor.eof or not (piece or left or position < len(packed)):
                break
        return mapped[:filled]


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MARK)] != _XERIAL_MARK:
        return _decompress_snappy_block(view, limit)
    if len(view) < len(_XERIAL_HEADER):
        raise _damaged(SNAPPY)
    parts: list[bytes] = []
    left = limit
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < _INT32.size:
            raise _damaged(SNAPPY)
        (size,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 <= size <= len(view) - position:
            raise _damaged(SNAPPY)
        parts.append(_decompress_snappy_block(view[position : position + size], left))
        left -= len(parts[-1])
        position += size
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit:
            raise _too_large(limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as cause:
        raise _damaged(SNAPPY) from cause


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    if level is not None and level != _LZ4_LEVEL_FAST:
        # cramjam's block function knows no levels; its frames bear a checksum with each block.
        frame = cramjam.lz4.Compressor(level, content_checksum=False, block_linked=False)
        frame.compress(bytes(data))
        return bytes(frame.finish())
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        source = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(source, store_size=False))
        if len(block) < len(source):
            parts.append(_UINT32_LITTLE.pack(len(block)))
            parts.append(block)
        else:
            parts.append(_UINT32_LITTLE.pack(len(source) | _LZ4_STORED))
            parts.append(bytes(source))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if len(view) < len(_LZ4_HEADER) or view[:4] != _LZ4_MARK:
        raise _damaged(LZ4)
    if view[4] & _LZ4_VERSION_AND_INDEPENDENCE != _LZ4_VERSION_1_INDEPENDENT:
        raise ProtocolError(CORRUPT_MESSAGE, "an lz4 frame needs independent blocks in Kafka")
    if view[4] & _LZ4_UNKNOWN_TO_KAFKA:
        raise ProtocolError(CORRUPT_MESSAGE, "an lz4 frame has no dictionary in Kafka")
    if _lz4_frame_end(view) != len(view):
        raise _damaged(LZ4)
    return _decompress_by_guess(LZ4, cramjam.lz4.decompress_into, view, limit)


def _lz4_frame_end(view: memoryview) -> int:
    """Where Kafka's reader ends the frame: at its first block of length 0, be it a stored one. The
    unpacking below would go on to a next frame, which that reader never sees."""
    flags = view[4]
    position = len(_LZ4_HEADER) + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    block_checksum = 4 if flags & _LZ4_BLOCK_CHECKSUMS else 0
    while position + 4 <= len(view):
        size = _UINT32_LITTLE.unpack_from(view, position)[0] & (_LZ4_STORED - 1)
        position += 4
        if size == 0:
            return position + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
        position += size + block_checksum
    return -1  # it has no end


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL_DEFAULT if level is None else level))


def _decompress_zstd(data: Buffer, limit: int) -> bytes:
    return _decompress_by_guess(ZSTD, cramjam.zstd.decompress_into, memoryview(data), limit)


def _decompress_by_guess(
    codec: int,
    decompress_into: Callable[[memoryview, bytearray | mmap.mmap], int],
    data: memoryview,
    limit: int,
) -> bytes:
    """Into a buffer of a likely size, then larger ones, up to one byte more than `limit`.

    Neither format has to declare its length, and what it declares is not to be trusted. A buffer of
    the limit from the start would cost 0.6 ms for its zeros alone.
    """
    size = max(_FIRST_GUESS_BYTES, _FIRST_GUESS_RATIO * len(data))
    while True:
        unpacked = _unpacked(codec, decompress_into, data, min(size, limit + 1))
        if unpacked is not None:
            return unpacked
        if size > limit:
            raise _too_large(limit)
        size *= _NEXT_GUESS_RATIO


def _unpacked(
    codec: int,
    decompress_into: Callable[[memoryview, bytearray | mmap.mmap], int],
    data: memoryview,
    size: int,
) -> bytes | None:
    """None if it does not fit into so many bytes."""
    if size < _MAPPED_BYTES_MIN:
        output = bytearray(size)
        filled = _filled(codec, decompress_into, data, output)
        return None if filled is None else bytes(memoryview(output)[:filled])
    with mmap.mmap(-1, size) as mapped:
        filled = _filled(codec, decompress_into, data, mapped)
        return None if filled is None else mapped[:filled]


def _filled(
    codec: int,
    decompress_into: Callable[[memoryview, bytearray | mmap.mmap], int],
    data: memoryview,
    output: bytearray | mmap.mmap,
) -> int | None:
    try:
        return decompress_into(data, output)
    except cramjam.DecompressionError as cause:
        if _OUTPUT_FULL not in str(cause):
            raise _damaged(codec) from cause
        return None


_COMPRESSORS: Final = (_keep, _compress_gzip, _compress_snappy, _compress_lz4, _compress_zstd)
_DECOMPRESSORS: Final = (
    _kept,
    _decompress_gzip,
    _decompress_snappy,
    _decompress_lz4,
    _decompress_zstd,
)
