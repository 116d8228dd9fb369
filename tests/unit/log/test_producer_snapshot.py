"""Goal: Kafka's snapshot format, version 1, and no trust in a broken file.
Method: round trip, a file that Kafka 4.3 wrote, one flipped byte at every place.
"""

from __future__ import annotations

from pathlib import Path

from ottla.log.producer_snapshot import SnapshotEntry, decode, encode

WRITTEN_BY_KAFKA = Path(__file__).with_name("kafka_partitions") / "txn-0"
ENTRIES = [
    SnapshotEntry(7, 0, 41, 99, 3, 1_700_000_000_000, -1, -1),
    SnapshotEntry(8, 2, -1, -1, 0, 5, 3, 60),
]


def test_round_trip() -> None:
    assert decode(encode(ENTRIES)) == ENTRIES
    assert decode(encode([])) == []
    assert len(encode(ENTRIES)) == 10 + 2 * 46


def test_a_file_that_kafka_wrote() -> None:
    content = (WRITTEN_BY_KAFKA / "00000000000000000089.snapshot").read_bytes()
    entries = decode(content)
    assert entries is not None
    assert [(entry.producer_id, entry.last_sequence, entry.last_offset) for entry in entries] == [
        (1, 39, 42),
        (2, 39, 86),
        (3, 0, 88),
    ]
    assert [entry.transaction_first_offset for entry in entries] == [-1, -1, 88]
    assert encode(entries) == content


def test_every_flipped_byte_is_noticed() -> None:
    content = encode(ENTRIES)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x40
        assert decode(bytes(damaged)) is None, position


def test_a_torn_file_is_noticed() -> None:
    content = encode(ENTRIES)
    for size in range(len(content)):
        assert decode(content[:size]) is None
    assert decode(content + b"\0") is None
