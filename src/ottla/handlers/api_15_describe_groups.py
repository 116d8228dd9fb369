"""DescribeGroups 0-6: the members of classic groups and what they were assigned.

v3 and later may ask what the client is allowed to do. An unknown group is "Dead" and no error; v6
and later are told that it is not there.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator.shard import Fields
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

    answers = by_host(context, dict.fromkeys(request.groups), ask, _refused)

    def combine(parts: list[Fields]) -> Fields:
        groups = [group for part in parts for group in part["groups"]]
        for group in groups:
            is_told = request.include_authorized_operations and group["error_code"] == NONE
            group["authorized_operations"] = ON_GROUP if is_told else NOT_ASKED_FOR
        return {"groups": groups}

    return gather(answers, combine)


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
