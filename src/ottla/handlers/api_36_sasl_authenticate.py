"""SaslAuthenticate 0-2: refused, as Kafka does where a listener asks for no SASL."""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Context
from ottla.protocol.error_codes import ILLEGAL_SASL_STATE

API_KEY = 36
VERSIONS = (0, 2)


def handle(context: Context, request: Any) -> dict[str, Any]:
    return {
        "error_code": ILLEGAL_SASL_STATE,
        "error_message": "This listener has no SASL to authenticate by.",
        "auth_bytes": b"",
        "session_lifetime_ms": 0,
    }
