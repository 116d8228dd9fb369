"""Goal: the light members follow both group protocols, and a group counts as stable only when every
partition is owned in one generation. Method: answers in their real formats, one after the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from bench.clients import rebalance_classic, rebalance_consumer
from bench.clients.rebalance_classic import ClassicMember, assignment, share_in
from bench.clients.rebalance_consumer import ConsumerMember
from bench.wire import AnswerError
from ottla.protocol import api_keys, messages
from ottla.protocol.error_codes import (
    FENCED_MEMBER_EPOCH,
    GROUP_MAX_SIZE_REACHED,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from ottla.protocol.headers import read_request_header, response_header

TOPIC = "orders"
TOPIC_ID = uuid.UUID(int=5)


def asked(request: bytes | None) -> tuple[int, Any]:
    """The API key and the fields of a request."""
    assert request is not None
    header = read_request_header(memoryview(request)[4:])
    body = memoryview(request)[4 + header.body_position :]
    return header.api_key, messages.decode_request(header.api_key, header.api_version, body)


def answered(api_key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    body = messages.encode_response(api_key, version, {"error_code": 0, **fields})
    return response_header(api_key, version, 1) + body


def joined(generation: int, member: str, members: list[str], leader: str = "m0") -> bytes:
    fields = {
        "generation_id": generation,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": leader,
        "member_id": member,
        "members": [{"member_id": name, "metadata": b""} for name in members],
    }
    return answered(api_keys.JOIN_GROUP, rebalance_classic.JOIN, fields)


def refused(api_key: int, version: int, error_code: int, **fields: Any) -> bytes:
    nobody: list[str] = []
    empty = {"generation_id": -1, "protocol_name": None, "leader": "", "members": nobody}
    return answered(
        api_key, version, {**empty, "member_id": "", **fields, "error_code": error_code}
    )


def synced(share: range) -> bytes:
    fields = {"assignment": assignment(TOPIC, share)}
    return answered(api_keys.SYNC_GROUP, rebalance_classic.SYNC, fields)


def test_a_classic_member_joins_twice_and_deals_out_everything_as_leader() -> None:
    member = ClassicMember("g", TOPIC, partitions=6)
    key, fields = asked(member.first_request())
    assert (key, fields.member_id) == (api_keys.JOIN_GROUP, "")
    needed = refused(
        api_keys.JOIN_GROUP, rebalance_classic.JOIN, MEMBER_ID_REQUIRED, member_id="m0"
    )
    key, fields = asked(member.on_answer(needed))
    assert (key, fields.member_id) == (api_keys.JOIN_GROUP, "m0")
    key, fields = asked(member.on_answer(joined(3, "m0", ["m0", "m1", "m2"])))
    assert (key, fields.generation_id) == (api_keys.SYNC_GROUP, 3)
    dealt = {entry.member_id: entry.assignment for entry in fields.assignments}
    assert dealt == {
        "m0": assignment(TOPIC, range(2)),
        "m1": assignment(TOPIC, range(2, 4)),
        "m2": assignment(TOPIC, range(4, 6)),
    }
    assert member.on_answer(synced(range(2))) is None
    assert (member.share, member.generation) == (2, 3)


def test_a_follower_deals_out_nothing_and_rejoins_when_it_is_told_to() -> None:
    member = ClassicMember("g", TOPIC, partitions=6)
    member.first_request()
    _, fields = asked(member.on_answer(joined(3, "m1", [])))
    assert fields.assignments == []
    member.on_answer(synced(range(2, 4)))
    key, fields = asked(member.heartbeat())
    assert (key, fields.member_id, fields.generation_id) == (api_keys.HEARTBEAT, "m1", 3)
    told = answered(
        api_keys.HEARTBEAT, rebalance_classic.BEAT, {"error_code": REBALANCE_IN_PROGRESS}
    )
    key, fields = asked(member.on_answer(told))
    assert (key, fields.member_id, member.share) == (api_keys.JOIN_GROUP, "m1", 0)


def test_a_forgotten_member_joins_as_a_new_one_and_a_refused_one_fails() -> None:
    member = ClassicMember("g", TOPIC, partitions=6)
    member.member_id = "m1"
    member.heartbeat()
    unknown = answered(
        api_keys.HEARTBEAT, rebalance_classic.BEAT, {"error_code": UNKNOWN_MEMBER_ID}
    )
    assert asked(member.on_answer(unknown))[1].member_id == ""
    full = refused(api_keys.JOIN_GROUP, rebalance_classic.JOIN, GROUP_MAX_SIZE_REACHED)
    with pytest.raises(AnswerError, match="GROUP_MAX_SIZE_REACHED"):
        member.on_answer(full)


def test_a_classic_group_is_stable_in_one_generation_with_all_partitions() -> None:
    members = [ClassicMember("g", TOPIC, 6) for _ in range(2)]
    members[0].generation, members[0].share = 4, 3
    members[1].generation, members[1].share = 3, 3
    assert not rebalance_classic.are_stable(members, 6)
    members[1].generation = 4
    assert rebalance_classic.are_stable(members, 6)
    assert not rebalance_classic.are_stable(members, 7)


def test_no_assignment_is_no_share() -> None:
    assert share_in(b"", TOPIC) == 0


def beaten(epoch: int, partitions: list[int] | None, error_code: int = 0) -> bytes:
    owned = [{"topic_id": TOPIC_ID, "partitions": partitions}]
    fields = {
        "error_code": error_code,
        "error_message": None,
        "member_id": None,
        "member_epoch": epoch,
        "heartbeat_interval_ms": 100,
        "assignment": None if partitions is None else {"topic_partitions": owned},
    }
    return answered(api_keys.CONSUMER_GROUP_HEARTBEAT, rebalance_consumer.VERSION, fields)


def test_a_consumer_member_says_at_once_what_it_has_taken() -> None:
    member = ConsumerMember("g", TOPIC)
    _, fields = asked(member.first_request())
    assert (fields.member_epoch, fields.subscribed_topic_names) == (0, [TOPIC])
    assert fields.topic_partitions == []
    _, fields = asked(member.on_answer(beaten(2, [1, 2])))
    assert fields.member_epoch == 2
    assert [(entry.topic_id, entry.partitions) for entry in fields.topic_partitions] == [
        (TOPIC_ID, [1, 2])
    ]
    assert member.on_answer(beaten(3, None)) is None
    assert (member.epoch, member.owned) == (3, 2)
    assert asked(member.heartbeat())[1].topic_partitions is None
    assert asked(member.leave())[1].member_epoch == -1


def test_a_fenced_consumer_member_starts_again() -> None:
    member = ConsumerMember("g", TOPIC)
    member.on_answer(beaten(2, [1, 2]))
    _, fields = asked(member.on_answer(beaten(0, None, FENCED_MEMBER_EPOCH)))
    assert (fields.member_epoch, member.owned) == (0, 0)


def test_a_consumer_group_is_stable_in_one_epoch_with_all_partitions() -> None:
    members = [ConsumerMember("g", TOPIC) for _ in range(2)]
    members[0].on_answer(beaten(5, [0, 1]))
    members[1].on_answer(beaten(4, [2]))
    assert not rebalance_consumer.are_stable(members, 3)
    members[1].on_answer(beaten(5, None))
    assert rebalance_consumer.are_stable(members, 3)
    assert not rebalance_consumer.are_stable(members, 4)
