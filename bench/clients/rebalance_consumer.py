"""A group of the consumer protocol (KIP-848) whose members all join at once, again and again.

Timed from the first heartbeat until every partition is owned and all members have the same epoch.
A member that is told of another assignment takes it at once and says so in its next heartbeat.
"""

from __future__ import annotations

import statistics
import uuid
from typing import Any

from bench.clients.command import run_as_command
from bench.groups import wait_until_coordinated
from bench.members import Room
from bench.processes import cpu_seconds
from bench.wire import AnswerError, Connection, answer_of, frame
from ottla.protocol import api_keys
from ottla.protocol.error_codes import (
    FENCED_MEMBER_EPOCH,
    NONE,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    name_of,
)

VERSION = 1
JOINING, LEAVING = 0, -1
REJOIN = frozenset({FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, UNRELEASED_INSTANCE_ID})


class ConsumerMember:
    def __init__(self, group: str, topic: str) -> None:
        self.member_id = str(uuid.uuid4())
        self.epoch = JOINING
        self.owned = 0
        self._group, self._topic = group, topic

    def first_request(self) -> bytes:
        self.epoch, self.owned = JOINING, 0
        fields = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [self._topic],
            "topic_partitions": [],
        }
        return self._request(fields)

    def heartbeat(self) -> bytes:
        return self._request({})

    def on_answer(self, answer: bytes) -> bytes | None:
        fields = answer_of(api_keys.CONSUMER_GROUP_HEARTBEAT, VERSION, answer)
        if fields.error_code in REJOIN:
            return self.first_request()
        if fields.error_code != NONE:
            raise AnswerError(f"a member got {name_of(fields.error_code)}")
        self.epoch = fields.member_epoch
        if fields.assignment is None:
            return None
        owned = fields.assignment.topic_partitions
        self.owned = sum(len(entry.partitions) for entry in owned)
        told = [{"topic_id": entry.topic_id, "partitions": entry.partitions} for entry in owned]
        return self._request({"topic_partitions": told})

    def leave(self) -> bytes:
        self.epoch = LEAVING
        return self._request({})

    def _request(self, changed: dict[str, Any]) -> bytes:
        """What has not changed since the last heartbeat is left out."""
        fields = {
            "group_id": self._group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }
        return frame(api_keys.CONSUMER_GROUP_HEARTBEAT, VERSION, fields | changed)


def are_stable(members: list[ConsumerMember], partitions: int) -> bool:
    epoch = members[0].epoch
    if any(member.owned == 0 or member.epoch != epoch for member in members):
        return False
    return sum(member.owned for member in members) == partitions


def rebalance(
    *, bootstrap: str, pid: int, topic: str, partitions: int, members: int, times: int
) -> dict[str, float]:
    took_s, used = [], 0.0
    room = Room(bootstrap, members)
    for number in range(times):
        # A group of its own each time: an empty group would still remember its epochs.
        group = f"consumer-{topic}-{number}-{uuid.uuid4()}"
        wait_until_coordinated(bootstrap, [group], topic)
        joining = [ConsumerMember(group, topic) for _ in range(members)]
        before = cpu_seconds(pid)
        took_s.append(room.run(joining, lambda: are_stable(joining, partitions)))  # noqa: B023
        used += cpu_seconds(pid) - before
        with Connection(bootstrap) as connection:
            for member in joining:
                connection.exchange(member.leave())
    room.close()
    return {"rebalance_ms": statistics.median(took_s) * 1e3, "cpu_ms": used / times * 1e3}


if __name__ == "__main__":
    run_as_command(rebalance)
