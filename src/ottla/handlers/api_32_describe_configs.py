"""DescribeConfigs 1-4: what is set, where that comes from and what it hides, per resource.

A topic's settings are told by any broker, a broker's only by itself. v3 adds type and, if the
client asks for it, documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError
from ottla.handlers import broker_loggers
from ottla.handlers.answer_budget import encoded_bytes
from ottla.handlers.config_pieces import ConfigPieces
from ottla.handlers.context import Context, Services
from ottla.handlers.controller_answer import Fields
from ottla.handlers.reply import Part, Reply
from ottla.metadata import topic_names
from ottla.metadata.config_control import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    broker_id_in,
)
from ottla.metadata.configs.broker_config import BrokerConfig
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


# Settings that are described in one turn of the loop; the rest waits until others had theirs.
SETTINGS_PER_TURN = 1_000
# What it costs to begin with a resource, in settings: also those that are not wanted are looked at.
SETTINGS_PER_RESOURCE = 100
# An answer as small as this is sent in one piece.
JOINED_BYTES_MAX = 64 * 1024


def handle(context: Context, request: Any) -> Reply | Deferred[Reply]:
    return _Description(context, request).begin()


class _Description:
    """One answer in the making. Resources with the same settings share their encoded piece, so
    ten thousand topics cost little more than one, and a resource that is named again nothing."""

    def __init__(self, context: Context, request: Any) -> None:
        self._services = context.services
        self._request = request
        self._pieces = ConfigPieces(context.api_version)
        self._budget = encoded_bytes()
        self._no_settings = self._pieces.settings([])
        self._known: dict[object, bytes] = {}
        self._parts: list[Part] = []
        self._size = 0
        self._next = 0
        self._answer: Deferred[Reply] = Deferred()

    def begin(self) -> Reply | Deferred[Reply]:
        self._put(self._pieces.begin(len(self._request.resources)))
        if self._described():
            return self._reply()
        self._services.soon(self._go_on)
        return self._answer

    def _go_on(self) -> None:
        try:
            is_done = self._described()
        except OttlaError as refused:
            self._answer.fail(refused)
            return
        if is_done:
            self._answer.resolve(self._reply())
        else:
            self._services.soon(self._go_on)

    def _described(self) -> bool:
        """Goes on for one turn; whether that was all."""
        resources = self._request.resources
        left = SETTINGS_PER_TURN
        while self._next < len(resources):
            if left <= 0:
                return False
            left -= self._add(resources[self._next])
            self._next += 1
        self._put(self._pieces.end())
        return True

    def _add(self, resource: Any) -> int:
        """What it has cost, in settings."""
        fields: Fields = {
            "error_code": NONE,
            "error_message": "",
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }
        settings, cost = self._no_settings, 1
        try:
            settings, cost = self._settings(resource)
        except ProtocolError as error:
            fields["error_code"], fields["error_message"] = error.code, error.message
        self._put(self._pieces.head(fields))
        self._put(settings)
        return cost

    def _put(self, piece: bytes) -> None:
        self._budget.take(len(piece))
        self._parts.append(piece)
        self._size += len(piece)

    def _settings(self, resource: Any) -> tuple[bytes, int]:
        kind, name, keys = (
            resource.resource_type,
            resource.resource_name,
            resource.configuration_keys,
        )
        own = _own_settings(self._services, kind, name)
        is_of_all_brokers = kind == BROKER and not name
        key = kind, is_of_all_brokers, frozenset(own.items()), tuple(keys or ())
        known = self._known.get(key)
        if known is not None:
            return known, 1
        if kind == BROKER_LOGGER:
            configs = broker_loggers.describe(keys)
        else:
            request = self._request
            configs = [
                described.response_fields(
                    synonyms=request.include_synonyms, documentation=request.include_documentation
                )
                for described in _describe(self._services.config, kind, name, own, keys)
            ]
        encoded = self._known[key] = self._pieces.settings(configs)
        return encoded, SETTINGS_PER_RESOURCE + len(configs)

    def _reply(self) -> Reply:
        if self._size <= JOINED_BYTES_MAX:
            return Reply([b"".join(cast("list[bytes]", self._parts))], self._size)
        return Reply(self._parts, self._size)


def _own_settings(services: Services, resource_type: int, name: str) -> Mapping[str, str]:
    """What is set for the resource itself. ProtocolError if it can not be described here."""
    if resource_type == TOPIC:
        topic_names.validate(name)
        topic = services.image.topics.get(name)
        if topic is None:
            raise ProtocolError(UNKNOWN_TOPIC_OR_PARTITION)
        return topic.configs
    if resource_type == BROKER:
        _check_broker(services.broker_id, name)
        return {}
    if resource_type == BROKER_LOGGER:
        broker_loggers.check_broker_id(services.broker_id, name)
        return {}
    if resource_type == CLIENT_METRICS:
        _check_named(name, "Client metrics subscription")
        return services.image.client_metrics_configs.get(name, {})
    if resource_type == GROUP:
        _check_named(name, "Group")
        return services.image.group_configs.get(name, {})
    raise ProtocolError(INVALID_REQUEST, message_of(INVALID_REQUEST))


def _describe(
    config: BrokerConfig,
    resource_type: int,
    name: str,
    own: Mapping[str, str],
    keys: list[str] | None,
) -> list[DescribedConfig]:
    if resource_type == TOPIC:
        return describe_topic(config, own, keys)
    if resource_type == CLIENT_METRICS:
        return describe_client_metrics(own, keys)
    if resource_type == GROUP:
        return describe_group(config, own, keys)
    return describe_broker(config, keys) if name else describe_cluster_default(config, keys)


def _check_broker(broker_id: int, name: str) -> None:
    if not name:
        return
    if broker_id_in(name, "Broker") != broker_id:
        message = f"Unexpected broker id, expected {broker_id} or empty string, but received {name}"
        raise ProtocolError(INVALID_REQUEST, message)


def _check_named(name: str, what: str) -> None:
    if not name:
        raise ProtocolError(INVALID_REQUEST, f"{what} name must not be empty")
