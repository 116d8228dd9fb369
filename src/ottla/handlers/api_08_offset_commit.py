"""OffsetCommit 2-10: how far a group has read.

v2 to v4 may ask for a retention of their own, v6 adds the leader epoch, v7 static members, v9 the
member epochs of KIP-848, v10 names topics by id.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator.offset_commits import refused_commit
from ottla.coordinator.shard import Fields
from ottla.handlers.commit_route import learn
from ottla.handlers.context import Context
from ottla.handlers.group_requests import Answer, caller_of, decide

API_KEY = 8
VERSIONS = (2, 10)


def handle(context: Context, request: Any) -> Answer:
    caller = caller_of(context)

    def refused(code: int) -> Fields:
        return refused_commit(context.services.image, request, caller.api_version, code)

    answer = decide(
        context,
        request.group_id,
        lambda shard: shard.commit_offsets(request, caller),
        refused,
    )
    if not isinstance(answer, Deferred):
        learn(context, request, answer, caller)
    return answer
