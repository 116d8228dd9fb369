"""OffsetFetch 1-10: where groups have to read on.

Up to v7 it is one group, whose answer stands in the response itself; v8 and later ask for many. v2
and later may ask for everything of a group and have an error of their own; before, each partition
has to carry it. v7 can ask for stable offsets only, v9 names the member, v10 topics by id.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.coordinator.shard import Caller, Fields
from ottla.handlers.context import Context
from ottla.handlers.group_requests import Answer, caller_of, gather, look, then
from ottla.protocol.error_codes import NONE

API_KEY = 9
VERSIONS = (1, 10)

MANY_GROUPS_FROM = 8
GROUP_ERROR_FROM = 2


def handle(context: Context, request: Any) -> Answer:
    caller = caller_of(context)
    if context.api_version >= MANY_GROUPS_FROM:
        answers = [_fetch(context, caller, one, request.require_stable) for one in request.groups]
        return gather(answers, lambda groups: {"groups": groups})
    group = SimpleNamespace(
        group_id=request.group_id, member_id=None, member_epoch=-1, topics=request.topics
    )
    answer = _fetch(context, caller, group, request.require_stable)
    if context.api_version >= GROUP_ERROR_FROM:
        return answer
    return then(answer, lambda fields: _with_errors_in_partitions(fields, request))


def _fetch(context: Context, caller: Caller, group: Any, require_stable: bool) -> Answer:
    return look(
        context,
        group.group_id,
        lambda shard: shard.fetch_offsets(group, caller, require_stable=require_stable),
        lambda code: {"group_id": group.group_id, "error_code": code, "topics": []},
    )


def _with_errors_in_partitions(fields: Fields, request: Any) -> Fields:
    code = fields["error_code"]
    if code == NONE:
        return fields
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": -1,
                    "metadata": "",
                    "error_code": code,
                }
                for index in topic.partition_indexes
            ],
        }
        for topic in request.topics
    ]
    return {"topics": topics}
