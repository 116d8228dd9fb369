"""Goal: a scrub finds every byte that has changed, and takes nothing for damage that is not.
Method: real logs in memory; bytes are changed behind the log's back, and the log is cut, rolled,
cleaned and deleted between two steps of a scrub, as the loop may do while the pool reads.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.errors import StorageError
from ottla.log.log_config import LogConfig
from ottla.log.scrub import (
    CHUNK_BYTES,
    PIECE_BATCHES_MAX,
    Piece,
    Scrub,
    Walked,
    piece_at,
    verdict,
)
from ottla.records.batch_header import HEADER_SIZE
from tests.chaos.memory_files import MemoryFile, MemoryFiles
from tests.unit.log.world import DIRECTORY, World, batch

SIZE = len(batch(size=100))
FIRST = f"{DIRECTORY}/{0:020d}.log"
ENOUGH = 10**9


class Reader:
    """A file of the memory, and what was asked of it."""

    def __init__(self, file: MemoryFile) -> None:
        self._file = file
        self.forgotten: list[int] = []
        self.largest = 0
        self.is_closed = False

    def read_at(self, position: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        return self._file.read_at(position, size)

    def forget(self, position: int, size: int) -> None:
        self.forgotten.append(position)

    def close(self) -> None:
        self.is_closed = True


class Disk:
    """Opens files for a scrub."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self.opened: list[Reader] = []

    def __call__(self, path: str) -> Reader:
        file = self._files.open(path)
        reader = Reader(file)
        self.opened.append(reader)
        return reader


def flip(world: World, position: int, path: str = FIRST, bits: int = 1) -> None:
    file = world.files.open(path)
    before = file.read_at(position, 1)[0]
    file.write_at(position, bytes([before ^ bits]))


@pytest.fixture
def world() -> World:
    """Three segments of five batches and an active one with two, all flushed."""
    made = World(config=LogConfig(segment_bytes=5 * SIZE))
    made.open()
    made.fill(17)
    made.flush()
    assert [one.base_offset for one in made.log.all_segments()] == [0, 5, 10, 15]
    return made


def walk(world: World, budget: int = ENOUGH, scrub: Scrub | None = None) -> Walked | None:
    """To the end of the pass, or to what is broken."""
    scrub = scrub or Scrub(world.log)
    while (piece := scrub.next_piece()) is not None:
        walked = piece.run(Disk(world.files), budget)
        if walked.damage is not None:
            return walked
        assert (walked.position, walked.offset) > (piece.position, piece.offset)
        scrub.passed(piece, walked)
    return None


@pytest.mark.parametrize("budget", [1, SIZE, 3 * SIZE, ENOUGH])
def test_a_sound_log_is_walked_to_its_end_whatever_the_budget(world: World, budget: int) -> None:
    scrub = Scrub(world.log)
    assert walk(world, budget, scrub) is None
    world.fill(1)
    world.flush()
    piece = scrub.next_piece()
    assert piece is not None
    assert (piece.offset, piece.position) == (17, 2 * SIZE), "all before it was walked over"


@pytest.mark.parametrize("budget", [1, ENOUGH])
@pytest.mark.parametrize("at", range(SIZE))
def test_every_byte_of_a_batch_counts(world: World, at: int, budget: int) -> None:
    """But for the leader epoch, which the CRC does not cover and leaders write themselves."""
    flip(world, 2 * SIZE + at)
    walked = walk(world, budget)
    if 12 <= at < 16:
        assert walked is None
        return
    assert walked is not None
    # A higher base offset is a gap at first; it shows where the next batch is.
    assert walked.position == (3 * SIZE if at == 7 else 2 * SIZE)
    assert walked.offset in (2, 3, 4)


@pytest.mark.parametrize("bits", [1, 128, 255])
@pytest.mark.parametrize("at", [0, 7, 8, 11, 16, 17, 23, 26, HEADER_SIZE, SIZE - 1])
def test_so_do_those_of_the_last_batch_of_a_segment_and_of_the_log(
    world: World, at: int, bits: int
) -> None:
    for path, position, offset in (
        (FIRST, 4 * SIZE, 4),
        (f"{DIRECTORY}/{15:020d}.log", SIZE, 16),
    ):
        flip(world, position + at, path, bits)
        walked = walk(world)
        assert walked is not None
        assert (walked.position, walked.offset) == (position, offset)
        flip(world, position + at, path, bits)
    assert walk(world) is None


def test_a_length_that_has_grown_is_not_read_into_memory_at_once() -> None:
    world = World()
    world.open()
    world.fill(40, size=100_000)
    world.flush()
    flip(world, 9, bits=0x10)  # a megabyte more
    scrub, disk = Scrub(world.log), Disk(world.files)
    piece = scrub.next_piece()
    assert piece is not None
    walked = piece.run(disk, 4096)
    assert walked.damage is not None
    assert walked.position == 0
    assert disk.opened[0].largest <= CHUNK_BYTES
    assert walked.bytes_read > 1_000_000, "what was read counts, not what was good"


def test_large_batches_are_read_in_parts(world: World) -> None:
    large = World(config=LogConfig(max_message_bytes=10**7))
    large.open()
    large.fill(2, size=3 * CHUNK_BYTES)
    large.flush()
    assert walk(large, 1) is None
    flip(large, 2 * CHUNK_BYTES)
    walked = walk(large)
    assert walked is not None
    assert walked.position == 0


def test_a_file_that_is_too_short_or_gone_is_damage(world: World) -> None:
    world.files.open(FIRST).truncate(5 * SIZE - 1)
    walked = walk(world)
    assert walked is not None
    assert walked.offset == 4
    world.files.open(FIRST).truncate(3 * SIZE)
    walked = walk(world)
    assert walked is not None
    assert walked.offset == 3
    world.files.remove(FIRST)
    walked = walk(world)
    assert walked is not None
    assert "opened" in (walked.damage or "")


def test_a_sector_that_can_not_be_read_is_damage(world: World) -> None:
    class Failing(Reader):
        def read_at(self, position: int, size: int) -> bytes:
            if position >= 2 * SIZE:
                raise OSError(5, "Input/output error")
            return super().read_at(position, 2 * SIZE - position)

    piece = Scrub(world.log).next_piece()
    assert piece is not None
    walked = piece.run(lambda path: Failing(world.files.open(path)), ENOUGH)
    assert (walked.position, walked.offset) == (2 * SIZE, 2)
    assert "Input/output error" in (walked.damage or "")


def test_nothing_is_looked_at_that_was_not_flushed(world: World) -> None:
    world.fill(1)
    flip(world, 2 * SIZE + 70, f"{DIRECTORY}/{15:020d}.log")
    assert walk(world) is None
    world.flush()
    assert walk(world) is not None


def test_nor_what_lies_below_the_log_start() -> None:
    world = World(config=LogConfig(index_interval_bytes=SIZE))
    world.open()
    world.fill(30)
    world.flush()
    flip(world, 3 * SIZE + 70)
    world.log.advance_log_start(20)
    assert walk(world) is None
    flip(world, 21 * SIZE + 70)
    assert walk(world) is not None


def test_a_piece_has_so_many_batches_at_most() -> None:
    world = World()
    world.open()
    world.fill(PIECE_BATCHES_MAX + 1)
    world.flush()
    piece = Scrub(world.log).next_piece()
    assert piece is not None
    assert piece.run(Disk(world.files), ENOUGH).offset == PIECE_BATCHES_MAX


def test_files_are_closed_where_they_were_read(world: World) -> None:
    disk = Disk(world.files)
    piece = Scrub(world.log).next_piece()
    assert piece is not None
    piece.run(disk, ENOUGH)
    assert [reader.is_closed for reader in disk.opened] == [True]


# -- meanwhile --------------------------------------------------------------------------------


def begun(world: World, budget: int = 1) -> tuple[Scrub, Piece]:
    """A scrub that has looked at the first two batches, and its next piece."""
    scrub = Scrub(world.log)
    for _ in range(2):
        piece = scrub.next_piece()
        assert piece is not None
        scrub.passed(piece, piece.run(Disk(world.files), budget))
    piece = scrub.next_piece()
    assert piece is not None
    assert piece.offset == 2
    return scrub, piece


def test_a_segment_that_is_deleted_meanwhile_tells_nothing(world: World) -> None:
    world.log.config = replace(world.log.config, retention_bytes=12 * SIZE)
    scrub, piece = begun(world)
    assert piece.stands(world.log)
    world.log.apply_retention(world.clock.now_ms, world.log.log_end_offset)
    for segment in world.log.delete_below(world.log.log_start_offset):
        for path in segment.paths:
            world.files.remove(path)
    walked = piece.run(Disk(world.files), ENOUGH)
    assert walked.damage is not None
    assert not piece.stands(world.log)
    following = scrub.next_piece()
    assert following is not None
    assert following.offset == world.log.all_segments()[0].base_offset == 5
    assert walk(world, scrub=scrub) is None


def test_one_that_is_cut_and_written_again_is_another(world: World) -> None:
    world.log.truncate_to(4)
    assert walk(world) is None
    scrub, piece = begun(world)
    world.log.truncate_to(3)
    world.fill(4)
    world.flush()
    assert not piece.stands(world.log)
    following = scrub.next_piece()
    assert following is not None
    assert following.position == 0
    assert walk(world, scrub=scrub) is None


def test_a_log_that_is_thrown_away_ends_the_pass(world: World) -> None:
    scrub, piece = begun(world)
    world.log.truncate_fully_and_start_at(0)
    assert not piece.stands(world.log)
    assert scrub.next_piece() is None


def test_a_cleaned_segment_is_looked_at_from_its_beginning(world: World) -> None:
    """As the cleaner swaps: another segment of the same base, over the same name."""
    scrub, piece = begun(world)
    old = world.log.all_segments()
    world.log._segments.replace(old[:2], world.log._new_segment(0, 0, old[0].size))
    assert not piece.stands(world.log)
    following = scrub.next_piece()
    assert following is not None
    assert (following.position, following.offset) == (0, 0)
    assert walk(world, scrub=scrub) is None, "that offsets are missing behind it is no damage"


def test_a_roll_changes_nothing(world: World) -> None:
    scrub = Scrub(world.log)
    assert walk(world, scrub=scrub) is None
    world.fill(9)
    assert scrub.next_piece() is None
    world.flush()
    assert walk(world, 1, scrub) is None
    flip(world, 70, f"{DIRECTORY}/{20:020d}.log")
    assert walk(world) is not None


def test_gaps_of_a_cleaned_log_are_no_damage(world: World) -> None:
    follower = World(config=LogConfig(cleanup_policy=frozenset({"compact"})))
    follower.open()
    for offset in (0, 7, 8, 40):
        content = bytearray(batch(size=100))
        content[0:8] = offset.to_bytes(8, "big")
        content[12:16] = (0).to_bytes(4, "big")
        follower.log.append_replicated(bytes(content))
    follower.flush()
    assert walk(follower) is None


# -- a second look ----------------------------------------------------------------------------


def test_a_second_look_begins_where_the_damage_is_and_asks_the_disk(world: World) -> None:
    flip(world, 2 * SIZE + 70)
    disk = Disk(world.files)
    piece = Scrub(world.log).next_piece()
    assert piece is not None
    walked = piece.run(disk, ENOUGH)
    second = piece.second_look(walked)
    again = second.run(disk, ENOUGH)
    assert (again.position, again.offset, again.damage) == (*walked[:2], walked.damage)
    assert [reader.forgotten for reader in disk.opened] == [[], [2 * SIZE]]
    flip(world, 2 * SIZE + 70)
    assert second.run(disk, ENOUGH).damage is None
    said = verdict(second, again, 17)
    assert FIRST in said
    assert f"position {2 * SIZE} (offset 2), recovery point 17" in said


# -- on demand --------------------------------------------------------------------------------


def test_a_look_at_one_offset(world: World) -> None:
    world.fill(2)
    for offset in range(19):
        piece = piece_at(world.log, offset)
        assert piece is not None
        walked = piece.run(Disk(world.files), ENOUGH)
        assert walked.damage is None
        assert walked.offset > offset
    flip(world, 2 * SIZE + 70, f"{DIRECTORY}/{15:020d}.log")
    piece = piece_at(world.log, 17)
    assert piece is not None
    assert piece.run(Disk(world.files), ENOUGH).damage is not None, "flushed or not"
    assert piece_at(world.log, 19) is None
    world.log.advance_log_start(3)
    assert piece_at(world.log, 2) is None


def test_an_index_that_can_not_be_opened_is_a_failing_disk(world: World) -> None:
    log = world.reopen_cleanly()
    world.files.remove(FIRST)
    with pytest.raises(StorageError):
        piece_at(log, 1)
