"""Goal: a torn write and a hole are told apart by what stands there.
Method: files with known damage, at and around sector borders.
"""

from __future__ import annotations

from ottla.log import damage
from tests.unit.log.world import World, batch, file_with

SIZE = len(batch(size=100))


def batches(count: int) -> bytes:
    world = World()
    world.open()
    world.fill(count)
    return world.content(0)


def test_a_batch_is_found_behind_garbage() -> None:
    content = batches(3)
    for garbage in (b"", b"\0" * 700, b"\2" * 700, b"\0\0\0\0\2" * 300):
        file = file_with(b"x" + garbage + content[SIZE:])
        found = damage.find_batch_behind(file, 0, file.size(), 1)
        assert found == 1 + len(garbage)
    assert damage.find_batch_behind(file_with(b"\0" * 5000), 0, 5000, 1) is None


def test_only_batches_behind_the_offset_count() -> None:
    content = b"x" + batches(2)
    file = file_with(content)
    assert damage.find_batch_behind(file, 0, len(content), 1) == 1 + SIZE
    assert damage.find_batch_behind(file, 0, len(content), 2) is None


def test_a_batch_across_two_chunks_of_the_search() -> None:
    for before in (1, 10, 20, 21, 22, 30, 60, 62):
        start = damage.SEARCH_CHUNK_BYTES - before
        file = file_with(b"y" * start + batches(1))
        assert damage.find_batch_behind(file, 0, file.size(), 0) == start


def test_offsets_above_four_billion() -> None:
    high = bytearray(batches(1))
    for offset in (2**32 - 1, 2**32, 2**33 + 5):
        high[0:8] = offset.to_bytes(8, "big")
        file = file_with(b"x" + bytes(high))
        assert damage.find_batch_behind(file, 0, file.size(), offset - 1) == 1


def test_a_whole_batch() -> None:
    content = bytearray(batches(1))
    assert damage.is_whole_batch(file_with(bytes(content)), 0, len(content))
    assert not damage.is_whole_batch(file_with(bytes(content)), 0, len(content) - 1)
    content[-1] ^= 1
    assert not damage.is_whole_batch(file_with(bytes(content)), 0, len(content))
    assert not damage.is_whole_batch(file_with(b"abc"), 0, 3)


def test_cut_off() -> None:
    content = batches(1)
    assert damage.is_cut_off(file_with(content[:-1]), 0, SIZE - 1)
    assert damage.is_cut_off(file_with(content[:20]), 0, 20)
    assert damage.is_cut_off(file_with(b""), 0, 0)
    assert not damage.is_cut_off(file_with(content), 0, SIZE)
    assert not damage.is_cut_off(file_with(b"\xff" * 100), 0, 100), "garbage is not cut off"


def missing(content: bytes, position: int, expected_offset: int) -> bool:
    return damage.is_missing_page(file_with(content), position, len(content), expected_offset)


def test_a_missing_sector() -> None:
    content = bytearray(batches(20))
    at = 5 * SIZE
    assert not missing(bytes(content), at, 5)
    content[1024:1536] = bytes(512)
    assert missing(bytes(content), at, 5) is (at + SIZE > 1024)
    first_hit = 1024 // SIZE
    assert missing(bytes(content), first_hit * SIZE, first_hit)


def test_a_flipped_byte_is_not_a_missing_sector() -> None:
    content = bytearray(batches(20))
    content[5 * SIZE + 80] ^= 1
    assert not missing(bytes(content), 5 * SIZE, 5)


def test_a_sector_that_was_lost_from_the_middle_on() -> None:
    """What was appended to a synced sector is gone, what was there before is not."""
    content = bytearray(batches(20))
    content[2 * SIZE : 512] = bytes(512 - 2 * SIZE)
    assert 2 * SIZE < 512 < 4 * SIZE
    assert missing(bytes(content), 2 * SIZE, 2)


def test_a_few_zeros_before_a_sector_ends_may_be_a_small_offset() -> None:
    good = batches(4)
    prefix = b"p" * (1024 - 5)
    content = bytearray(prefix + good)
    content[1024 + 60] ^= 1
    assert not missing(bytes(content), len(prefix), 3), "five zeros that belong there"
    assert missing(bytes(content), len(prefix), 2**40), "five zeros that do not"
