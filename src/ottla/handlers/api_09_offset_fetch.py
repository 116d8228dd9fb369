"""OffsetFetch 1-10: where groups have to read on.

Up to v7 it is one group, whose answer stands in the response itself; v8 and later ask for many. v2
and later may ask for everything of a group and have an error of their own; before, each partition
has to carry it. v7 can ask for stable offsets only, v9 names the member, v10 topics by id.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.coordinator.shard import Caller, Fields
from ottla.handlers.answer_budget import entries
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
        return _fetch_many(context, caller, request)
    group = SimpleNamespace(
        group_id=request.group_id, member_id=None, member_epoch=-1, topics=request.topics
    )
    answer = _fetch(context, caller, group, request.require_stable)
    if context.api_version >= GROUP_ERROR_FROM:
        return answer
    return then(answer, lambda fields: _with_errors_in_partitions(fields, request))


def _fetch_many(context: Context, caller: Caller, request: Any) -> Answer:
    # Who asks again for everything of a group is told again, as by Kafka, but it is read once.
    known: dict[object, Answer] = {}
    answers = []
    for group in request.groups:
        key = (group.group_id, group.member_id, group.member_epoch)
        answer = known.get(key) if group.topics is None else None
        if answer is None:
            answer = _fetch(context, caller, group, request.require_stable)
            if group.topics is None:
                known[key] = answer
        answers.append(answer)
    return gather(answers, _combined)


def _combined(groups: list[Fields]) -> Fields:
    budget = entries()
    sizes: dict[int, int] = {}
    for group in groups:
        if id(group) not in sizes:
            topics = group["topics"]
            sizes[id(group)] = 1 + len(topics) + sum(len(one["partitions"]) for one in topics)
        budget.take(sizes[id(group)])
    return {"groups": groups}


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
