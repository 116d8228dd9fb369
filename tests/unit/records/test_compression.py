"""Goal: what the codecs write Kafka reads, what clients write they read, and neither garbage nor a
bomb does harm. Method: batches of the Java client as goldens, the borders of each framing, damage
of every kind, and bombs in a process that may not have the memory they would need.
"""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import cramjam
import pytest

from ottla.base.errors import InvariantError
from ottla.protocol.error_codes import (
    CORRUPT_MESSAGE,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.records.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
)
from tests.unit.records.batches import java_batches, refusal

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
PLAIN = java_batches()["none"][61:]
MIXED = bytes(range(256)) * 1024 + bytes(100_000)


def java_payload(codec: int) -> bytes:
    return java_batches()[CODEC_NAMES[codec]][61:]


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_java_client_packed_is_unpacked(codec: int) -> None:
    assert decompress(codec, java_payload(codec), 1000) == PLAIN


@pytest.mark.parametrize("codec", [SNAPPY, LZ4])
def test_it_packs_as_the_java_client_does(codec: int) -> None:
    assert compress(codec, PLAIN) == java_payload(codec)


def test_gzip_differs_from_java_in_the_name_of_the_system_only() -> None:
    ours, java = bytearray(compress(GZIP, PLAIN)), bytearray(java_payload(GZIP))
    ours[9] = java[9]
    assert ours == java


@pytest.mark.parametrize("codec", [NONE, *CODECS])
@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 65535, 65536, 65537, 300_000])
def test_round_trip_at_the_borders_of_blocks(codec: int, size: int) -> None:
    data = MIXED[:size]
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), size) == data


@pytest.mark.parametrize("codec", CODECS)
def test_what_cannot_be_packed_smaller_comes_back_too(codec: int) -> None:
    noise = zlib.compress(bytes(range(256)) * 4096, 9) * 40
    assert decompress(codec, compress(codec, noise), len(noise)) == noise


@pytest.mark.parametrize(("codec", "levels"), [(GZIP, (1, 9)), (LZ4, (1, 9, 17)), (ZSTD, (-5, 22))])
def test_levels(codec: int, levels: tuple[int, ...]) -> None:
    for level in levels:
        packed = compress(codec, memoryview(MIXED), level)
        assert decompress(codec, packed, len(MIXED)) == MIXED


def test_a_level_changes_something() -> None:
    text = b"".join(b"%d " % (number * number) for number in range(20_000))
    for codec, low, high in ((GZIP, 1, 9), (LZ4, 9, 12), (ZSTD, 1, 19)):
        assert len(compress(codec, text, low)) > len(compress(codec, text, high))


def test_raw_snappy_as_some_clients_send_it() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(MIXED)), len(MIXED)) == MIXED


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: int) -> None:
    packed = compress(codec, MIXED)
    assert len(decompress(codec, packed, len(MIXED))) == len(MIXED)
    for limit in (len(MIXED) - 1, 100_000, 0):
        assert refusal(decompress, codec, packed, limit).code == MESSAGE_TOO_LARGE


def test_the_limit_holds_for_plain_data_and_raw_snappy() -> None:
    assert refusal(decompress, NONE, b"abc", 2).code == MESSAGE_TOO_LARGE
    raw = bytes(cramjam.snappy.compress_raw(MIXED))
    assert refusal(decompress, SNAPPY, raw, len(MIXED) - 1).code == MESSAGE_TOO_LARGE


def test_more_than_the_first_guess() -> None:
    """lz4 and zstd do not say how long their output is, so it is tried with ever larger buffers."""
    zeros = bytes(5_000_000)
    for codec in (LZ4, ZSTD):
        assert decompress(codec, compress(codec, zeros), len(zeros)) == zeros


@pytest.mark.parametrize("codec", CODECS)
def test_damage(codec: int) -> None:
    packed = compress(codec, MIXED)
    for damaged in (
        b"",
        b"\xff" * 40,
        packed[:3],
        packed[:12],
        packed[: len(packed) // 2],
        packed[:-1],
        packed + b"\x00",
        packed + packed[:20],
    ):
        assert refusal(decompress, codec, damaged, 10**6).code == CORRUPT_MESSAGE


def test_snappy_blocks_with_wrong_lengths() -> None:
    packed = compress(SNAPPY, b"some bytes")
    for length in (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
        damaged = packed[:16] + length + packed[20:]
        assert refusal(decompress, SNAPPY, damaged, 100).code == CORRUPT_MESSAGE


def test_lz4_with_blocks_that_depend_on_each_other_is_refused() -> None:
    """Kafka's reader cannot take them, so its consumers would stop at such a batch."""
    linked = bytes(cramjam.lz4.compress(MIXED))
    assert linked[4] & 0x20 == 0
    assert refusal(decompress, LZ4, linked, 10**6).code == CORRUPT_MESSAGE


def test_lz4_is_one_frame_and_ends_where_kafka_s_reader_ends_it() -> None:
    """That reader stops at the first block of length 0, stored or not, and leaves the rest unread;
    and it knows no dictionaries. Kafka refuses such batches, and its consumers would stop there."""
    frame, other = compress(LZ4, MIXED), compress(LZ4, b"other")
    ends_twice = frame[:7] + b"\x00\x00\x00\x80" + frame[7:]
    # Flags, block size, the dictionary's id, and the checksum of these.
    with_dictionary = frame[:4] + b"\x61\x40\x05\x00\x00\x00\x4e" + frame[7:]
    for refused in (frame + other, compress(LZ4, b"") + frame, ends_twice, with_dictionary):
        assert refusal(decompress, LZ4, refused, 10**6).code == CORRUPT_MESSAGE


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000])
def test_lz4_frames_of_others(checksums: bool, size: int) -> None:
    """With a checksum of the whole, and of each block; cramjam makes the latter in any case."""
    plain = (MIXED * (size // len(MIXED) + 1))[:size]
    frame = cramjam.lz4.Compressor(1, content_checksum=checksums, block_linked=False)
    frame.compress(plain)
    packed = bytes(frame.finish())
    assert packed[4] & 0x10, "checksums of blocks"
    assert bool(packed[4] & 0x04) == checksums
    assert decompress(LZ4, packed, 10**6) == plain


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs(codec: int) -> None:
    refused = refusal(decompress, codec, b"abc", 100)
    assert refused.code == UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(InvariantError):
        compress(codec, b"abc")


BOMBS = """
import resource, sys
from ottla.base.errors import ProtocolError
from ottla.records.compression import decompress
resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
for codec, path in enumerate(sys.argv[1:], 1):
    with open(path, "rb") as file:
        bomb = file.read()
    try:
        decompress(codec, bomb, 8 << 20)
    except ProtocolError as refused:
        print(refused.code)
"""


def test_bombs_are_refused_within_bounded_memory(tmp_path: Path) -> None:
    """256 MiB of zeros in each codec, and a raw snappy block that declares 4 GiB."""
    mebibyte = bytes(1 << 20)
    gzip = zlib.compressobj(wbits=31)
    first = gzip.compress(mebibyte) + gzip.flush(zlib.Z_FULL_FLUSH)
    again = gzip.compress(mebibyte) + gzip.flush(zlib.Z_FULL_FLUSH)
    snappy = compress(SNAPPY, mebibyte)
    lz4 = compress(LZ4, mebibyte)
    bombs = [
        first + again * 255,
        snappy[:16] + snappy[16:] * 256,
        lz4[:7] + lz4[7:-4] * 256 + lz4[-4:],
        compress(ZSTD, mebibyte) * 256,
    ]
    paths = []
    for codec, bomb in enumerate(bombs, 1):
        paths.append(tmp_path / CODEC_NAMES[codec])
        paths[-1].write_bytes(bomb)
    run = subprocess.run(
        [sys.executable, "-c", BOMBS, *map(str, paths)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [str(MESSAGE_TOO_LARGE)] * 4
    raw = b"\xff\xff\xff\xff\x0f" + bytes(cramjam.snappy.compress_raw(b"abc"))[1:]
    assert refusal(decompress, SNAPPY, raw, 8 << 20).code == MESSAGE_TOO_LARGE


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
@pytest.mark.parametrize("unit", [b"a", bytes(range(256)) * 300])
def test_what_is_unpacked_in_pieces_is_whole(size: int, unit: bytes) -> None:
    """Around the size from which on room is mapped; the second kind packs badly."""
    plain = (unit * (size // len(unit) + 1))[:size]
    packed = compress(GZIP, plain, 1)
    assert decompress(GZIP, packed, size) == plain
    assert refusal(decompress, GZIP, packed, size - 1).code == MESSAGE_TOO_LARGE
    for damaged in (packed[:-1], packed + b"x", packed[: len(packed) // 2]):
        assert refusal(decompress, GZIP, damaged, size).code == CORRUPT_MESSAGE
