"""SyncGroup 0-5: the leader brings the assignment, everybody else waits for theirs.

From v5 on a member says which protocol it takes the group's to be.
"""

from __future__ import annotations

from typing import Any

from ottla.coordinator.classic_rebalance import sync_refusal
from ottla.handlers.context import Context
from ottla.handlers.group_requests import Answer, caller_of, decide
from ottla.protocol.error_codes import INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID

API_KEY = 14
VERSIONS = (0, 5)

PROTOCOL_FROM = 5


def handle(context: Context, request: Any) -> Answer:
    if context.api_version >= PROTOCOL_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return sync_refusal(INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return sync_refusal(INVALID_GROUP_ID)
    caller = caller_of(context)
    return decide(
        context, request.group_id, lambda shard: shard.sync_group(request, caller), sync_refusal
    )
