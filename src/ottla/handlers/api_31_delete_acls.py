"""DeleteAcls 1-3 (v2 flexible, v3 user resources): each is refused, as there is no authorizer."""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Context
from ottla.protocol.error_codes import SECURITY_DISABLED, message_of

API_KEY = 31
VERSIONS = (1, 3)


def handle(context: Context, request: Any) -> dict[str, Any]:
    refusal = {
        "error_code": SECURITY_DISABLED,
        "error_message": message_of(SECURITY_DISABLED),
        "matching_acls": [],
    }
    return {"throttle_time_ms": 0, "filter_results": [refusal for _ in request.filters]}
