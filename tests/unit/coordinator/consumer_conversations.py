"""What is asked in the conversations that were held with Apache Kafka 4.3.1 about consumer groups.

Each conversation is a list of steps in order: an API key, a version and the fields of a request.
`$id:NAME` stands for the id of topic NAME, `$group` for the group, which has a name of its own in
every conversation, `$member` for the id that the last classic member got, and NOW, NOW + 1 and the
like for the epoch that the member was told last. Answers are in `consumer_answers.jsonl`, one line
a step; what is new in every run (ids that the broker makes, times) is left out of them.

The broker's settings for it are SETTINGS: one assignment follows the other at once, and no more
than five members are let in.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.size": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
TOPICS = {"one": 1, "four": 4, "six": 6}

OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
BEAT, DESCRIBE = 68, 69

ANSWERS = Path(__file__).with_name("consumer_answers.jsonl")

# As an epoch: the one that the member was told last. Far from any real one.
NOW = 1_000_000

Fields = dict[str, Any]


class Step(NamedTuple):
    """`wait_ms` passes before it; `title` says what is to be seen."""

    title: str
    api_key: int
    version: int
    request: Fields
    wait_ms: int = 0


def beat(title: str, member: str, epoch: int, *, version: int = 1, **fields: Any) -> Step:
    wait_ms = fields.pop("wait_ms", 0)
    request = {"group_id": "$group", "member_id": member, "member_epoch": epoch, **fields}
    return Step(title, BEAT, version, {**QUIET, **request}, wait_ms)


def join(title: str, member: str, *topics: str, version: int = 1, **fields: Any) -> Step:
    names = list(topics) if "subscribed_topic_regex" not in fields else None
    begin = {"rebalance_timeout_ms": 5000, "topic_partitions": []}
    request = {**begin, "subscribed_topic_names": names, **fields}
    return beat(title, member, request.pop("epoch", 0), version=version, **request)


QUIET: Fields = {
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout_ms": -1,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}


def owns(**partitions: Iterable[int]) -> list[Fields]:
    return [
        {"topic_id": f"$id:{topic}", "partitions": list(indexes)}
        for topic, indexes in partitions.items()
    ]


def describe(title: str, *groups: str, version: int = 1) -> Step:
    request = {"group_ids": list(groups or ("$group",)), "include_authorized_operations": False}
    return Step(title, DESCRIBE, version, request)


def commit(title: str, member: str, epoch: int, *places: str, version: int = 9) -> Step:
    """Commits offset 7 for each place, such as four-2."""
    by_topic: dict[str, list[Fields]] = {}
    for place in places:
        topic, _, index = place.partition("-")
        partition = {
            "partition_index": int(index),
            "committed_offset": 7,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        by_topic.setdefault(topic, []).append(partition)
    request = {
        "group_id": "$group",
        "generation_id_or_member_epoch": epoch,
        "member_id": member,
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [
            {"name": topic, "topic_id": f"$id:{topic}", "partitions": partitions}
            for topic, partitions in by_topic.items()
        ],
    }
    return Step(title, OFFSET_COMMIT, version, request)


def fetch(title: str, member: str | None, epoch: int, *, version: int = 9) -> Step:
    topic = {"name": "four", "partition_indexes": [2]}
    group = {
        "group_id": "$group",
        "member_id": member,
        "member_epoch": epoch,
        "topics": [topic],
    }
    return Step(title, OFFSET_FETCH, version, {"groups": [group], "require_stable": False})


# -- classic members ----------------------------------------------------------------------------


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def assignment(topic: str, *indexes: int, user_data: bytes | None = None) -> bytes:
    held = _text(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    extra = (
        b"\xff\xff\xff\xff" if user_data is None else struct.pack(">i", len(user_data)) + user_data
    )
    return struct.pack(">hi", 3, 1) + held + extra


def classic_join(title: str, member: str, metadata: bytes, **fields: Any) -> Step:
    version = fields.pop("version", 9)
    names = fields.pop("protocols", ("range",))
    request = {
        "group_id": "$group",
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 6000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": name, "metadata": metadata} for name in names],
        "reason": None,
        **fields,
    }
    return Step(title, JOIN_GROUP, version, request)


def classic_sync(
    title: str,
    member: str,
    generation: int,
    given: Mapping[str, bytes] | None = None,
    **fields: Any,
) -> Step:
    request = {
        "group_id": "$group",
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [
            {"member_id": one, "assignment": held} for one, held in (given or {}).items()
        ],
        **fields,
    }
    return Step(title, SYNC_GROUP, 5, request)


def classic_beat(title: str, member: str, generation: int, **fields: Any) -> Step:
    request = {
        "group_id": "$group",
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": None,
        **fields,
    }
    return Step(title, HEARTBEAT, 4, request)


def classic_leave(title: str, *members: tuple[str, str | None]) -> Step:
    request = {
        "group_id": "$group",
        "members": [
            {"member_id": member, "group_instance_id": instance, "reason": None}
            for member, instance in members
        ],
    }
    return Step(title, LEAVE_GROUP, 5, request)


def describe_classic(title: str, *, version: int = 6) -> Step:
    request = {"groups": ["$group"], "include_authorized_operations": False}
    return Step(title, DESCRIBE_GROUPS, version, request)


def list_groups(title: str, kinds: Iterable[str] = (), states: Iterable[str] = ()) -> Step:
    """Of all that are listed, the answer keeps the conversation's own group only."""
    request = {"states_filter": list(states), "types_filter": list(kinds)}
    return Step(title, LIST_GROUPS, 5, request)


def delete_group(title: str) -> Step:
    return Step(title, DELETE_GROUPS, 2, {"groups_names": ["$group"]})


def delete_offset(title: str, topic: str) -> Step:
    request = {
        "group_id": "$group",
        "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}],
    }
    return Step(title, OFFSET_DELETE, 0, request)


# -- answers --------------------------------------------------------------------------------------

# Values that differ from run to run, by field; and lists whose order says nothing.
_VOLATILE = {"throttle_time_ms", "topic_id_to_name"}
_SORT_BY = ("topic_id", "topic_name", "name", "member_id", "partition_index", "group_id")


def told(answer: Any, names: Mapping[str, str], group_id: str) -> Any:
    """A decoded answer as it is kept: ids by their names, bytes as hex, lists in order.

    `names` has the ids of topics as text.
    """
    if isinstance(answer, Mapping):
        return {
            key: told(value, names, group_id)
            for key, value in answer.items()
            if key not in _VOLATILE
        }
    if isinstance(answer, list | tuple):
        listed = [told(one, names, group_id) for one in answer]
        return sorted(listed, key=_order)
    if isinstance(answer, bytes | memoryview):
        return bytes(answer).hex()
    if answer is None or isinstance(answer, bool | int):
        return answer
    text = str(answer)
    return f"$id:{names[text]}" if text in names else text.replace(group_id, "$group")


def _order(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps([value.get(key) for key in _SORT_BY])
    return json.dumps(value) if not isinstance(value, int) else f"{value:09}"


def asked(request: Any, ids: Mapping[str, Any], group_id: str) -> Any:
    """The fields of a request with ids and names in place."""
    if isinstance(request, Mapping):
        return {key: asked(value, ids, group_id) for key, value in request.items()}
    if isinstance(request, list):
        return [asked(one, ids, group_id) for one in request]
    if isinstance(request, str) and request.startswith("$id:"):
        return ids[request[4:]]
    return request.replace("$group", group_id) if isinstance(request, str) else request


class Progress:
    """What a conversation has to remember: epochs that were told, the id that was given."""

    def __init__(self, ids: Mapping[str, Any], group_id: str) -> None:
        self._ids = ids
        self._names = {str(topic_id): name for name, topic_id in ids.items()}
        self._group_id = group_id
        self._member_id = ""
        self._epochs: dict[str, int] = {}

    def request(self, step: Step) -> Fields:
        request = self._with_member(asked(step.request, self._ids, self._group_id))
        for one in (request, *request.get("groups", [])):
            for name in ("member_epoch", "generation_id", "generation_id_or_member_epoch"):
                if isinstance(one, dict) and one.get(name, 0) > NOW // 2:
                    one[name] += self._epochs[one["member_id"]] - NOW
        return request  # type: ignore[no-any-return]

    def answer(self, step: Step, answer: Fields) -> Any:
        """As it is kept."""
        member_id = answer.get("member_id")
        if member_id and not answer["error_code"]:
            told_as = "member_epoch" if "member_epoch" in answer else "generation_id"
            self._epochs[member_id] = int(answer[told_as])
            if step.api_key == JOIN_GROUP:
                self._member_id = member_id
        kept = told(_of_group(answer, self._group_id), self._names, self._group_id)
        return self._without_member(kept, member_id if step.api_key == JOIN_GROUP else None)

    def _with_member(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._with_member(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._with_member(one) for one in value]
        return self._member_id if value == "$member" else value

    def _without_member(self, value: Any, new: str | None) -> Any:
        if isinstance(value, Mapping):
            return {key: self._without_member(one, new) for key, one in value.items()}
        if isinstance(value, list):
            return [self._without_member(one, new) for one in value]
        if isinstance(value, str):
            for member_id in filter(None, (self._member_id, new)):
                value = value.replace(member_id, "$member")
        return value


def _of_group(answer: Fields, group_id: str) -> Fields:
    """ListGroups tells of all groups."""
    groups = answer.get("groups")
    if not groups or "group_type" not in groups[0]:
        return answer
    return {**answer, "groups": [one for one in groups if one["group_id"] == group_id]}


def recorded() -> dict[tuple[str, int], Any]:
    """Answers by conversation and number of the step."""
    lines = [json.loads(line) for line in ANSWERS.read_text().splitlines()]
    return {(line["conversation"], line["step"]): line["answer"] for line in lines}
