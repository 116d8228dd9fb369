"""OffsetDelete 0: forget offsets of topics that the group no longer reads."""

from __future__ import annotations

from typing import Any

from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context
from ottla.handlers.group_requests import Answer, decide
from ottla.protocol.error_codes import INVALID_GROUP_ID

API_KEY = 47
VERSIONS = (0, 0)


def handle(context: Context, request: Any) -> Answer:
    if not request.group_id:
        return _refused(INVALID_GROUP_ID)
    return decide(context, request.group_id, lambda shard: shard.delete_offsets(request), _refused)


def _refused(code: int) -> Fields:
    return {"error_code": code, "topics": []}
