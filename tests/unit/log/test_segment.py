"""Goal: offsets are found, parts end with whole batches, indexes follow the rule.
Method: a segment in memory with batches of known places.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import ProtocolError
from ottla.log.file_cache import FileCache
from ottla.log.log_config import LogConfig
from ottla.log.segment import PAGE_BYTES, LogSlice, Segment, new_segment
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.batch_header import LAST_OFFSET_DELTA, MAX_TIMESTAMP, read_header
from tests.chaos.memory_files import MemoryFile, MemoryFiles
from tests.unit.log.world import batch, offsets_of

BASE = 500


def a_segment(
    batches: list[bytes], *, interval: int = 300, cache: FileCache | None = None
) -> tuple[Segment, list[int]]:
    """The segment, and where its batches start."""
    files = MemoryFiles()
    files.make_dir("/data")
    config = LogConfig(index_interval_bytes=interval)
    segment = new_segment(files, cache or FileCache(), "/data", BASE, config, created_ms=1_000)
    segment.create()
    segment.prepare_append()
    positions = []
    offset = BASE
    for content in batches:
        positions.append(segment.size)
        offset = add(segment, content, offset)
    return segment, positions


def add(segment: Segment, content: bytes, offset: int) -> int:
    header = read_header(content)
    stamped = bytearray(content)
    stamped[0:8] = offset.to_bytes(8, "big")
    last = offset + header[LAST_OFFSET_DELTA]
    segment.append([stamped], len(stamped), offset, last, header[MAX_TIMESTAMP])
    return last + 1


TEN = [batch(2, size=40 + number, timestamp_ms=1_000 + number) for number in range(10)]


def part(
    segment: Segment, position: int, max_bytes: int, *, at_least_one: bool = True
) -> LogSlice | None:
    return segment.slice(position, segment.size, max_bytes, at_least_one)


def test_every_offset_leads_to_its_batch() -> None:
    segment, positions = a_segment(TEN)
    segment._positions.clear()
    for number, position in enumerate(positions):
        assert segment.position_of(BASE + 2 * number) == position
        assert segment.position_of(BASE + 2 * number + 1) == position
    assert segment.position_of(BASE + 20) == segment.size


@pytest.mark.parametrize("size", [10_000, 3_000, 700])
def test_a_reader_that_goes_on_makes_nobody_look_at_what_comes_next(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """It may be on the disk only, and this is asked on the loop. The page that holds the end of
    what was sent is in memory."""
    segment, positions = a_segment([batch(2, size=size) for _ in range(20)], interval=4096)
    read_at = type(segment.open_file()).read_at
    looked_at: list[int] = []

    def watched(file: MemoryFile, position: int, size: int) -> bytes:
        looked_at.append(position + size)
        return read_at(file, position, size)

    monkeypatch.setattr(type(segment.open_file()), "read_at", watched)
    segment._positions.clear()
    assert segment.position_of(BASE) == segment.position_of(BASE - 1) == 0
    assert not looked_at
    for number, position in list(enumerate(positions))[1:-1]:
        looked_at.clear()
        segment._positions.clear()
        assert segment.position_of(BASE + 2 * number) == position
        assert looked_at
        assert max(looked_at) <= -(-position // PAGE_BYTES) * PAGE_BYTES


def test_it_does_so_after_its_files_were_given_up() -> None:
    segment, positions = a_segment(TEN, cache=FileCache(3))
    segment.close()
    assert segment.file is None
    assert [segment.position_of(BASE + 2 * number) for number in range(9)] == positions[:9]
    assert add(segment, TEN[0], BASE + 20) == BASE + 22
    segment.close()
    assert segment.position_of(BASE + 19) == positions[9]


def test_an_index_entry_for_each_interval() -> None:
    segment, positions = a_segment(TEN, interval=300)
    index = segment.offset_index
    entries = [index.entry(slot) for slot in range(index.entries)]
    expected, last = [], 0
    for number, position in enumerate(positions):
        if position - last > 300:
            expected.append((BASE + 2 * number + 1, position))
            last = position
    assert entries == expected
    assert len(entries) >= 3


def test_an_entry_comes_after_more_than_the_interval() -> None:
    size = len(TEN[0])
    same = [TEN[0]] * 5
    exact, _ = a_segment(same, interval=2 * size)
    assert exact.offset_index.entry(0)[1] == 3 * size, "not after just as much"
    less, _ = a_segment(same, interval=2 * size - 1)
    assert less.offset_index.entry(0)[1] == 2 * size


def test_the_rule_does_not_forget_over_a_restart() -> None:
    segment, _ = a_segment(TEN[:5])
    segment.seal()
    segment.close()
    segment.prepare_append()
    for number, content in enumerate(TEN[5:]):
        add(segment, content, BASE + 10 + 2 * number)
    whole, _ = a_segment(TEN)
    assert segment.offset_index.content() == whole.offset_index.content()


def test_parts_are_whole_batches() -> None:
    segment, positions = a_segment(TEN)
    first = positions[1]
    assert offsets_of(part(segment, 0, 10**6)) == [BASE + 2 * number for number in range(10)]
    assert offsets_of(part(segment, 0, first)) == [BASE]
    assert offsets_of(part(segment, 0, first + 5)) == [BASE]
    assert offsets_of(part(segment, 0, 1)) == [BASE], "the first batch, whatever its size"
    assert part(segment, 0, 1, at_least_one=False) is None
    assert offsets_of(part(segment, 0, first, at_least_one=False)) == [BASE], "it fits exactly"
    for limit in range(1, segment.size):
        found = part(segment, 0, limit)
        assert found is not None
        assert found.size <= max(limit, first)
        offsets_of(found)


@pytest.mark.parametrize("length", [-12, -13, -2_000, -(2**31), 0, 48, 100_000, 2**31 - 1])
def test_a_length_that_has_rotted_is_told_and_leads_nowhere(length: int) -> None:
    """No checksum covers it. The walk over batches must not go on for ever because of it."""
    segment, positions = a_segment(TEN, interval=100_000)
    segment._positions.clear()
    segment._last_batch_offset = -1
    third = positions[2]
    segment.open_file().write_at(third + 8, length.to_bytes(4, "big", signed=True))
    assert segment.position_of(BASE + 3) == positions[1]
    for look in (
        lambda: segment.position_of(BASE + 12),
        lambda: part(segment, third, 200),
        lambda: part(segment, third, 200, at_least_one=False),
    ):
        with pytest.raises(ProtocolError) as refused:
            look()
        assert refused.value.code == CORRUPT_MESSAGE


def test_not_too_many_places_are_remembered() -> None:
    segment, _ = a_segment([batch() for _ in range(60)])
    for offset in range(BASE, BASE + 60):
        segment.position_of(offset)
    assert len(segment._positions) <= 16


def test_when_to_roll() -> None:
    segment, _ = a_segment(TEN[:1])

    def rolls(*, last_offset: int = BASE + 2, timestamp: int = 1_000, now_ms: int = 1_000) -> bool:
        return segment.must_roll(10, last_offset, timestamp, now_ms, 500)

    assert not rolls()
    assert not rolls(timestamp=1_500), "as old as the first batch allows"
    assert rolls(timestamp=1_501)
    assert not rolls(now_ms=10**9), "records with a time of their own do not age by the clock"
    assert not rolls(last_offset=BASE + 2**31 - 1)
    assert rolls(last_offset=BASE + 2**31)
    segment.offset_index.entries_max = segment.offset_index.entries
    assert rolls()


def test_without_timestamps_the_clock_decides() -> None:
    segment, _ = a_segment([batch(timestamp_ms=-1)])
    assert not segment.must_roll(10, BASE + 2, -1, 1_500, 500)
    assert segment.must_roll(10, BASE + 2, -1, 1_501, 500)
    empty, _ = a_segment([])
    assert not empty.must_roll(10, BASE, -1, 10**9, 500), "an empty segment is never too old"


def test_truncate() -> None:
    segment, positions = a_segment(TEN)
    assert segment.truncate(BASE + 8) == BASE + 8
    assert segment.size == positions[4]
    assert segment.max_timestamp == 1_003
    assert segment.position_of(BASE + 8) == segment.size
    assert segment.offset_index.last_position < segment.size
    assert segment.truncate(BASE + 5) == BASE + 4, "a batch goes as a whole"
    assert segment.truncate(BASE) == BASE
    assert (segment.size, segment.first_timestamp) == (0, -1)
    assert add(segment, TEN[0], BASE) == BASE + 2


def test_end_offset() -> None:
    segment, _ = a_segment(TEN)
    segment.close()
    assert segment.end_offset() == BASE + 20
    segment.size -= 1
    assert segment.end_offset() is None
    empty, _ = a_segment([])
    assert empty.end_offset() == BASE


def test_a_wrong_index_is_made_anew_when_it_is_opened() -> None:
    segment, positions = a_segment(TEN)
    segment.seal()
    segment.close()
    good = segment._files.read(segment.path(".index"))
    segment._files.open(segment.path(".index")).write_at(0, b"\x7f" * 8)
    segment.indexes_replaced()
    assert segment.position_of(BASE + 13) == positions[6]
    assert segment._files.read(segment.path(".index")) == good


def test_a_wrong_time_index_is_made_anew_when_it_is_needed() -> None:
    segment, _ = a_segment(TEN)
    segment.seal()
    segment.close()
    segment._files.open(segment.path(".timeindex")).write_at(0, b"\x7f" * 8)
    segment.indexes_replaced()
    assert segment.largest_timestamp() == 1_009


def test_without_timestamps_the_age_of_the_file_counts() -> None:
    segment, _ = a_segment([batch(timestamp_ms=-1)])
    assert segment.largest_timestamp() == 0, "what the file system in memory answers"


def test_a_segment_may_have_its_room_at_once() -> None:
    """Until it is sealed; its file is as long as what was written."""
    files = MemoryFiles()
    files.make_dir("/data")
    config = LogConfig(preallocate=True, segment_bytes=1 << 20)
    segment = new_segment(files, FileCache(), "/data", BASE, config, created_ms=1_000)
    segment.create()
    segment.prepare_append()
    inode = files.inodes[segment.path(".log")]
    add(segment, TEN[0], BASE)
    assert (inode.reserved, len(inode.content)) == (1 << 20, len(TEN[0]))
    segment.seal()
    assert (inode.reserved, len(inode.content)) == (0, len(TEN[0]))
