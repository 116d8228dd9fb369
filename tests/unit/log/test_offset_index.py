"""Goal: an offset leads to a position at or before its batch, in Kafka's 8-byte entries.
Method: entries by hand, the bytes compared, lookups at and between the entries.
"""

from __future__ import annotations

import struct

from ottla.log.offset_index import OffsetIndex, build
from tests.chaos.memory_files import MemoryFiles

PATH = "/data/0.index"


def an_index(files: MemoryFiles, *, limit_bytes: int = 64 * 1024) -> OffsetIndex:
    files.make_dir("/data")
    index = OffsetIndex(files, PATH, 1000, limit_bytes)
    index.start_empty()
    return index


def test_entries_are_relative_offset_and_position() -> None:
    files = MemoryFiles()
    index = an_index(files)
    index.append(1009, 5000)
    index.append(1019, 10_000)
    index.trim()
    assert files.read(PATH) == struct.pack(">iiii", 9, 5000, 19, 10_000)
    assert files.read(PATH) == build([(1009, 5000), (1019, 10_000)], 1000)


def test_lookup_gives_the_last_batch_that_ends_at_or_before_the_offset() -> None:
    index = an_index(MemoryFiles())
    for number in range(1, 50):
        index.append(1000 + number * 10 - 1, number * 5000)
    assert index.position_for_offset(1000) == 0
    assert index.position_for_offset(1008) == 0
    assert index.position_for_offset(1009) == 5000
    assert index.position_for_offset(1010) == 5000
    assert index.position_for_offset(1019) == 10_000
    assert index.position_for_offset(5000) == 49 * 5000
    assert index.position_at_most(4999) == 0
    assert index.position_at_most(5000) == 5000
    assert index.position_at_most(9_999) == 5000
    assert index.position_at_most(10**9) == 49 * 5000


def test_the_file_grows_by_doubling_and_is_trimmed() -> None:
    files = MemoryFiles()
    index = an_index(files, limit_bytes=10_000)
    index.append(1001, 1)
    assert files.size(PATH) == 4096
    for number in range(2, 514):
        index.append(1000 + number, number)
    assert files.size(PATH) == 8192
    for number in range(514, 1026):
        index.append(1000 + number, number)
    assert files.size(PATH) == 10_000, "no larger than segment.index.bytes"
    index.trim()
    assert files.size(PATH) == 1025 * 8
    index.open()
    assert index.position_for_offset(1700) == 700


def test_space_behind_the_entries_is_not_taken_for_entries() -> None:
    files = MemoryFiles()
    index = an_index(files)
    index.append(1009, 5000)
    index.append(1019, 10_000)
    index.close()
    again = OffsetIndex(files, PATH, 1000, 64 * 1024)
    again.open()
    assert (again.entries, again.last_offset, again.last_position) == (2, 1019, 10_000)


def test_it_can_be_given_up_and_goes_on() -> None:
    files = MemoryFiles()
    index = an_index(files)
    index.append(1009, 5000)
    index.close()
    index.append(1019, 10_000)
    assert [index.entry(0), index.entry(1)] == [(1009, 5000), (1019, 10_000)]


def test_truncate_drops_what_starts_at_or_behind_the_position() -> None:
    files = MemoryFiles()
    index = an_index(files)
    for number in range(1, 5):
        index.append(1000 + number * 10 - 1, number * 5000)
    index.truncate(15_000)
    assert (index.entries, index.last_position) == (2, 10_000)
    assert files.size(PATH) == 16
    index.truncate(0)
    assert (index.entries, index.last_offset, index.last_position) == (0, 1000, 0)


def test_sanity() -> None:
    files = MemoryFiles()
    index = an_index(files)
    assert index.is_sane(0)
    index.append(1009, 5000)
    index.append(1019, 10_000)
    assert index.is_sane(10_001)
    assert not index.is_sane(10_000), "an entry behind the end of the log"
    index.append(1005, 20_000)
    assert not index.is_sane(10**6), "offsets go back"
    unread = OffsetIndex(files, PATH, 1000, 64)
    assert not unread.is_sane(10**6)
