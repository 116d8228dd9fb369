"""Goal: records of consumer groups are Kafka's, byte for byte, and damage is told as such.
Method: records that Kafka 4.3.1 wrote, read and written again; random values there and back.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator import consumer_records as formats
from ottla.coordinator.consumer_records import (
    ClassicMetadata,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    ResolvedPattern,
    TargetEpoch,
)
from ottla.coordinator.offsets_records import UnreadableRecord, key_version
from ottla.coordinator.shard import Record

KAFKAS = [
    (kind, bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    for kind, key, value in map(
        json.loads,
        Path(__file__).with_name("kafka_consumer_records.jsonl").read_text().splitlines(),
    )
]


def written(kind: int, group_id: str, part: str, value: Any) -> Record:
    if value is None:
        return formats.tombstone(kind, group_id, part)
    match kind:
        case formats.GROUP_KEY:
            return formats.group_record(group_id, value)
        case formats.MEMBER_KEY:
            return formats.member_record(group_id, part, value)
        case formats.TARGET_KEY:
            return formats.target_record(group_id, value)
        case formats.TARGET_MEMBER_KEY:
            return formats.target_member_record(group_id, part, value)
        case formats.CURRENT_KEY:
            return formats.current_record(group_id, part, value)
        case formats.PATTERN_KEY:
            return formats.pattern_record(group_id, part, value)
        case _:
            raise AssertionError(f"nobody writes kind {kind}")


@pytest.mark.parametrize(("kind", "key", "value"), KAFKAS)
def test_what_kafka_wrote_is_what_we_write(kind: int, key: bytes, value: bytes | None) -> None:
    assert key_version(key) == kind
    fact = formats.read_fact(kind, Record(key, value))
    again = written(kind, *fact)
    assert (again.key, again.value) == (key, value)
    assert again.fact == fact


def test_every_kind_is_among_them() -> None:
    kinds = {kind for kind, _, value in KAFKAS if value is not None}
    assert kinds == {3, 5, 6, 7, 8, 16}
    assert any(
        formats.read_fact(kind, Record(key, value))[2].classic
        for kind, key, value in KAFKAS
        if kind == formats.MEMBER_KEY and value is not None
    )


def test_the_record_of_older_kafkas_is_known_to_be_there() -> None:
    """Partition metadata: nobody writes it any more, and it has to be taken back."""
    key = formats.tombstone(formats.PARTITION_METADATA_KEY, "g").key
    fact = formats.read_fact(formats.PARTITION_METADATA_KEY, Record(key, b"\x00\x00\x01\x00"))
    assert fact == ("g", "", True)


def test_partitions_without_epochs_are_of_the_member_s_own() -> None:
    """Before KIP-1251; and a member that has left for a while has an epoch that is none."""
    topic_id = uuid.UUID(int=7)
    partitions = b"\x02" + topic_id.bytes + b"\x03\x00\x00\x00\x01\x00\x00\x00\x02" + b"\x00"
    for epoch, expected in ((5, 5), (-2, 0)):
        encoded = epoch.to_bytes(4, "big", signed=True)
        value = b"\x00\x00" + encoded + encoded + b"\x00" + partitions + b"\x01" + b"\x00"
        key = formats.tombstone(formats.CURRENT_KEY, "g", "m").key
        current = formats.read_fact(formats.CURRENT_KEY, Record(key, value))[2]
        assert current.assigned == {topic_id: {1: expected, 2: expected}}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITION = st.integers(0, 2**31 - 1)
PARTITIONS = st.dictionaries(st.uuids(), st.frozensets(PARTITION, min_size=1), max_size=4)
EPOCHS = st.dictionaries(
    st.uuids(), st.dictionaries(PARTITION, INT32, min_size=1, max_size=40), max_size=4
)
CLASSIC = st.builds(
    ClassicMetadata,
    INT32,
    st.lists(st.tuples(NAMES, st.binary(max_size=200)), max_size=3).map(tuple),
)
VALUES = {
    formats.GROUP_KEY: st.builds(GroupEpoch, INT32, INT64),
    formats.MEMBER_KEY: st.builds(
        MemberMetadata,
        st.none() | NAMES,
        st.none() | NAMES,
        NAMES,
        NAMES,
        st.frozensets(NAMES, max_size=5),
        NAMES,
        INT32,
        st.none() | NAMES,
        st.none() | CLASSIC,
    ),
    formats.TARGET_KEY: st.builds(TargetEpoch, INT32, INT64),
    formats.TARGET_MEMBER_KEY: PARTITIONS,
    formats.CURRENT_KEY: st.builds(
        CurrentAssignment, INT32, INT32, st.integers(0, 2), EPOCHS, EPOCHS
    ),
    formats.PATTERN_KEY: st.builds(ResolvedPattern, st.frozensets(NAMES), INT64, INT64),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_there_and_back(kind: int, data: st.DataObject) -> None:
    value = data.draw(VALUES[kind])
    group_id, part = data.draw(NAMES), data.draw(NAMES)
    record = written(kind, group_id, part, value)
    known, read = record.fact, formats.read_fact(kind, Record(record.key, record.value))
    assert read == known
    assert read[2] == value


@pytest.mark.parametrize(("kind", "key", "value"), KAFKAS)
def test_a_part_of_a_record_is_none(kind: int, key: bytes, value: bytes | None) -> None:
    for size in range(2, len(key)):
        with pytest.raises(UnreadableRecord):
            formats.read_fact(kind, Record(key[:size], value))
    for size in range(len(value or b"")):
        with pytest.raises(UnreadableRecord):
            formats.read_fact(kind, Record(key, (value or b"")[:size]))


def test_a_version_to_come_is_refused() -> None:
    record = formats.group_record("g", GroupEpoch(1, 0))
    with pytest.raises(UnreadableRecord, match="version 1"):
        formats.read_fact(formats.GROUP_KEY, Record(record.key, b"\x00\x01" + b"\x00" * 9))


def test_a_lie_about_a_count_costs_nothing() -> None:
    record = formats.target_member_record("g", "m", {uuid.UUID(int=1): frozenset({1})})
    assert record.value is not None
    lie = record.value[:19] + b"\xff\xff\xff\xff\x07" + record.value[20:]
    with pytest.raises(UnreadableRecord):
        formats.read_fact(formats.TARGET_MEMBER_KEY, Record(record.key, lie))
