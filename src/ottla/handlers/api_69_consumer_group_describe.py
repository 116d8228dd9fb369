"""ConsumerGroupDescribe 0-1: a consumer group's epochs, its members, what they have and will have.

v1 tells which members speak the classic protocol. Groups of other kinds are not found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator.consumer_groups import describe_refusal
from ottla.coordinator.shard import Fields
from ottla.handlers.answer_budget import entries
from ottla.handlers.api_15_describe_groups import ON_GROUP
from ottla.handlers.api_68_consumer_group_heartbeat import is_enabled
from ottla.handlers.authorized_operations import NOT_ASKED_FOR
from ottla.handlers.context import Context, GroupHost
from ottla.handlers.group_requests import Answer, by_host, gather
from ottla.protocol.error_codes import INVALID_GROUP_ID, NONE, UNSUPPORTED_VERSION

API_KEY = 69
VERSIONS = (0, 1)


def handle(context: Context, request: Any) -> Answer:
    if not is_enabled(context):
        refused = [describe_refusal(one, UNSUPPORTED_VERSION) for one in request.group_ids]
        return _combined([{"groups": refused}], is_asked=False, times={})
    nameless = [describe_refusal(one, INVALID_GROUP_ID) for one in request.group_ids if not one]
    # One that is named again is told again, as by Kafka, but described once.
    named = Counter(filter(None, request.group_ids))
    answers = by_host(context, named, _ask, describe_refusal)
    is_asked = request.include_authorized_operations
    return gather(
        [{"groups": nameless}, *answers],
        lambda parts: _combined(parts, is_asked=is_asked, times=named),
    )


def _ask(host: GroupHost, group_ids: list[str]) -> Deferred[list[Fields]]:
    return host.read(lambda shard: shard.describe_consumer_groups(group_ids))


def _combined(parts: list[Fields], *, is_asked: bool, times: Mapping[str, int]) -> Fields:
    budget = entries()
    groups = []
    for group in (group for part in parts for group in part["groups"]):
        is_told = is_asked and group["error_code"] == NONE
        group["authorized_operations"] = ON_GROUP if is_told else NOT_ASKED_FOR
        count = times.get(group["group_id"], 1)
        budget.take(count * (1 + sum(map(_entries_of, group["members"]))))
        groups += [group] * count
    return {"groups": groups}


def _entries_of(member: Fields) -> int:
    """The member, and the topics that it has and will have."""
    both = (member["assignment"], member["target_assignment"])
    return 1 + sum(len(one["topic_partitions"]) for one in both)
