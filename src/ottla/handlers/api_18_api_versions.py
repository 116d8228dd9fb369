"""ApiVersions 0-4: what this broker serves; the first request of almost every connection.

v3 flexible, names the client's software and tells features (KIP-584, KIP-511); v4 tells features
that begin at level 0, which clients of v3 can not take (KAFKA-17011). A version that is not served
is answered in the form of v0, so that every client can read it and ask again.
"""

from __future__ import annotations

import re
from typing import Any

from ottla.handlers.context import Context
from ottla.handlers.registry import ADVERTISED_HIGHEST, SERVED
from ottla.metadata import features
from ottla.protocol.error_codes import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION

API_KEY = 18
VERSIONS = (0, 4)

FIRST_VERSION_WITH_SOFTWARE_NAME = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4
# How ottla.client names itself. It prepares transactions, which needs InitProducerId 6.
OWN_CLIENT = "ottla"

Fields = dict[str, Any]

# Ends in a letter or digit, as it begins; what is between is looked at once, whatever it is.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?", re.ASCII)


def handle(context: Context, request: Any) -> Fields:
    version = context.api_version
    if version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not _is_named_well(request):
        return {"error_code": INVALID_REQUEST, "api_keys": [], "throttle_time_ms": 0}
    services = context.services
    return {
        "error_code": NONE,
        "api_keys": _ranges(_apis(context, request)),
        "throttle_time_ms": 0,
        "supported_features": _supported_features(version),
        "finalized_features_epoch": features.finalized_epoch(services.image),
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in features.finalized_features(services.image).items()
        ],
    }


def _apis(context: Context, request: Any) -> list[tuple[int, int, int]]:
    """What is advertised; to our own client also what others would take for unstable."""
    apis = context.services.supported_apis(context.listener_name)
    if request.client_software_name != OWN_CLIENT:
        return apis
    return [
        (key, lowest, SERVED[key][2] if key in ADVERTISED_HIGHEST else highest)
        for key, lowest, highest in apis
    ]


def unsupported_version_response() -> Fields:
    """The answer to a version that is not served; to be encoded as version 0."""
    return {"error_code": UNSUPPORTED_VERSION, "api_keys": _ranges([(API_KEY, *VERSIONS)])}


def _is_named_well(request: Any) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) is not None for name in names)


def _ranges(apis: list[tuple[int, int, int]]) -> list[Fields]:
    return [
        {"api_key": api_key, "min_version": lowest, "max_version": highest}
        for api_key, lowest, highest in apis
    ]


def _supported_features(version: int) -> list[Fields]:
    return [
        {"name": name, "min_version": lowest, "max_version": highest}
        for name, (lowest, highest) in features.SUPPORTED.items()
        if lowest > 0 or version >= FIRST_VERSION_WITH_LEVEL_ZERO
    ]
