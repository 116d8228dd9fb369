"""DescribeConfigs 1-4: what is set, where that comes from and what it hides, per resource.

A topic's settings are told by any broker, a broker's only by itself. v3 adds type and, if the
client asks for it, documentation.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ProtocolError
from ottla.handlers import broker_loggers
from ottla.handlers.context import Context, Services
from ottla.handlers.controller_answer import Fields
from ottla.metadata import topic_names
from ottla.metadata.config_control import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.metadata.configs.describe import (
    DescribedConfig,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from ottla.metadata.other_resources import describe_client_metrics, describe_group
from ottla.protocol.error_codes import (
    INVALID_REQUEST,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
    message_of,
)

API_KEY = 32
VERSIONS = (1, 4)


def handle(context: Context, request: Any) -> Fields:
    return {
        "throttle_time_ms": 0,
        "results": [_result(context, request, resource) for resource in request.resources],
    }


def _result(context: Context, request: Any, resource: Any) -> Fields:
    fields: Fields = {
        "error_code": NONE,
        "error_message": "",
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [],
    }
    try:
        fields["configs"] = _configs(context.services, request, resource)
    except ProtocolError as error:
        fields["error_code"], fields["error_message"] = error.code, error.message
    return fields


def _configs(services: Services, request: Any, resource: Any) -> list[Fields]:
    if resource.resource_type == BROKER_LOGGER:
        broker_loggers.check_broker_id(services.broker_id, resource.resource_name)
        return broker_loggers.describe(resource.configuration_keys)
    return [
        described.response_fields(
            synonyms=request.include_synonyms, documentation=request.include_documentation
        )
        for described in _describe(
            services, resource.resource_type, resource.resource_name, resource.configuration_keys
        )
    ]


def _describe(
    services: Services, resource_type: int, name: str, keys: list[str] | None
) -> list[DescribedConfig]:
    if resource_type == TOPIC:
        topic_names.validate(name)
        topic = services.image.topics.get(name)
        if topic is None:
            raise ProtocolError(UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(services.config, topic.configs, keys)
    if resource_type == BROKER:
        return _describe_broker(services, name, keys)
    if resource_type == CLIENT_METRICS:
        _check_named(name, "Client metrics subscription")
        return describe_client_metrics(services.image.client_metrics_configs.get(name, {}), keys)
    if resource_type == GROUP:
        _check_named(name, "Group")
        own = services.image.group_configs.get(name, {})
        return describe_group(services.config, own, keys)
    raise ProtocolError(INVALID_REQUEST, message_of(INVALID_REQUEST))


def _describe_broker(
    services: Services, name: str, keys: list[str] | None
) -> list[DescribedConfig]:
    if not name:
        return describe_cluster_default(services.config, keys)
    try:
        broker_id = int(name)
    except ValueError as cause:
        message = f"Broker id must be an integer, but it is: {name}"
        raise ProtocolError(INVALID_REQUEST, message) from cause
    if broker_id != services.broker_id:
        message = (
            f"Unexpected broker id, expected {services.broker_id} or empty string, "
            f"but received {name}"
        )
        raise ProtocolError(INVALID_REQUEST, message)
    return describe_broker(services.config, keys)


def _check_named(name: str, what: str) -> None:
    if not name:
        raise ProtocolError(INVALID_REQUEST, f"{what} name must not be empty")
