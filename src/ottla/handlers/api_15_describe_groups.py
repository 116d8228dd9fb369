"""DescribeGroups 0-6: the members of classic groups and what they were assigned.

v3 and later may ask what the client is allowed to do. An unknown group is "Dead" and no error; v6
and later are told that it is not there.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator.shard import Fields
from ottla.handlers.answer_budget import encoded_bytes, entries
from ottla.handlers.authorized_operations import (
    ALTER_CONFIGS,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    NOT_ASKED_FOR,
    READ,
)
from ottla.handlers.context import Context, GroupHost
from ottla.handlers.group_requests import Answer, by_host, caller_of, gather
from ottla.protocol.error_codes import NONE

API_KEY = 15
VERSIONS = (0, 6)

ON_GROUP = sum(
    1 << operation for operation in (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
)


def handle(context: Context, request: Any) -> Answer:
    caller = caller_of(context)

    def ask(host: GroupHost, group_ids: list[str]) -> Deferred[list[Fields]]:
        return host.read(lambda shard: shard.describe_groups(group_ids, caller))

    # One that is named again is told again, as by Kafka, but described once.
    named = Counter(request.groups)
    answers = by_host(context, named, ask, _refused)

    def combine(parts: list[Fields]) -> Fields:
        budgets = entries(), encoded_bytes()
        groups = []
        for group in (group for part in parts for group in part["groups"]):
            is_told = request.include_authorized_operations and group["error_code"] == NONE
            group["authorized_operations"] = ON_GROUP if is_told else NOT_ASKED_FOR
            count = named[group["group_id"]]
            for budget, size in zip(budgets, _sizes(group), strict=True):
                budget.take(count * size)
            groups += [group] * count
        return {"groups": groups}

    return gather(answers, combine)


def _sizes(group: Fields) -> tuple[int, int]:
    """Its entries, and the bytes that its members chose: an assignment may be large."""
    members = group["members"]
    chosen = sum(len(one["member_metadata"]) + len(one["member_assignment"]) for one in members)
    return 1 + len(members), chosen


def _refused(group_id: str, code: int) -> Fields:
    return {
        "error_code": code,
        "error_message": None,
        "group_id": group_id,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }
