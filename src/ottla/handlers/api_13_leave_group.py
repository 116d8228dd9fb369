"""LeaveGroup 0-5: members go. v3 and later name many at once, static ones by their instance id."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context
from ottla.handlers.group_requests import Answer, caller_of, decide, then
from ottla.protocol.error_codes import INVALID_GROUP_ID, NONE

API_KEY = 13
VERSIONS = (0, 5)

MANY_MEMBERS_FROM = 3


def handle(context: Context, request: Any) -> Answer:
    if not request.group_id:
        return _refused(INVALID_GROUP_ID)
    caller = caller_of(context)
    many = context.api_version >= MANY_MEMBERS_FROM
    if not many:
        request.members = [
            SimpleNamespace(member_id=request.member_id, group_instance_id=None, reason=None)
        ]
    answer = decide(
        context, request.group_id, lambda shard: shard.leave_group(request, caller), _refused
    )
    return answer if many else then(answer, _of_one)


def _refused(code: int) -> Fields:
    return {"error_code": code, "members": []}


def _of_one(fields: Fields) -> Fields:
    """Where there is one member only, its error is the response's."""
    code = fields["error_code"]
    if code == NONE and fields["members"]:
        code = fields["members"][0]["error_code"]
    return {"error_code": code}
