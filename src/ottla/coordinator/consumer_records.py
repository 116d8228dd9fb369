"""Kafka's record formats of consumer groups (KIP-848) in `__consumer_offsets`.

Owns bytes, and nothing of what they mean. The fact of each record (`Record.fact`) is what decoding
gives: the group's id, the id of the member or the regular expression ("" where the record is of the
group as a whole), and the value or None. Kafka 4.3 writes version 0 of each of them.

Mappings of partitions are never changed once they are in a value: whoever needs another makes one.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.coordinator.offsets_records import RecordReader, UnreadableRecord, compact_length
from ottla.coordinator.shard import Record

GROUP_KEY = 3
PARTITION_METADATA_KEY = 4
MEMBER_KEY = 5
TARGET_KEY = 6
TARGET_MEMBER_KEY = 7
CURRENT_KEY = 8
PATTERN_KEY = 16

_OF_GROUP = frozenset({GROUP_KEY, PARTITION_METADATA_KEY, TARGET_KEY})

Partitions = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id; a topic without any is not in it."""

Epochs = Mapping[uuid.UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which its member got it (KIP-1251)."""

NO_PARTITIONS: Partitions = {}
NO_EPOCHS: Epochs = {}

# States of a member on its way to its target.
STABLE = 0
UNREVOKED = 1
UNRELEASED = 2

# Member epochs that are none.
JOINING = 0
LEAVING = -1
LEAVING_STATIC = -2


class ClassicMetadata(NamedTuple):
    """What a member of a consumer group has that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberMetadata(NamedTuple):
    """`pattern` is the regular expression that it subscribes to, or ""."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    pattern: str
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMetadata | None


class CurrentAssignment(NamedTuple):
    """`revoking`: what it has to give up before it may go on to the next epoch."""

    member_epoch: int
    previous_epoch: int
    state: int
    assigned: Epochs
    revoking: Epochs


class GroupEpoch(NamedTuple):
    """`metadata_hash` is of all that an assignment depends on in the subscribed topics."""

    epoch: int
    metadata_hash: int


class TargetEpoch(NamedTuple):
    """`assigned_ms` is when the target was made (KIP-1263), 0 if that is not known."""

    epoch: int
    assigned_ms: int


class ResolvedPattern(NamedTuple):
    topics: frozenset[str]
    version: int
    resolved_ms: int


Fact = tuple[str, str, Any]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_LENGTH = struct.Struct(">H")
_VERSION_0 = b"\x00\x00"
_NO_TAGS = b"\x00"
_ONE_TAG_0 = b"\x01\x00"


# -- records ----------------------------------------------------------------------------------


def group_record(group_id: str, value: GroupEpoch) -> Record:
    tagged = _NO_TAGS
    if value.metadata_hash:
        tagged = _ONE_TAG_0 + b"\x08" + _INT64.pack(value.metadata_hash)
    encoded = _VERSION_0 + _INT32.pack(value.epoch) + tagged
    return Record(_key(GROUP_KEY, group_id), encoded, (group_id, "", value))


def member_record(group_id: str, member_id: str, value: MemberMetadata) -> Record:
    names = sorted(value.topics)
    encoded = b"".join(
        (
            _VERSION_0,
            _nullable(value.instance_id),
            _nullable(value.rack_id),
            _string(value.client_id),
            _string(value.client_host),
            compact_length(len(names)),
            *map(_string, names),
            _string(value.pattern),
            _INT32.pack(value.rebalance_timeout_ms),
            _nullable(value.assignor),
            _tagged_classic(value.classic),
        )
    )
    return Record(_key(MEMBER_KEY, group_id, member_id), encoded, (group_id, member_id, value))


def target_record(group_id: str, value: TargetEpoch) -> Record:
    tagged = _NO_TAGS
    if value.assigned_ms:
        tagged = _ONE_TAG_0 + b"\x08" + _INT64.pack(value.assigned_ms)
    encoded = _VERSION_0 + _INT32.pack(value.epoch) + tagged
    return Record(_key(TARGET_KEY, group_id), encoded, (group_id, "", value))


def target_member_record(group_id: str, member_id: str, value: Partitions) -> Record:
    parts = [_VERSION_0, compact_length(len(value))]
    for topic_id, partitions in value.items():
        parts += (topic_id.bytes, _int32s(sorted(partitions)), _NO_TAGS)
    parts.append(_NO_TAGS)
    key = _key(TARGET_MEMBER_KEY, group_id, member_id)
    return Record(key, b"".join(parts), (group_id, member_id, value))


def current_record(group_id: str, member_id: str, value: CurrentAssignment) -> Record:
    encoded = b"".join(
        (
            _VERSION_0,
            _INT32.pack(value.member_epoch),
            _INT32.pack(value.previous_epoch),
            bytes((value.state,)),
            _epochs(value.assigned),
            _epochs(value.revoking),
            _NO_TAGS,
        )
    )
    return Record(_key(CURRENT_KEY, group_id, member_id), encoded, (group_id, member_id, value))


def pattern_record(group_id: str, pattern: str, value: ResolvedPattern) -> Record:
    names = sorted(value.topics)
    encoded = b"".join(
        (
            _VERSION_0,
            compact_length(len(names)),
            *map(_string, names),
            _INT64.pack(value.version),
            _INT64.pack(value.resolved_ms),
            _NO_TAGS,
        )
    )
    return Record(_key(PATTERN_KEY, group_id, pattern), encoded, (group_id, pattern, value))


def tombstone(kind: int, group_id: str, part: str = "") -> Record:
    """Takes back the record of that kind; `part` is a member's id or a regular expression."""
    key = _key(kind, group_id) if kind in _OF_GROUP else _key(kind, group_id, part)
    return Record(key, None, (group_id, part, None))


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Kafka wants the member itself to go last."""
    return [
        tombstone(kind, group_id, member_id)
        for kind in (CURRENT_KEY, TARGET_MEMBER_KEY, MEMBER_KEY)
    ]


# -- reading ----------------------------------------------------------------------------------


def read_fact(kind: int, record: Record) -> Fact:
    if record.fact is not None:
        fact: Fact = record.fact
        return fact
    group_id, part = _read_key(kind, record.key)
    return group_id, part, None if record.value is None else _read_value(kind, record.value)


def _read_key(kind: int, key: bytes) -> tuple[str, str]:
    reader = RecordReader(key)
    try:
        reader.int16()
        group_id = reader.string()
        return group_id, "" if kind in _OF_GROUP else reader.string()
    except ValueError as cause:
        raise UnreadableRecord(f"a record of kind {kind} with a damaged key") from cause


def _read_value(kind: int, value: bytes) -> Any:
    reader = _Reader(value)
    try:
        version = reader.int16()
        if version != 0:
            raise UnreadableRecord(f"a record of kind {kind} in version {version}")
        return _READERS[kind](reader)
    except (struct.error, IndexError, ValueError) as cause:
        raise UnreadableRecord(f"a record of kind {kind} with a damaged value") from cause


class _Reader(RecordReader):
    __slots__ = ()

    def int32s(self) -> tuple[int, ...]:
        count = self.compact_count()
        return struct.unpack(f">{count}i", self._take(4 * count))

    def strings(self) -> frozenset[str]:
        return frozenset([self.compact_string() for _ in range(self.compact_count())])

    def tagged_int64(self) -> int:
        value = self.tagged_fields().get(0)
        return 0 if value is None else int(_INT64.unpack(value)[0])


def _read_group(reader: _Reader) -> GroupEpoch:
    return GroupEpoch(reader.int32(), reader.tagged_int64())


def _read_partition_metadata(reader: _Reader) -> bool:
    """Kafka has it no more since 4.1: it is enough to know that there is one to take back."""
    return True


def _read_member(reader: _Reader) -> MemberMetadata:
    instance_id, rack_id = reader.compact_nullable_string(), reader.compact_nullable_string()
    client_id, client_host = reader.compact_string(), reader.compact_string()
    topics = reader.strings()
    pattern = reader.compact_nullable_string() or ""
    rebalance_timeout_ms = reader.int32()
    assignor = reader.compact_nullable_string()
    classic = reader.tagged_fields().get(0)
    return MemberMetadata(
        instance_id,
        rack_id,
        client_id,
        client_host,
        topics,
        pattern,
        rebalance_timeout_ms,
        assignor,
        None if classic is None else _read_classic(classic),
    )


def _read_classic(tagged: bytes) -> ClassicMetadata | None:
    reader = _Reader(tagged)
    if reader.unsigned_varint() == 0:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.compact_count()):
        protocols.append((reader.compact_string(), reader.compact_bytes()))
        reader.tagged_fields()
    return ClassicMetadata(session_timeout_ms, tuple(protocols))


def _read_target(reader: _Reader) -> TargetEpoch:
    return TargetEpoch(reader.int32(), reader.tagged_int64())


def _read_target_member(reader: _Reader) -> Partitions:
    found = {}
    for _ in range(reader.compact_count()):
        topic_id = reader.uuid()
        found[topic_id] = frozenset(reader.int32s())
        reader.tagged_fields()
    reader.tagged_fields()
    return found


def _read_current(reader: _Reader) -> CurrentAssignment:
    member_epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    # A member that has left for a while has a negative epoch, which is none to compare with.
    default = max(member_epoch, 0)
    assigned, revoking = _read_epochs(reader, default), _read_epochs(reader, default)
    reader.tagged_fields()
    return CurrentAssignment(member_epoch, previous_epoch, state, assigned, revoking)


def _read_epochs(reader: _Reader, default: int) -> Epochs:
    found = {}
    for _ in range(reader.compact_count()):
        topic_id = reader.uuid()
        partitions = reader.int32s()
        tagged = reader.tagged_fields().get(0)
        epochs = () if tagged is None else _Reader(tagged).int32s()
        if len(epochs) != len(partitions):
            epochs = (default,) * len(partitions)  # from before KIP-1251
        found[topic_id] = dict(zip(partitions, epochs, strict=True))
    return found


def _read_pattern(reader: _Reader) -> ResolvedPattern:
    resolved = ResolvedPattern(reader.strings(), reader.int64(), reader.int64())
    reader.tagged_fields()
    return resolved


_READERS = {
    GROUP_KEY: _read_group,
    PARTITION_METADATA_KEY: _read_partition_metadata,
    MEMBER_KEY: _read_member,
    TARGET_KEY: _read_target,
    TARGET_MEMBER_KEY: _read_target_member,
    CURRENT_KEY: _read_current,
    PATTERN_KEY: _read_pattern,
}


# -- primitives -------------------------------------------------------------------------------


def _key(kind: int, *names: str) -> bytes:
    parts = [_INT16.pack(kind)]
    for name in names:
        encoded = name.encode()
        parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return compact_length(len(encoded)) + encoded


def _nullable(text: str | None) -> bytes:
    return b"\x00" if text is None else _string(text)


def _int32s(numbers: Iterable[int]) -> bytes:
    listed = list(numbers)
    return compact_length(len(listed)) + struct.pack(f">{len(listed)}i", *listed)


def _epochs(held: Epochs) -> bytes:
    parts = [compact_length(len(held))]
    for topic_id, epochs in held.items():
        partitions = sorted(epochs)
        tagged = _int32s(epochs[partition] for partition in partitions)
        # A varint of a size is one of a length plus one, one less.
        size = compact_length(len(tagged) - 1)
        parts += (topic_id.bytes, _int32s(partitions), _ONE_TAG_0, size, tagged)
    return b"".join(parts)


def _tagged_classic(classic: ClassicMetadata | None) -> bytes:
    if classic is None:
        return _ONE_TAG_0 + b"\x01\x00"  # Kafka writes it down that there is none
    parts = [
        b"\x01",  # it is not null
        _INT32.pack(classic.session_timeout_ms),
        compact_length(len(classic.protocols)),
    ]
    for name, metadata in classic.protocols:
        parts += (_string(name), compact_length(len(metadata)), metadata, _NO_TAGS)
    parts.append(_NO_TAGS)
    tagged = b"".join(parts)
    return _ONE_TAG_0 + compact_length(len(tagged) - 1) + tagged
