"""Heartbeat 0-4: a member of a classic group is alive, and asks whether it has to join again."""

from __future__ import annotations

from typing import Any

from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context
from ottla.handlers.group_requests import Answer, caller_of, decide
from ottla.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID, NONE

API_KEY = 12
VERSIONS = (0, 4)


def handle(context: Context, request: Any) -> Answer:
    if not request.group_id:
        return _refused(INVALID_GROUP_ID)
    caller = caller_of(context)
    return decide(
        context, request.group_id, lambda shard: shard.heartbeat(request, caller), _refused
    )


def _refused(code: int) -> Fields:
    # While the group is loaded its members are as good as heard of: their sessions begin after it.
    return {"error_code": NONE if code == COORDINATOR_LOAD_IN_PROGRESS else code}
