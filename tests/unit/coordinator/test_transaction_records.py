"""Goal: `__transaction_state` is read and written as Kafka does, and damage never passes.
Method: values as Kafka 4.3.1's own formatter printed them, both versions, and every cut of them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.offsets_records import UnreadableRecord
from ottla.coordinator.transaction_records import (
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
    read_key,
    read_value,
    tombstone,
    transaction_key,
    transaction_record,
    transaction_value,
)

PLACES = frozenset({("out", 0), ("out", 2), ("__consumer_offsets", 14)})
OPEN = Transaction(8, 3, 60_000, ONGOING, PLACES, 1794789655082, 1794789654975, client_version=2)

# Producer 8, epoch 3, time-out 60000, state 1, two topics, the two times; tag 2: version 2.
OPEN_BYTES = bytes.fromhex(
    "0001 0000000000000008 0003 0000ea60 01 03"
    "13 5f5f636f6e73756d65725f6f666673657473 02 0000000e 00"
    "04 6f7574 03 00000000 00000002 00"
    "000001a1e1ccc22a 000001a1e1ccc1bf 01 02 02 0002"
)
# The same without tags, as Kafka before 3.8 wrote it.
OLD_BYTES = bytes.fromhex(
    "0000 0000000000000008 0003 0000ea60 01 00000002"
    "0012 5f5f636f6e73756d65725f6f666673657473 00000001 0000000e"
    "0003 6f7574 00000002 00000000 00000002"
    "000001a1e1ccc22a 000001a1e1ccc1bf"
)


def test_key() -> None:
    assert transaction_key("cp1") == b"\x00\x00\x00\x03cp1"
    assert read_key(b"\x00\x00\x00\x03cp1") == "cp1"
    for damaged in (
        b"",
        b"\x00\x00",
        b"\x00\x00\x00\x04cp1",
        b"\x00\x01\x00\x03cp1",
        b"\0\0\0\1\xff",
    ):
        with pytest.raises(UnreadableRecord):
            read_key(damaged)


def test_an_open_transaction_as_kafka_writes_it() -> None:
    assert transaction_value(OPEN) == OPEN_BYTES
    assert read_value(OPEN_BYTES) == OPEN


def test_a_value_of_the_older_version() -> None:
    assert read_value(OLD_BYTES) == OPEN._replace(client_version=0)


def test_an_id_without_a_transaction_has_no_partitions_at_all() -> None:
    empty = Transaction(8, 0, 60_000, EMPTY, frozenset(), 5, -1)
    value = transaction_value(empty)
    # Null while it is empty; an array of none once it is complete.
    assert value[17] == 0
    assert transaction_value(empty._replace(state=COMPLETE_COMMIT))[17] == 1
    assert read_value(value) == empty


def test_the_time_out_that_a_prepare_took_is_a_tag_that_kafka_skips() -> None:
    prepared = OPEN._replace(next_producer_id=8, next_producer_epoch=4, timeout_before_ms=60_000)
    value = transaction_value(prepared)
    assert read_value(value) == prepared
    assert value.endswith(bytes.fromhex("91 4e 08 000000000000ea60"))


def test_what_no_record_holds_is_not_read_back() -> None:
    assert read_value(transaction_value(OPEN._replace(last_epoch=2))).last_epoch == -1


def test_all_tags() -> None:
    ending = OPEN._replace(
        state=PREPARE_COMMIT,
        previous_producer_id=7,
        next_producer_id=9,
        next_producer_epoch=4,
        forgets=True,
        timeout_before_ms=60_000,
    )
    assert read_value(transaction_value(ending)) == ending


@pytest.mark.parametrize("whole", [OPEN_BYTES, OLD_BYTES])
def test_no_value_that_is_cut_short_is_read(whole: bytes) -> None:
    for size in range(len(whole)):
        with pytest.raises(UnreadableRecord):
            read_value(whole[:size])


def test_versions_and_states_that_nobody_writes() -> None:
    for position, byte in ((1, 2), (16, 9), (16, 255)):
        damaged = bytearray(OPEN_BYTES)
        damaged[position] = byte
        with pytest.raises(UnreadableRecord):
            read_value(bytes(damaged))


def test_facts_say_what_the_bytes_say() -> None:
    record = transaction_record("x", OPEN)
    assert record.value is not None
    assert record.fact == (read_key(record.key), read_value(record.value))
    assert tombstone("x").value is None
    assert tombstone("x").fact == ("x", None)


IDS = st.integers(-1, 2**63 - 1)
TIMES = st.integers(-1, 2**62)


@given(
    st.builds(
        Transaction,
        producer_id=IDS,
        producer_epoch=st.integers(-1, 32767),
        timeout_ms=st.integers(0, 2**31 - 1),
        state=st.integers(ONGOING, 6),
        partitions=st.frozensets(st.tuples(st.text(max_size=200), st.integers(0, 2**31 - 1))),
        updated_ms=TIMES,
        started_ms=TIMES,
        previous_producer_id=IDS,
        next_producer_id=IDS,
        client_version=st.integers(0, 2),
        last_epoch=st.just(-1),
        next_producer_epoch=st.integers(-1, 32767),
        forgets=st.booleans(),
        timeout_before_ms=st.integers(-1, 2**31 - 1),
    )
)
def test_round_trip(transaction: Transaction) -> None:
    assert read_value(transaction_value(transaction)) == transaction
