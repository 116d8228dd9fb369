"""Goal: a reader gets the batches that are meant for it, whole and sound, and its position passes
over the rest. Method: small histories with transactions, cut and changed bytes.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import ProtocolError
from ottla.client.fetch_batches import AbortedTransactions, FetchedBatches
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import BASE_OFFSET, HEADER_SIZE

COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def batch(
    base: int, count: int = 1, *, codec: int = 0, producer: int = -1, epoch: int = 3
) -> bytes:
    records = [RecordToWrite(1_000, None, b"v%d" % (base + number)) for number in range(count)]
    return build_batch(
        records,
        base_offset=base,
        codec=codec,
        leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )


def marker(base: int, producer: int, key: bytes) -> bytes:
    return build_batch(
        [RecordToWrite(1_000, key, bytes(6))],
        base_offset=base,
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def read(
    data: bytes, position: int = 0, aborted: AbortedTransactions | None = None
) -> tuple[list[int], FetchedBatches]:
    """The base offsets of what is handed out, behind a few bytes of something else."""
    fetched = FetchedBatches(b"###" + data + b"#", 3, 3 + len(data), position, aborted=aborted)
    found = []
    while (block := fetched.next_block()) is not None:
        assert fetched.next_block() is block
        found.append(block.header[BASE_OFFSET])
        fetched.advance(block.next_offset())
    return found, fetched


@pytest.mark.parametrize("codec", range(5))
def test_batches_come_in_order_and_unpacked(codec: int) -> None:
    data = batch(5, 2, codec=codec) + batch(9, 3, codec=codec, epoch=4)
    found, fetched = read(data, 5)
    assert found == [5, 9]
    assert (fetched.position, fetched.last_epoch) == (12, 4)
    block = FetchedBatches(data, 0, len(data), 5).next_block()
    assert block is not None
    plain = batch(5, 2)[HEADER_SIZE:]
    assert bytes(memoryview(block.data)[block.start : block.end]) == plain


def test_what_is_cut_off_is_left_for_the_next_fetch() -> None:
    whole, cut = batch(0, 2), batch(2, 2)
    for size in (0, 1, HEADER_SIZE - 1, HEADER_SIZE, len(cut) - 1):
        found, fetched = read(whole + cut[:size])
        assert (found, fetched.position) == ([0], 2)
    assert read(b"")[0] == []


def test_a_batch_that_was_read_before_is_passed_over() -> None:
    found, fetched = read(batch(0, 3) + batch(3, 3), 3)
    assert (found, fetched.position) == ([3], 6)
    # One that was read in part comes again; who reads it drops what it knows.
    assert read(batch(0, 3) + batch(3, 3), 2)[0] == [0, 3]


def test_a_batch_stays_until_all_of_it_is_taken() -> None:
    data = batch(0, 3)
    fetched = FetchedBatches(data, 0, len(data), 0)
    block = fetched.next_block()
    fetched.advance(2)
    assert fetched.next_block() is block
    fetched.advance(3)
    assert fetched.next_block() is None
    assert fetched.position == 3


def test_markers_are_never_handed_out() -> None:
    data = batch(0, producer=7) + marker(1, 7, COMMIT) + batch(2) + marker(3, 8, ABORT)
    histories: list[AbortedTransactions | None] = [None, []]
    for aborted in histories:
        found, fetched = read(data, 0, aborted)
        assert (found, fetched.position) == ([0, 2], 4)


def test_aborted_batches_are_passed_over_until_their_marker() -> None:
    data = b"".join(
        (
            batch(0, producer=7),
            batch(1, producer=8),
            batch(2),
            batch(3, producer=7),
            marker(4, 7, ABORT),
            batch(5, producer=7),
            marker(6, 7, COMMIT),
            marker(7, 8, COMMIT),
            batch(8, producer=7),
            marker(9, 7, ABORT),
            batch(10, producer=9),
        )
    )
    aborted = [(7, 8), (9, 10), (7, 0)]  # in any order
    found, fetched = read(data, 0, aborted)
    assert (found, fetched.position) == ([1, 2, 5], 11)
    assert read(data, 0, None)[0] == [0, 1, 2, 3, 5, 8, 10]


def test_the_end_of_a_transaction_counts_where_it_was_read_before() -> None:
    data = batch(0, producer=7) + marker(1, 7, ABORT) + batch(2, producer=7)
    assert read(data, 2, [(7, 0)])[0] == [2]


def test_a_batch_that_the_cleaner_emptied_is_passed_over() -> None:
    empty = bytearray(batch(0, 2)[:HEADER_SIZE])
    empty[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    fetched = FetchedBatches(bytes(empty), 0, len(empty), 0, check_crcs=False)
    assert fetched.next_block() is None
    assert fetched.position == 2


@pytest.mark.parametrize("position", [8, 12 + 4, 20, 30, 70])
def test_changed_bytes_are_refused(position: int) -> None:
    data = bytearray(batch(0, 2) + batch(2, 2))
    data[position] ^= 0x80
    with pytest.raises(ProtocolError) as caught:
        read(bytes(data))
    assert caught.value.code == CORRUPT_MESSAGE


def test_checksums_are_not_looked_at_if_not_wanted() -> None:
    data = bytearray(batch(0, 2))
    data[17] ^= 1
    fetched = FetchedBatches(bytes(data), 0, len(data), 0, check_crcs=False)
    assert fetched.next_block() is not None


@pytest.mark.parametrize("key", [b"", b"\0\0\0", b"\0"])
def test_a_marker_with_a_broken_key_is_refused(key: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(marker(0, 7, key), 0, [])
