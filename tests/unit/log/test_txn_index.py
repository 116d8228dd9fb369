"""Goal: aborted transactions survive in Kafka's 34-byte entries, a torn one does not.
Method: write, read back, compare the bytes, tear the tail.
"""

from __future__ import annotations

import struct
import tracemalloc

from ottla.log.txn_index import ENTRY_BYTES, AbortedTransaction, TxnIndex, build, parse
from tests.chaos.memory_files import MemoryFiles

PATH = "/data/0.txnindex"
FIRST = AbortedTransaction(7, 10, 19, 20)
SECOND = AbortedTransaction(8, 15, 30, 31)


def an_index(files: MemoryFiles) -> TxnIndex:
    files.make_dir("/data")
    return TxnIndex(files, PATH)


def test_there_is_no_file_until_a_transaction_is_aborted() -> None:
    files = MemoryFiles()
    index = an_index(files)
    assert index.read() == []
    index.truncate(0)
    assert not files.exists(PATH)


def test_layout() -> None:
    files = MemoryFiles()
    index = an_index(files)
    index.append(FIRST)
    index.append(SECOND)
    assert files.read(PATH) == struct.pack(">hqqqqhqqqq", 0, 7, 10, 19, 20, 0, 8, 15, 30, 31)
    assert files.read(PATH) == build([FIRST, SECOND])
    assert TxnIndex(files, PATH).read() == [FIRST, SECOND]


def test_truncate_drops_markers_at_or_above_the_offset() -> None:
    files = MemoryFiles()
    index = an_index(files)
    index.append(FIRST)
    index.append(SECOND)
    index.truncate(30)
    assert index.read() == [FIRST]
    assert files.size(PATH) == ENTRY_BYTES


def test_a_torn_entry_is_left_out_and_written_over() -> None:
    files = MemoryFiles()
    files.put(PATH, build([FIRST]) + build([SECOND])[:20])
    index = TxnIndex(files, PATH)
    assert index.read() == [FIRST]
    index.append(SECOND)
    assert index.read() == [FIRST, SECOND]


def test_an_entry_of_another_version_ends_the_list() -> None:
    other = bytearray(build([SECOND]))
    other[1] = 9
    assert list(parse(build([FIRST]) + bytes(other) + build([FIRST]))) == [FIRST]


def test_those_since_an_offset() -> None:
    files = MemoryFiles()
    index = an_index(files)
    entries = [AbortedTransaction(n, 10 * n, 10 * n + 5, 10 * n) for n in range(100)]
    for entry in entries:
        index.append(entry)
    for fresh in (index, TxnIndex(files, PATH)):
        assert len(fresh) == 100
        for offset, slot in ((0, 0), (5, 0), (6, 1), (995, 99), (996, 100)):
            assert list(fresh.since(offset)) == entries[slot:]


def held_bytes() -> int:
    """By what the index runs: threads that other tests have left behind allocate, too."""
    code = [tracemalloc.Filter(True, f"*/{name}.py") for name in ("txn_index", "memory_files")]
    traces = tracemalloc.take_snapshot().filter_traces(code)
    return sum(one.size for one in traces.statistics("filename"))


def test_what_is_kept_in_memory_is_no_more_than_the_file_and_can_be_given_up() -> None:
    files = MemoryFiles()
    index = an_index(files)
    tracemalloc.start()
    for number in range(10_000):
        index.append(AbortedTransaction(number, number, number, number))
    index.give_up()
    before = held_bytes()
    assert len(index) == 10_000 and index.is_in_memory()
    after = held_bytes()
    index.give_up()
    given_up = held_bytes()
    tracemalloc.stop()
    assert 10_000 * ENTRY_BYTES <= after - before < 2 * 10_000 * ENTRY_BYTES
    assert given_up - before < 1000 and not index.is_in_memory()
    index.append(FIRST._replace(last_offset=20_000))
    assert len(index.read()) == 10_001
