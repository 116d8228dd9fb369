"""ListConfigResources 0-1: which resources have settings. v0 knows client metrics only."""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields
from ottla.metadata.config_control import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.metadata.image import MetadataImage
from ottla.protocol.error_codes import NONE, UNSUPPORTED_VERSION

API_KEY = 74
VERSIONS = (0, 1)

ALL_TYPES = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


def handle(context: Context, request: Any) -> Fields:
    if context.api_version == 0:
        wanted = {CLIENT_METRICS}
    else:
        wanted = set(request.resource_types or ALL_TYPES)
    if not wanted <= set(ALL_TYPES):
        return _answer(UNSUPPORTED_VERSION, [])
    image = context.services.image
    return _answer(
        NONE,
        [
            {"resource_name": name, "resource_type": resource_type}
            for resource_type in ALL_TYPES
            if resource_type in wanted
            for name in _names(image, resource_type)
        ],
    )


def _names(image: MetadataImage, resource_type: int) -> list[str]:
    if resource_type == TOPIC:
        return list(image.topics)
    if resource_type == CLIENT_METRICS:
        return list(image.client_metrics_configs)
    if resource_type == GROUP:
        return list(image.group_configs)
    return [str(broker_id) for broker_id in image.brokers]


def _answer(code: int, resources: list[Fields]) -> Fields:
    return {"throttle_time_ms": 0, "error_code": code, "config_resources": resources}
