"""Goal: Fetch by hand reads and says what kio does, in every version, with the records left out.
Method: random requests written by kio are read and compared; random responses are packed around
stand-ins for the records and, put together, compared with kio's bytes; then each refusal.
(The lies in counts and lengths are in test_hostile_requests.py.)
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from ottla.base.errors import InvariantError, MalformedRequest
from ottla.base.limits import REQUEST_OBJECTS_MAX
from ottla.protocol import api_keys, fetch_request, messages
from ottla.protocol.fetch import (
    NO_HIGH_WATERMARK,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    fetch_response_parts,
    read_fetch_request,
)
from ottla.protocol.primitives import NULL_UUID
from tests.unit.protocol.kio_messages import expected, random_message, schema_of, written

VERSIONS = range(4, 19)
TOPIC_ID = uuid.UUID(int=99)


class Records:
    """A stand-in for a slice of a log: all that the packer may know is its size."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size = len(content)


def joined(parts: list[Any]) -> bytes:
    return b"".join(part.content if isinstance(part, Records) else part for part in parts)


PARTITION_DEFAULTS = {
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
    "replica_directory_id": NULL_UUID,
    "high_watermark": NO_HIGH_WATERMARK,
}
REQUEST_DEFAULTS = {"session_id": 0, "session_epoch": -1, "rack_id": "", "cluster_id": None}


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    schema = schema_of(api_keys.FETCH, version, True)
    for _ in range(60):
        message = random_message(schema, rng)
        request = read_fetch_request(version, memoryview(written(message)))
        wanted = expected(message)
        assert topics_of(request) == wanted_topics(wanted)
        assert request.forgotten == [
            (topic.get("topic"), topic.get("topic_id"), topic["partitions"])
            for topic in wanted.get("forgotten_topics_data", [])
        ]
        for name in ("max_wait_ms", "min_bytes", "max_bytes", "isolation_level"):
            assert getattr(request, name) == wanted[name], name
        for name, default in REQUEST_DEFAULTS.items():
            assert getattr(request, name) == wanted.get(name, default), name
        state = wanted.get("replica_state", {"replica_epoch": -1})
        replica_id = state.get("replica_id", wanted.get("replica_id"))
        assert (request.replica_id, request.replica_epoch) == (replica_id, state["replica_epoch"])


def the_usual_request(version: int, rng: random.Random, **changes: Any) -> bytes:
    """Of a consumer that reads on in one partition."""
    partition = {
        "partition": rng.getrandbits(31),
        "current_leader_epoch": rng.getrandbits(31) - 1,
        "fetch_offset": rng.getrandbits(63) - 1,
        "last_fetched_epoch": rng.getrandbits(31) - 1,
        "log_start_offset": rng.getrandbits(63) - 1,
        "partition_max_bytes": rng.getrandbits(31),
    }
    fields = {
        "max_wait_ms": rng.getrandbits(31),
        "min_bytes": rng.getrandbits(31),
        "max_bytes": rng.getrandbits(31),
        "isolation_level": rng.randrange(2),
        "session_id": rng.getrandbits(31),
        "session_epoch": rng.getrandbits(31) - 1,
        "topics": [{"topic_id": uuid.UUID(int=rng.getrandbits(128)), "partitions": [partition]}],
        "forgotten_topics_data": [],
    }
    return messages.encode_request(api_keys.FETCH, version, fields | changes)


def all_of(request: FetchRequest) -> dict[str, Any]:
    fields = {slot: getattr(request, slot) for slot in request.__slots__}
    return fields | {"topics": topics_of(request)}


FOLLOWER = {"replica_state": {"replica_id": 4, "replica_epoch": 2**40}}
USUAL: list[tuple[int, dict[str, Any]]] = [(version, {}) for version in range(13, 19)] + [
    (version, FOLLOWER) for version in range(15, 19)
]


@pytest.mark.parametrize(("version", "changes"), USUAL)
def test_the_usual_request_is_read_in_one_go_and_as_any_other(
    version: int, changes: dict[str, Any]
) -> None:
    rng = random.Random(version)
    for _ in range(60):
        body = memoryview(the_usual_request(version, rng, **changes))
        at_once = fetch_request._read_one_partition(version, body)
        assert at_once is not None
        assert all_of(at_once) == all_of(fetch_request._FlexibleReader(version, body).read())


@pytest.mark.parametrize(("version", "changes"), USUAL)
def test_what_is_not_the_usual_request_is_not_read_in_one_go(
    version: int, changes: dict[str, Any]
) -> None:
    rng = random.Random(version)
    usual = the_usual_request(version, rng, **changes)
    for at in range(len(usual)):
        # Wherever a byte differs, one reader must not find what the other does not.
        other = memoryview(usual[:at] + bytes([usual[at] ^ 3]) + usual[at + 1 :])
        at_once = fetch_request._read_one_partition(version, other)
        if at_once is not None:
            whole = fetch_request._FlexibleReader(version, other).read()
            assert all_of(at_once) == all_of(whole), at


@pytest.mark.parametrize("version", range(13, 19))
def test_a_rack_no_topic_or_another_tag_is_read_part_by_part(version: int) -> None:
    rng = random.Random(version)
    others: list[dict[str, Any]] = [{"rack_id": "east"}, {"topics": []}, {"cluster_id": "c"}]
    for changes in others:
        body = memoryview(the_usual_request(version, rng, **changes))
        assert fetch_request._read_one_partition(version, body) is None


def topics_of(request: FetchRequest) -> list[Any]:
    return [
        (name, topic_id, [{slot: getattr(one, slot) for slot in one.__slots__} for one in row])
        for name, topic_id, row in request.topics
    ]


def wanted_topics(wanted: dict[str, Any]) -> list[Any]:
    return [
        (
            topic.get("topic"),
            topic.get("topic_id"),
            [PARTITION_DEFAULTS | one for one in topic["partitions"]],
        )
        for topic in wanted["topics"]
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_packed_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    schema = schema_of(api_keys.FETCH, version, False)
    for _ in range(60):
        message = without_null_records(random_message(schema, rng))
        wanted = expected(message)
        endpoints = [
            (node["node_id"], node["host"], node["port"], node["rack"])
            for node in wanted.get("node_endpoints", [])
        ]
        topics: list[FetchedTopic] = [
            (
                topic.get("topic"),
                topic.get("topic_id"),
                [fetched_of(partition) for partition in topic["partitions"]],
            )
            for topic in wanted["responses"]
        ]
        error_code, session_id = wanted.get("error_code", 0), wanted.get("session_id", 0)
        parts, size = fetch_response_parts(
            version, wanted["throttle_time_ms"], error_code, session_id, topics, endpoints
        )
        body = written(message)
        assert joined(parts) == body
        assert size == len(body)
        check_parts(parts)


def without_null_records(message: Any) -> Any:
    """kio may say null; we never do, so null becomes empty here."""
    for topic in message.responses:
        for partition in topic.partitions:
            if partition.records is None:
                object.__setattr__(partition, "records", b"")
    return message


def fetched_of(partition: dict[str, Any]) -> FetchedPartition:
    aborted = partition["aborted_transactions"]
    return FetchedPartition(
        partition["partition_index"],
        partition["error_code"],
        partition["high_watermark"],
        partition["last_stable_offset"],
        partition.get("log_start_offset", -1),
        aborted and [(one["producer_id"], one["first_offset"]) for one in aborted],
        partition.get("preferred_read_replica", -1),
        Records(partition["records"]),
        pair(partition.get("diverging_epoch"), "epoch", "end_offset"),
        pair(partition.get("current_leader"), "leader_id", "leader_epoch"),
        pair(partition.get("snapshot_id"), "end_offset", "epoch"),
    )


def pair(struct: dict[str, int] | None, first: str, second: str) -> tuple[int, int] | None:
    return None if struct is None else (struct[first], struct[second])


def check_parts(parts: list[Any]) -> None:
    """Bytes are merged, nothing empty is sent, records stand between bytes."""
    assert all(part.size if isinstance(part, Records) else part for part in parts)
    kinds = [isinstance(part, Records) for part in parts]
    assert kinds[::2] == [False] * len(kinds[::2])
    assert kinds[1::2] == [True] * len(kinds[1::2])


def fetched(records: Records | None, **changes: Any) -> FetchedPartition:
    one = FetchedPartition(3, 0, 10, 10, 0, None, -1, records)
    for name, value in changes.items():
        setattr(one, name, value)
    return one


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("records", [None, Records(b"")], ids=["none", "empty"])
def test_no_records_are_an_empty_record_set_and_never_null(
    version: int, records: Records | None
) -> None:
    parts, size = fetch_response_parts(
        version, 0, 0, 0, [("t", TOPIC_ID, [fetched(records), fetched(records)])]
    )
    (body,) = parts
    assert size == len(body)
    decoded = messages.decode_response(api_keys.FETCH, version, body)
    assert [one.records for one in decoded.responses[0].partitions] == [b"", b""]


@pytest.mark.parametrize("version", VERSIONS)
def test_null_aborted_transactions_are_not_none_of_them(version: int) -> None:
    cases: list[list[tuple[int, int]] | None] = [None, [], [(7, 8), (9, 10)]]
    partitions = [fetched(None, aborted_transactions=aborted) for aborted in cases]
    parts, _ = fetch_response_parts(version, 0, 0, 0, [("t", TOPIC_ID, partitions)])
    decoded = messages.decode_response(api_keys.FETCH, version, joined(parts))
    told = [
        one.aborted_transactions
        and [(each.producer_id, each.first_offset) for each in one.aborted_transactions]
        for one in decoded.responses[0].partitions
    ]
    assert told == cases


@pytest.mark.parametrize("version", range(13, 19))
@pytest.mark.parametrize("content", [b"", b"x", b"y" * 126, b"z" * 20_000])
def test_the_usual_answer_is_the_beginning_of_a_longer_one(version: int, content: bytes) -> None:
    """One partition is packed in one go; beside a second one it is packed as any."""
    one = fetched(Records(content))
    parts, size = fetch_response_parts(version, 5, 0, 9, [(None, TOPIC_ID, [one])])
    check_parts(parts)
    assert size == len(joined(parts))
    alone = messages.decode_response(api_keys.FETCH, version, joined(parts))
    both, _ = fetch_response_parts(version, 5, 0, 9, [(None, TOPIC_ID, [one, fetched(None)])])
    beside = messages.decode_response(api_keys.FETCH, version, joined(both))
    assert alone.responses[0].partitions == beside.responses[0].partitions[:1]
    assert (alone.throttle_time_ms, alone.session_id) == (5, 9)
    assert alone.responses[0].topic_id == TOPIC_ID


def test_records_of_several_partitions_keep_their_places() -> None:
    rows = [fetched(Records(content)) for content in (b"one", b"two", b"three")]
    parts, size = fetch_response_parts(13, 0, 0, 0, [(None, TOPIC_ID, rows)])
    assert [part.content for part in parts if isinstance(part, Records)] == [
        b"one",
        b"two",
        b"three",
    ]
    assert len(parts) == 7
    assert size == len(joined(parts))


def test_a_top_level_error_needs_no_topics() -> None:
    parts, _ = fetch_response_parts(17, 3, 70, 5, [])
    decoded = messages.decode_response(api_keys.FETCH, 17, joined(parts))
    assert (decoded.throttle_time_ms, decoded.error_code, decoded.session_id) == (3, 70, 5)
    assert decoded.responses == []


def test_a_topic_has_a_name_below_version_13() -> None:
    for version in (4, 12):
        with pytest.raises(InvariantError):
            fetch_response_parts(version, 0, 0, 0, [(None, TOPIC_ID, [fetched(None)])])


def a_request(version: int) -> bytes:
    partition = {"partition": 3, "fetch_offset": 5, "partition_max_bytes": 100}
    topic = {"topic": "orders", "topic_id": TOPIC_ID, "partitions": [partition]}
    forgotten = {"topic": "orders", "topic_id": TOPIC_ID, "partitions": [1, 2]}
    fields = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "topics": [topic],
        "forgotten_topics_data": [forgotten],
        "replica_state": {"replica_id": 4, "replica_epoch": 6},
        "cluster_id": "c",
    }
    return messages.encode_request(api_keys.FETCH, version, fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_prefix_is_malformed_and_what_follows_is_ignored(version: int) -> None:
    body = a_request(version)
    for end in range(len(body)):
        with pytest.raises(MalformedRequest):
            read_fetch_request(version, memoryview(body)[:end])
    read_fetch_request(version, memoryview(body + b"\0"))


@pytest.mark.parametrize("version", [11, 12])
def test_a_topic_and_a_rack_must_not_be_null(version: int) -> None:
    body = a_request(version)
    name = b"\0\6orders" if version < 12 else b"\7orders"
    null = b"\xff\xff" if version < 12 else b"\0"
    with pytest.raises(MalformedRequest):
        read_fetch_request(version, memoryview(body.replace(name, null, 1)))


def test_unknown_tags_are_skipped_and_known_ones_have_their_size() -> None:
    head = bytes(21)  # v17 to the topic count
    partition = bytes(32)
    tags = b"\2\0\x10" + TOPIC_ID.bytes + b"\x09\3abc"
    body = head + b"\2" + TOPIC_ID.bytes + b"\2" + partition + tags + b"\1\5\0" + b"\1\1\1\7\1x"
    request = read_fetch_request(17, memoryview(body))
    (_, topic_id, (one,)) = request.topics[0]
    assert (topic_id, one.replica_directory_id) == (TOPIC_ID, TOPIC_ID)
    bad = body.replace(b"\2\0\x10", b"\2\0\x0f", 1)
    with pytest.raises(MalformedRequest):
        read_fetch_request(17, memoryview(bad))


def test_a_tag_of_a_later_version_is_unknown_to_an_earlier_one() -> None:
    head = bytes(25)  # v14 to the topic count
    body = head + b"\1\1\1" + b"\1\1\2zz"  # tag 1 is the replica state from v15 on
    assert read_fetch_request(14, memoryview(body)).replica_id == 0
    for version in (16, 17):
        # In a partition, tag 0 is its directory from v17 on, tag 1 its watermark from v18 on.
        tag = version - 16
        partition = bytes(32) + bytes((1, tag, 2)) + b"zz"
        topics = b"\2" + TOPIC_ID.bytes + b"\2" + partition + b"\0"
        body = bytes(21) + topics + b"\1\1\0"
        ((_, _, (one,)),) = read_fetch_request(version, memoryview(body)).topics
        assert (one.replica_directory_id, one.high_watermark) == (NULL_UUID, NO_HIGH_WATERMARK)


def test_tagged_fields_of_several_topics_add_up() -> None:
    def body(tags: int) -> memoryview:
        varint = bytes((tags & 127 | 128, tags >> 7 & 127 | 128, tags >> 14))
        topic = TOPIC_ID.bytes + b"\1" + varint + b"\x63\0" * tags
        return memoryview(bytes(21) + b"\3" + topic + topic + b"\1\1\0")

    read_fetch_request(17, body(REQUEST_OBJECTS_MAX // 2 - 10))
    with pytest.raises(MalformedRequest, match="tagged fields"):
        read_fetch_request(17, body(REQUEST_OBJECTS_MAX // 2))


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_topics_and_partitions_are_bounded(version: int) -> None:
    def body(count: int) -> memoryview:
        partition = {"partition": 3, "fetch_offset": 5, "partition_max_bytes": 100}
        topic = {"topic": "t", "topic_id": TOPIC_ID, "partitions": [partition] * count}
        fields = {
            "max_wait_ms": 5,
            "min_bytes": 1,
            "topics": [topic],
            "forgotten_topics_data": [],
        }
        return memoryview(messages.encode_request(api_keys.FETCH, version, fields))

    request = read_fetch_request(version, body(REQUEST_OBJECTS_MAX - 1))
    assert len(request.topics[0][2]) == REQUEST_OBJECTS_MAX - 1
    with pytest.raises(MalformedRequest, match="more than"):
        read_fetch_request(version, body(REQUEST_OBJECTS_MAX))


@pytest.mark.parametrize("version", [-1, 3, 19])
def test_other_versions_are_not_spoken(version: int) -> None:
    with pytest.raises(MalformedRequest, match="not spoken"):
        read_fetch_request(version, memoryview(b""))
    with pytest.raises(InvariantError):
        fetch_response_parts(version, 0, 0, 0, [])


def test_requests_can_be_made_by_hand() -> None:
    one = FetchPartition(1, fetch_offset=5, partition_max_bytes=10)
    request = FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1, isolation_level=0)
    for name, default in PARTITION_DEFAULTS.items():
        assert getattr(one, name) == default
    for name, default in REQUEST_DEFAULTS.items():
        assert getattr(request, name) == default
    assert (request.topics, request.forgotten, request.replica_id) == ([], [], -1)
