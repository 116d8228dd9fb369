"""Goal: a load finds what a fully compacted log would hold, whatever the log looks like.
Method: logs of every kind of batch against a dictionary; transactions; pieces of any size.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import OttlaError
from ottla.coordinator.offsets_records import UnreadableRecord
from ottla.coordinator.shard import Record
from ottla.coordinator.shard_batch import build_batch, in_pieces
from ottla.coordinator.shard_load import BrokenBatch, ShardLoad
from ottla.records.batch_builder import RecordToWrite
from ottla.records.batch_builder import build_batch as build_any_batch
from ottla.records.batch_header import CRC_POSITION
from ottla.records.batch_view import records_of
from ottla.records.compression import GZIP, NONE, ZSTD

COMMIT, ABORT = 1, 0


def a_batch(
    base_offset: int, *records: tuple[bytes | None, bytes | None], codec: int = NONE
) -> bytes:
    written = [RecordToWrite(1000 + n, key, value) for n, (key, value) in enumerate(records)]
    return build_any_batch(written, base_offset=base_offset, codec=codec)


def a_marker(offset: int, producer_id: int, kind: int) -> bytes:
    record = RecordToWrite(1000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 1))
    return build_any_batch(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def in_transaction(offset: int, producer_id: int, key: bytes, value: bytes | None) -> bytes:
    return build_any_batch(
        [RecordToWrite(1000, key, value)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def loaded(*pieces: bytes, start: int = 0) -> list[tuple[bytes, bytes | None, int]]:
    load = ShardLoad(start)
    for piece in pieces:
        load.read(piece)
    return list(load.live_records())


def test_the_last_value_counts_in_the_order_of_the_log() -> None:
    log = (
        a_batch(0, (b"a", b"1"), (b"b", b"1")) + a_batch(2, (b"a", b"2")) + a_batch(3, (b"c", None))
    )
    assert loaded(log) == [(b"b", b"1", -1), (b"a", b"2", -1), (b"c", None, -1)]


keys = st.sampled_from([b"k%d" % number for number in range(6)] + [b"long" * 20])
values = st.binary(max_size=100) | st.none() | st.binary(min_size=130, max_size=140)
batches = st.lists(
    st.tuples(
        st.lists(st.tuples(keys, values), min_size=1, max_size=4),
        st.sampled_from(["own", "plain", "gzip", "zstd"]),
    ),
    max_size=12,
)


@given(batches, st.integers(1, 5))
def test_any_log_is_like_a_dictionary(
    log: list[tuple[list[tuple[bytes, bytes | None]], str]], pieces: int
) -> None:
    expected: dict[bytes, bytes | None] = {}
    written: list[bytes] = []
    offset = 0
    for records, kind in log:
        if kind == "own":
            batch, _ = build_batch([Record(key, value) for key, value in records], 1000)
            struct.pack_into(">q", batch, 0, offset)
            written.append(bytes(batch))
        else:
            codec = {"plain": NONE, "gzip": GZIP, "zstd": ZSTD}[kind]
            written.append(a_batch(offset, *records, codec=codec))
        for key, value in records:
            expected.pop(key, None)
            expected[key] = value
        offset += len(records)
    parts = [b"".join(written[n : n + pieces]) for n in range(0, len(written), pieces)]
    assert loaded(*parts) == [(key, value, -1) for key, value in expected.items()]


def test_a_transaction_counts_from_its_end() -> None:
    begun = in_transaction(0, 7, b"a", b"in transaction")
    assert loaded(begun) == [(b"a", b"in transaction", 7)]
    assert loaded(begun + a_marker(1, 7, ABORT)) == []
    assert loaded(begun + a_marker(1, 7, COMMIT)) == [(b"a", b"in transaction", -1)]
    assert loaded(begun + a_marker(1, 8, COMMIT)) == [(b"a", b"in transaction", 7)]


def test_what_is_later_in_the_log_wins_over_a_transaction() -> None:
    log = (
        a_batch(0, (b"a", b"before"))
        + in_transaction(1, 7, b"a", b"in transaction")
        + a_batch(2, (b"a", b"after"))
        + a_marker(3, 7, COMMIT)
    )
    assert loaded(log) == [(b"a", b"after", -1)]
    log = a_batch(0, (b"a", b"before")) + in_transaction(1, 7, b"a", b"x") + a_marker(2, 7, COMMIT)
    assert loaded(log) == [(b"a", b"x", -1)]
    deleted = in_transaction(0, 7, b"a", b"x") + a_batch(1, (b"a", None)) + a_marker(2, 7, COMMIT)
    assert loaded(deleted) == [(b"a", None, -1)]


def test_what_lies_before_the_start_is_left_out() -> None:
    log = a_batch(0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1")) + a_batch(3, (b"d", b"1"))
    assert [key for key, _, _ in loaded(log, start=2)] == [b"c", b"d"]
    assert [key for key, _, _ in loaded(log, start=3)] == [b"d"]


def test_damage_is_refused() -> None:
    batch = a_batch(0, (b"a", b"1"))
    with pytest.raises(OttlaError):
        loaded(batch[:-1])
    with pytest.raises(UnreadableRecord, match="key"):
        loaded(a_batch(0, (None, b"1")))
    wrong = bytearray(batch)
    struct.pack_into(">i", wrong, 8, 10)
    with pytest.raises(OttlaError):
        loaded(bytes(wrong))


@pytest.mark.parametrize("kind", ["one", "several", "compressed", "in a transaction"])
def test_no_bit_of_a_checked_batch_may_have_rotted(kind: str) -> None:
    """Wherever it is: in an offset it would be another one that is told as committed."""
    sound = bytes(build_batch([Record(b"before", b"1")], 1000)[0])
    batch = {
        "one": bytes(build_batch([Record(b"key", b"value")], 1000)[0]),
        "several": a_batch(1, (b"a", b"1"), (b"b", b"2")),
        "compressed": a_batch(1, (b"a", b"1"), codec=GZIP),
        "in a transaction": in_transaction(1, 7, b"a", b"1"),
    }[kind]
    assert loaded(sound + batch)
    for position in range(CRC_POSITION, len(batch)):
        for bit in range(8):
            rotten = bytearray(batch)
            rotten[position] ^= 1 << bit
            with pytest.raises(BrokenBatch) as refused:
                loaded(sound + bytes(rotten))
            assert refused.value.offset == 1


def test_batches_of_a_coordinator_are_what_the_general_builder_makes() -> None:
    for records in (
        [Record(b"key", b"value")],
        [Record(b"key", None), Record(b"k" * 100, b"v" * 5000), Record(b"", b"")],
        [Record(b"%d" % number, b"v") for number in range(200)],
    ):
        batch, header = build_batch(records, 1234)
        plain = [RecordToWrite(1234, one.key, one.value) for one in records]
        assert bytes(batch) == build_any_batch(plain)
        assert header[6:9] == (len(records) - 1, 1234, 1234)
        assert [(r.key, r.value) for r in records_of(batch, 1 << 20)] == [
            (one.key, one.value) for one in records
        ]


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300)), min_size=1, max_size=30),
    st.integers(700, 3000),
)
def test_pieces_are_small_enough_and_complete(
    pairs: list[tuple[bytes, bytes]], size_max: int
) -> None:
    records = [Record(key, value) for key, value in pairs]
    pieces = list(in_pieces(records, size_max))
    assert [one for piece in pieces for one in piece] == records
    assert all(len(build_batch(piece, 1)[0]) <= size_max for piece in pieces)
