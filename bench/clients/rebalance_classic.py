"""A group of the classic protocol whose members all join at once, again and again.

Timed from the first JoinGroup until every member holds its share in one generation. The leader
deals out partitions in a row, as the range assignor does.
"""

from __future__ import annotations

import statistics
import struct
from typing import Any

from bench.clients.command import run_as_command
from bench.groups import wait_until_coordinated
from bench.members import Room
from bench.processes import cpu_seconds
from bench.wire import AnswerError, Connection, answer_of, frame
from ottla.protocol import api_keys
from ottla.protocol.error_codes import (
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    name_of,
)

JOIN, SYNC, BEAT, LEAVE = 9, 5, 4, 5
REJOIN = frozenset({MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION})
_TWO_BYTES, _FOUR_BYTES = struct.Struct(">h"), struct.Struct(">i")


class ClassicMember:
    def __init__(self, group: str, topic: str, partitions: int) -> None:
        self.member_id = ""
        self.generation = -1
        self.share = 0
        self._group, self._topic, self._partitions = group, topic, partitions
        self._asked = api_keys.JOIN_GROUP

    def first_request(self) -> bytes:
        return self._join()

    def heartbeat(self) -> bytes:
        return self._request(api_keys.HEARTBEAT, BEAT, self._who())

    def on_answer(self, answer: bytes) -> bytes | None:
        version = {api_keys.JOIN_GROUP: JOIN, api_keys.SYNC_GROUP: SYNC}.get(self._asked, BEAT)
        fields = answer_of(self._asked, version, answer)
        if fields.error_code != NONE:
            return self._on_error(fields)
        if self._asked == api_keys.JOIN_GROUP:
            self.member_id, self.generation = fields.member_id, fields.generation_id
            is_leader = fields.leader == fields.member_id
            return self._sync(fields.members if is_leader else [])
        if self._asked == api_keys.SYNC_GROUP:
            self.share = share_in(fields.assignment, self._topic)
        return None

    def _on_error(self, fields: Any) -> bytes:
        if fields.error_code == UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif fields.error_code == MEMBER_ID_REQUIRED:
            self.member_id = fields.member_id
        elif fields.error_code not in REJOIN:
            raise AnswerError(f"a member got {name_of(fields.error_code)}")
        return self._join()

    def _join(self) -> bytes:
        self.share = 0
        protocol = {"name": "range", "metadata": subscription(self._topic)}
        fields = {
            **self._who(),
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [protocol],
            "reason": None,
        }
        return self._request(api_keys.JOIN_GROUP, JOIN, fields)

    def _sync(self, members: list[Any]) -> bytes:
        each = self._partitions // max(len(members), 1)
        assignments = [
            {
                "member_id": member.member_id,
                "assignment": assignment(self._topic, range(number * each, (number + 1) * each)),
            }
            for number, member in enumerate(members)
        ]
        fields = {
            **self._who(),
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": assignments,
        }
        return self._request(api_keys.SYNC_GROUP, SYNC, fields)

    def _who(self) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": None,
        }

    def _request(self, api_key: int, version: int, fields: dict[str, Any]) -> bytes:
        self._asked = api_key
        return frame(api_key, version, fields)


def subscription(topic: str) -> bytes:
    """ConsumerProtocolSubscription v0."""
    return _TWO_BYTES.pack(0) + _FOUR_BYTES.pack(1) + _name(topic) + _FOUR_BYTES.pack(-1)


def assignment(topic: str, partitions: range) -> bytes:
    """ConsumerProtocolAssignment v0."""
    listed = b"".join(_FOUR_BYTES.pack(number) for number in partitions)
    head = _TWO_BYTES.pack(0) + _FOUR_BYTES.pack(1) + _name(topic)
    return head + _FOUR_BYTES.pack(len(partitions)) + listed + _FOUR_BYTES.pack(-1)


def share_in(assigned: bytes, topic: str) -> int:
    """How many partitions an assignment of one topic has."""
    if not assigned:
        return 0
    (count,) = _FOUR_BYTES.unpack_from(assigned, 2 + 4 + len(_name(topic)))
    return int(count)


def _name(topic: str) -> bytes:
    return _TWO_BYTES.pack(len(topic)) + topic.encode()


def are_stable(members: list[ClassicMember], partitions: int) -> bool:
    generation = members[0].generation
    if any(member.share == 0 or member.generation != generation for member in members):
        return False
    return sum(member.share for member in members) == partitions


def rebalance(
    *, bootstrap: str, pid: int, topic: str, partitions: int, members: int, times: int
) -> dict[str, float]:
    group = f"classic-{topic}"
    wait_until_coordinated(bootstrap, [group], topic)
    room = Room(bootstrap, members)
    took_s, used = [], 0.0
    for _ in range(times):
        joining = [ClassicMember(group, topic, partitions) for _ in range(members)]
        before = cpu_seconds(pid)
        took_s.append(room.run(joining, lambda: are_stable(joining, partitions)))  # noqa: B023
        used += cpu_seconds(pid) - before
        _leave(bootstrap, group, joining)
    room.close()
    return {"rebalance_ms": statistics.median(took_s) * 1e3, "cpu_ms": used / times * 1e3}


def _leave(bootstrap: str, group: str, members: list[ClassicMember]) -> None:
    leaving = [
        {"member_id": member.member_id, "group_instance_id": None, "reason": None}
        for member in members
    ]
    with Connection(bootstrap) as connection:
        fields = {"group_id": group, "members": leaving}
        answer = connection.call(api_keys.LEAVE_GROUP, LEAVE, fields)
    if answer.error_code != NONE:
        raise AnswerError(f"leaving: {name_of(answer.error_code)}")


if __name__ == "__main__":
    run_as_command(rebalance)
