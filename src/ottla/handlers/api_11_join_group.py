"""JoinGroup 0-9: a member comes, or comes again.

v0 has one time-out for both phases, v4 and later get their member id first, v5 knows static
members, v7 tells the protocol's type and may leave its name null, v9 can skip the assignment.
"""

from __future__ import annotations

from typing import Any

from ottla.coordinator.classic_group import join_refusal
from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context
from ottla.handlers.group_requests import Answer, caller_of, decide, then
from ottla.protocol.error_codes import INVALID_GROUP_ID

API_KEY = 11
VERSIONS = (0, 9)

NULL_PROTOCOL_FROM = 7


def handle(context: Context, request: Any) -> Answer:
    return then(
        _join(context, request),
        _as_is if context.api_version >= NULL_PROTOCOL_FROM else _without_null,
    )


def _join(context: Context, request: Any) -> Answer:
    if not request.group_id:
        return join_refusal(INVALID_GROUP_ID, request.member_id)
    if context.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    caller = caller_of(context)
    return decide(
        context,
        request.group_id,
        lambda shard: shard.join_group(request, caller),
        lambda code: join_refusal(code, request.member_id),
    )


def _as_is(fields: Fields) -> Fields:
    return fields


def _without_null(fields: Fields) -> Fields:
    return fields if fields["protocol_name"] is not None else fields | {"protocol_name": ""}
