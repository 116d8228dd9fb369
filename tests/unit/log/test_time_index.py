"""Goal: a time leads to an offset before which everything is older, in Kafka's 12-byte entries.
Method: entries by hand, the bytes compared, lookups at and between the entries.
"""

from __future__ import annotations

import struct

from ottla.log.time_index import TimeIndex, build
from tests.chaos.memory_files import MemoryFiles

PATH = "/data/0.timeindex"


def an_index(files: MemoryFiles) -> TimeIndex:
    files.make_dir("/data")
    index = TimeIndex(files, PATH, 1000, 64 * 1024)
    index.start_empty()
    return index


def reopened(files: MemoryFiles) -> TimeIndex:
    index = TimeIndex(files, PATH, 1000, 64 * 1024)
    index.open()
    return index


def test_entries_are_timestamp_and_relative_offset() -> None:
    files = MemoryFiles()
    index = an_index(files)
    assert index.maybe_append(5_000, 1009)
    assert index.maybe_append(6_000, 1019)
    index.trim()
    assert files.read(PATH) == struct.pack(">qiqi", 5_000, 9, 6_000, 19)
    assert files.read(PATH) == build([(5_000, 1009), (6_000, 1019)], 1000)


def test_only_a_later_time_is_worth_an_entry() -> None:
    index = an_index(MemoryFiles())
    assert index.maybe_append(5_000, 1009)
    assert not index.maybe_append(5_000, 1019)
    assert not index.maybe_append(4_000, 1029)
    assert index.entries == 1


def test_one_place_is_kept_for_the_last_entry() -> None:
    index = an_index(MemoryFiles())
    assert index.entries_max == 64 * 1024 // 12 - 1


def test_lookup_never_skips_a_record_of_that_time() -> None:
    index = an_index(MemoryFiles())
    for number in range(1, 6):
        index.maybe_append(number * 1_000, 1000 + number * 10)
    assert index.offset_before(1_000) == 1000
    assert index.offset_before(1_001) == 1010
    assert index.offset_before(3_000) == 1020
    assert index.offset_before(99_000) == 1050


def test_space_behind_the_entries_is_not_taken_for_entries() -> None:
    files = MemoryFiles()
    index = an_index(files)
    index.maybe_append(5_000, 1009)
    index.maybe_append(6_000, 1019)
    index.close()
    assert files.size(PATH) == 4092
    again = reopened(files)
    assert (again.entries, again.last_timestamp, again.last_offset) == (2, 6_000, 1019)


def test_a_file_of_nothing_but_space_is_empty() -> None:
    files = MemoryFiles()
    files.put(PATH, bytes(4092))
    assert reopened(files).entries == 0


def test_a_first_record_from_1970_is_kept() -> None:
    files = MemoryFiles()
    index = an_index(files)
    index.maybe_append(0, 1000)
    index.trim()
    assert reopened(files).entries == 1
    index.maybe_append(7, 1001)
    index.close()
    assert reopened(files).entries == 2


def test_truncate_and_sanity() -> None:
    files = MemoryFiles()
    index = an_index(files)
    assert index.is_sane()
    for number in range(1, 6):
        index.maybe_append(number * 1_000, 1000 + number * 10)
    assert index.is_sane()
    index.truncate(1030)
    assert (index.entries, index.last_timestamp, index.last_offset) == (2, 2_000, 1020)
    files.put(PATH, struct.pack(">qiqi", 5_000, 9, 4_000, 19))
    assert not reopened(files).is_sane()
    files.put(PATH, struct.pack(">qiqi", 5_000, 9, 6_000, -2))
    assert not reopened(files).is_sane()
