"""Goal: records as Kafka writes them, byte for byte, and every version that it may have left.
Method: records taken from the log of Apache Kafka 4.3.1; round trips; damage of every kind.
"""

from __future__ import annotations

import contextlib
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator import offsets_records as formats
from ottla.coordinator.offsets_records import Commit, StoredGroup, StoredMember, UnreadableRecord

TOPIC_ID = uuid.UUID(bytes=b"[zf\xe96\xc3C\x8d\xa9\xc1\xe0\xc6\x7fZY\xfd")
MEMBER_ID = "probe-193a02e6-fd89-4654-8c18-4ded4b163aa9"
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x02t1\x00\x00\x00\x00\x00\x00\x00\x00"
ASSIGNMENT = b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"


def test_an_offset_commit_is_what_kafka_writes() -> None:
    commit = Commit(5, 3, "hä", 1_794_786_239_956, topic_id=TOPIC_ID)
    assert formats.offset_key("g1", "t1", 0) == b"\x00\x01\x00\x02g1\x00\x02t1\x00\x00\x00\x00"
    value = (
        b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x03\x04h\xc3\xa4"
        b"\x00\x00\x01\xa1\xe1\x98\xa5\xd4\x01\x00\x10" + TOPIC_ID.bytes
    )
    assert formats.offset_value(commit) == value
    assert formats.read_offset_value(value) == commit


def test_a_commit_with_a_retention_is_what_kafka_writes() -> None:
    value = (
        b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x01x"
        b"\x00\x00\x01\xa1\xe1\x98\xa6t\x00\x00\x01\xa1\xe1\x9a-\x14"
    )
    commit = Commit(5, -1, "x", 1_794_786_240_116, 1_794_786_340_116)
    assert formats.offset_value(commit) == value
    assert formats.read_offset_value(value) == commit


def test_an_empty_group_is_what_kafka_writes() -> None:
    value = b"\x00\x03\x00\x08consumer\x00\x00\x00\x02\xff\xff\xff\xff\x00\x00\x01\xa1\xe1\x98\xa7a"
    group = StoredGroup("consumer", 2, None, None, 1_794_786_240_353, ())
    assert formats.group_key("g2") == b"\x00\x02\x00\x02g2"
    assert formats.group_value(group) == value + b"\x00\x00\x00\x00"
    assert formats.read_group_value(value + b"\x00\x00\x00\x00") == group


def test_a_group_with_a_member_is_what_kafka_writes() -> None:
    value = b"\x00\x03\x00\x08consumer\x00\x00\x00\x01\x00\x05range\x00*" + MEMBER_ID.encode()
    value += b"\x00\x00\x01\xa1\xe1\x98\xa6\xbb\x00\x00\x00\x01\x00*" + MEMBER_ID.encode()
    value += b"\xff\xff\x00\x05probe\x00\n/127.0.0.1\x00\x00N \x00\x00'\x10\x00\x00\x00\x12"
    value += SUBSCRIPTION + b"\x00\x00\x00\n" + ASSIGNMENT
    member = StoredMember(
        MEMBER_ID, None, "probe", "/127.0.0.1", 20_000, 10_000, SUBSCRIPTION, ASSIGNMENT
    )
    group = StoredGroup("consumer", 1, "range", MEMBER_ID, 1_794_786_240_187, (member,))
    assert formats.group_value(group) == value
    assert formats.read_group_value(value) == group


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_commit_is_read(version: int) -> None:
    value = struct.pack(">hq", version, 42)
    if version >= 3:
        value += struct.pack(">i", 7)
    value += b"\x05note" if version >= 4 else b"\x00\x04note"
    value += struct.pack(">q", 1000)
    if version == 1:
        value += struct.pack(">q", 2000)
    if version >= 4:
        value += b"\x02\x00\x10" + TOPIC_ID.bytes + b"\x09\x01?"  # and a tag of a later Kafka
    expected = Commit(42, 7 if version >= 3 else -1, "note", 1000, 2000 if version == 1 else -1)
    if version >= 4:
        expected = expected._replace(topic_id=TOPIC_ID)
    assert formats.read_offset_value(value) == expected


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version: int) -> None:
    def text(value: str) -> bytes:
        if version >= 4:
            return bytes((len(value) + 1,)) + value.encode()
        return struct.pack(">h", len(value)) + value.encode()

    def blob(value: bytes) -> bytes:
        length = bytes((len(value) + 1,)) if version >= 4 else struct.pack(">i", len(value))
        return length + value

    value = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 3)
    value += text("range") + text("m")
    if version >= 2:
        value += struct.pack(">q", 77)
    value += b"\x02" if version >= 4 else struct.pack(">i", 1)
    value += text("m")
    if version >= 3:
        value += text("instance")
    value += text("client") + text("/host")
    if version >= 1:
        value += struct.pack(">i", 600)
    value += struct.pack(">i", 300) + blob(b"sub") + blob(b"assigned")
    if version >= 4:
        value += b"\x00\x00"
    instance = "instance" if version >= 3 else None
    rebalance_ms = 600 if version >= 1 else 300
    member = StoredMember("m", instance, "client", "/host", rebalance_ms, 300, b"sub", b"assigned")
    since_ms = 77 if version >= 2 else -1
    assert formats.read_group_value(value) == StoredGroup(
        "consumer", 3, "range", "m", since_ms, (member,)
    )


texts = st.text(max_size=40)
commits = st.builds(
    Commit,
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    texts,
    st.integers(0, 2**50),
    st.just(-1),
    st.uuids() | st.just(formats.NO_TOPIC_ID),
)


@given(texts, texts, st.integers(0, 2**31 - 1), commits)
def test_commits_come_back(group: str, topic: str, partition: int, commit: Commit) -> None:
    key = formats.offset_key(group, topic, partition)
    assert formats.key_version(key) == formats.OFFSET_COMMIT_KEY
    assert formats.read_offset_key(key) == (group, topic, partition)
    assert formats.read_offset_value(formats.offset_value(commit)) == commit


members = st.builds(
    StoredMember,
    texts,
    texts | st.none(),
    texts,
    texts,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=200),
    st.binary(max_size=200),
)
groups = st.builds(
    StoredGroup,
    texts,
    st.integers(0, 2**31 - 1),
    texts | st.none(),
    texts | st.none(),
    st.integers(-1, 2**50),
    st.lists(members, max_size=4).map(tuple),
)


@given(texts, groups)
def test_groups_come_back(group_id: str, group: StoredGroup) -> None:
    assert formats.read_group_key(formats.group_key(group_id)) == group_id
    assert formats.read_group_value(formats.group_value(group)) == group


@given(groups, commits, st.data())
def test_what_is_cut_short_is_refused(
    group: StoredGroup, commit: Commit, data: st.DataObject
) -> None:
    for value, read in (
        (formats.group_value(group), formats.read_group_value),
        (formats.offset_value(commit), formats.read_offset_value),
    ):
        cut = data.draw(st.integers(0, len(value) - 1))
        with pytest.raises(UnreadableRecord):
            read(value[:cut])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (
        formats.read_group_value,
        formats.read_offset_value,
        formats.read_offset_key,
        formats.read_group_key,
    ):
        with contextlib.suppress(UnreadableRecord):
            read(data)


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_versions_of_the_future_are_refused(version: int) -> None:
    value = struct.pack(">h", version) + bytes(100)
    with pytest.raises(UnreadableRecord, match="version"):
        formats.read_offset_value(value)
    with pytest.raises(UnreadableRecord, match="version"):
        formats.read_group_value(value)


def test_keys_that_say_nothing() -> None:
    assert formats.key_version(b"") == formats.key_version(b"\x00") == -1
    assert formats.key_version(b"\x00\x08") == 8
