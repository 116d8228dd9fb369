"""Kafka's record formats in `__consumer_offsets`: offset commits and metadata of classic groups.

Owns bytes, and nothing of what they mean. The first two bytes of a key say what kind of record it
is, the first two of a value in which version it is written. Written are the versions that Kafka 4.3
writes; read is every version that a Kafka may have left behind. The records of KIP-848 are in
`consumer_group_records`.
"""

from __future__ import annotations

import functools
import struct
import uuid
from collections.abc import Callable
from typing import NamedTuple

from ottla.base.errors import OttlaError

OFFSET_COMMIT_LEGACY_KEY = 0
OFFSET_COMMIT_KEY = 1
GROUP_METADATA_KEY = 2

# Kinds that Kafka writes and that mean nothing here: share groups (9 to 15) and streams groups.
CONSUMER_GROUP_KEYS = frozenset({3, 4, 5, 6, 7, 8, 16})

NO_TOPIC_ID = uuid.UUID(int=0)
NO_TIMESTAMP = -1

# Longer names are nobody's; what their keys begin with is not worth remembering.
_REMEMBERED_LENGTH_MAX = 256

_KEY_VERSION = struct.Struct(">h")
_GROUP = struct.Struct(">hH")
_LENGTH = struct.Struct(">H")
_PARTITION = struct.Struct(">i")
_COMMIT_START = struct.Struct(">hqi")
_COMMIT_WITHOUT_METADATA = struct.Struct(">hqiBq")
_INT64 = struct.Struct(">q")
_TAGGED_TOPIC_ID = b"\x01\x00\x10"
_NO_TAGS = b"\x00"
_EXPIRING_COMMIT_VERSION = 1
_COMMIT_VERSION = 4
_METADATA_VERSION = 3


class UnreadableRecord(OttlaError):
    """A record in a version or shape that no Kafka up to 4.3 writes."""


class Commit(NamedTuple):
    """A committed offset. `expires_ms` is for clients that ask for it (OffsetCommit v2 to v4)."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = NO_TIMESTAMP
    topic_id: uuid.UUID = NO_TOPIC_ID


class StoredMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """What the log holds of a classic group: its last generation that was synced, or empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int
    members: tuple[StoredMember, ...]


# -- keys -------------------------------------------------------------------------------------


def key_version(key: bytes) -> int:
    """What kind of record it is; -1 if the key is too short to say."""
    return int.from_bytes(key[:2], "big") if len(key) >= 2 else -1


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    if len(group_id) + len(topic) > _REMEMBERED_LENGTH_MAX:
        return _offset_key_start(group_id, topic) + _PARTITION.pack(partition)
    return _remembered_start(group_id, topic) + _PARTITION.pack(partition)


def _offset_key_start(group_id: str, topic: str) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join(
        (_GROUP.pack(OFFSET_COMMIT_KEY, len(group)), group, _LENGTH.pack(len(name)), name)
    )


_remembered_start: Callable[[str, str], bytes] = functools.lru_cache(maxsize=4_096)(
    _offset_key_start
)


def read_offset_key(key: bytes) -> tuple[str, str, int]:
    """Group, topic and partition."""
    try:
        group_end = 4 + int.from_bytes(key[2:4], "big")
        topic_from = group_end + 2
        topic_end = topic_from + int.from_bytes(key[group_end:topic_from], "big")
        (partition,) = _PARTITION.unpack_from(key, topic_end)
        return key[4:group_end].decode(), key[topic_from:topic_end].decode(), partition
    except (struct.error, UnicodeDecodeError) as cause:
        raise UnreadableRecord("an offset commit with a damaged key") from cause


def group_key(group_id: str) -> bytes:
    group = group_id.encode()
    return _GROUP.pack(GROUP_METADATA_KEY, len(group)) + group


def read_group_key(key: bytes) -> str:
    try:
        return key[4 : 4 + int.from_bytes(key[2:4], "big")].decode()
    except UnicodeDecodeError as cause:
        raise UnreadableRecord("group metadata with a damaged key") from cause


# -- offset commits ---------------------------------------------------------------------------


def offset_value(commit: Commit) -> bytes:
    topic_id = commit.topic_id
    tags = _NO_TAGS if topic_id is NO_TOPIC_ID else _TAGGED_TOPIC_ID + topic_id.bytes
    if not commit.metadata and commit.expires_ms == NO_TIMESTAMP:
        start = (_COMMIT_VERSION, commit.offset, commit.leader_epoch)
        return _COMMIT_WITHOUT_METADATA.pack(*start, 1, commit.committed_ms) + tags
    metadata = commit.metadata.encode()
    if commit.expires_ms != NO_TIMESTAMP:
        return b"".join(
            (
                _KEY_VERSION.pack(_EXPIRING_COMMIT_VERSION),
                _INT64.pack(commit.offset),
                _LENGTH.pack(len(metadata)),
                metadata,
                _INT64.pack(commit.committed_ms),
                _INT64.pack(commit.expires_ms),
            )
        )
    return b"".join(
        (
            _COMMIT_START.pack(_COMMIT_VERSION, commit.offset, commit.leader_epoch),
            compact_length(len(metadata)),
            metadata,
            _INT64.pack(commit.committed_ms),
            tags,
        )
    )


def read_offset_value(value: bytes) -> Commit:
    reader = RecordReader(value)
    try:
        version = reader.int16()
        if not 0 <= version <= _COMMIT_VERSION:
            raise UnreadableRecord(f"an offset commit in version {version}")
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= 3 else -1
        metadata = reader.compact_string() if version >= 4 else reader.string()
        committed_ms = reader.int64()
        expires_ms = reader.int64() if version == _EXPIRING_COMMIT_VERSION else NO_TIMESTAMP
        topic_id = NO_TOPIC_ID
        if version >= 4:
            tagged = reader.tagged_fields()
            if 0 in tagged:
                topic_id = uuid.UUID(bytes=tagged[0])
        return Commit(offset, leader_epoch, metadata, committed_ms, expires_ms, topic_id)
    except (struct.error, IndexError, ValueError) as cause:
        raise UnreadableRecord("an offset commit with a damaged value") from cause


# -- classic groups ---------------------------------------------------------------------------


def group_value(group: StoredGroup) -> bytes:
    parts = [
        _KEY_VERSION.pack(_METADATA_VERSION),
        _string(group.protocol_type),
        _PARTITION.pack(group.generation),
        _nullable_string(group.protocol),
        _nullable_string(group.leader),
        _INT64.pack(group.since_ms),
        _PARTITION.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            _string(member.member_id),
            _nullable_string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _PARTITION.pack(member.rebalance_timeout_ms),
            _PARTITION.pack(member.session_timeout_ms),
            _PARTITION.pack(len(member.subscription)),
            member.subscription,
            _PARTITION.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def read_group_value(value: bytes) -> StoredGroup:
    reader = RecordReader(value)
    try:
        version = reader.int16()
        if not 0 <= version <= 4:
            raise UnreadableRecord(f"group metadata in version {version}")
        flexible = version >= 4
        string = reader.compact_string if flexible else reader.string
        nullable = reader.compact_nullable_string if flexible else reader.nullable_string
        protocol_type = string()
        generation = reader.int32()
        protocol, leader = nullable(), nullable()
        since_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
        count = reader.compact_count() if flexible else reader.int32()
        members = tuple(_read_member(reader, version) for _ in range(count))
        return StoredGroup(protocol_type, generation, protocol, leader, since_ms, members)
    except (struct.error, IndexError, ValueError) as cause:
        raise UnreadableRecord("group metadata with a damaged value") from cause


def _read_member(reader: RecordReader, version: int) -> StoredMember:
    flexible = version >= 4
    string = reader.compact_string if flexible else reader.string
    nullable = reader.compact_nullable_string if flexible else reader.nullable_string
    blob = reader.compact_bytes if flexible else reader.bytes32
    member_id = string()
    instance_id = nullable() if version >= 3 else None
    client_id, client_host = string(), string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    member = StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        session_timeout_ms,
        blob(),
        blob(),
    )
    if flexible:
        reader.tagged_fields()
    return member


# -- primitives -------------------------------------------------------------------------------


def compact_length(length: int) -> bytes:
    """How compact strings, bytes and arrays begin: the length plus one, as an unsigned varint."""
    rest = length + 1
    if rest < 128:
        return bytes((rest,))
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _string(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _nullable_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else _string(text)


class RecordReader:
    """Reads a value from its start; struct.error, IndexError or ValueError if it is too short."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._take(16))

    def unsigned_varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            result |= (byte & 127) << shift
            if byte < 128:
                return result
            shift += 7
            if shift > 28:
                raise ValueError("a varint of more than five bytes")

    def compact_count(self) -> int:
        """How many elements a compact array has; a null one has none."""
        return max(self.unsigned_varint() - 1, 0)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError("null, where there must be a string")
        return text

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def compact_string(self) -> str:
        text = self.compact_nullable_string()
        if text is None:
            raise ValueError("null, where there must be a string")
        return text

    def compact_nullable_string(self) -> str | None:
        length = self.unsigned_varint() - 1
        return None if length < 0 else self._take(length).decode()

    def bytes32(self) -> bytes:
        return self._take(self.int32())

    def compact_bytes(self) -> bytes:
        return self._take(self.unsigned_varint() - 1)

    def tagged_fields(self) -> dict[int, bytes]:
        return {
            self.unsigned_varint(): self._take(self.unsigned_varint())
            for _ in range(self.unsigned_varint())
        }

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError("it ends too early")
        taken = self._data[self._position : end]
        self._position = end
        return taken
