"""The controller's decisions about settings: of topics, brokers, client metrics and groups.

What a setting may be is known in `configs`; here is which resource is meant, that each is named
once, and what is written. AlterConfigs replaces all settings of a resource, the incremental one
changes some. Loggers are no metadata: their handler sees to them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.metadata import nodes, other_resources, paths, topic_names
from ottla.metadata.configs import alter, definitions
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.definition import Definitions
from ottla.metadata.decision import Decision, decided
from ottla.metadata.image import MetadataImage
from ottla.metadata.min_in_sync import MinInSyncAfter, check_min_in_sync
from ottla.metadata.store import Check, Operation, Write
from ottla.protocol.error_codes import INVALID_REQUEST, NONE, UNKNOWN_TOPIC_OR_PARTITION

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

_BROKER_ID = re.compile(r"[+-]?[0-9]{1,40}")

Validate = Callable[[Mapping[str, str]], None]


class ConfigChange(NamedTuple):
    """`operations` on one resource; those of AlterConfigs all set something."""

    resource_type: int
    resource_name: str
    operations: Sequence[alter.Operation]


@dataclass(slots=True)
class ConfigResult:
    resource_type: int
    resource_name: str
    error_code: int = NONE
    error_message: str | None = None


class ThisBroker(NamedTuple):
    """Who decides: brokers' settings can be checked only by the broker that they are for."""

    broker_id: int
    config: BrokerConfig


class _Resource(NamedTuple):
    """What is set now, where it is kept, and what it may become."""

    definitions: Definitions
    current: Mapping[str, str]
    path: str
    version: int
    validate: Validate
    checks: tuple[Check, ...] = ()


def decide_incremental_alter_configs(
    image: MetadataImage,
    changes: Sequence[ConfigChange],
    *,
    broker: ThisBroker,
    validate_only: bool = False,
) -> Decision[list[ConfigResult]]:
    results, writes = _decide(image, changes, broker, lambda resource: resource.current)
    return decided(image, [] if validate_only else writes, results)


def decide_alter_configs(
    image: MetadataImage,
    changes: Sequence[ConfigChange],
    *,
    broker: ThisBroker,
    validate_only: bool = False,
) -> Decision[list[ConfigResult]]:
    results, writes = _decide(image, changes, broker, lambda _: {})
    return decided(image, [] if validate_only else writes, results)


def current_broker_config(image: MetadataImage, broker: ThisBroker) -> BrokerConfig:
    """The broker's settings under what `image` has set for it."""
    dynamic = image.broker_configs
    return broker.config.with_dynamic(dynamic.get("", {}), dynamic.get(str(broker.broker_id), {}))


def _decide(
    image: MetadataImage,
    changes: Sequence[ConfigChange],
    broker: ThisBroker,
    base: Callable[[_Resource], Mapping[str, str]],
) -> tuple[list[ConfigResult], list[Operation]]:
    """`base` is what the operations are applied to."""
    times = Counter((change.resource_type, change.resource_name) for change in changes)
    results = []
    writes: list[Operation] = []
    after_all = MinInSyncAfter(image, current_broker_config(image, broker))
    for change in changes:
        key = (change.resource_type, change.resource_name)
        result = ConfigResult(*key)
        results.append(result)
        try:
            _check_once(times[key])
            resource = _find(image, broker, change)
            after = alter.apply_incremental(resource.definitions, base(resource), change.operations)
            resource.validate(after)
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            writes += _writes(resource, after)
            if change.resource_type == TOPIC:
                after_all.topics[change.resource_name] = after
            elif change.resource_type == BROKER and not change.resource_name:
                after_all.cluster_wide = after
    return results, [*writes, *after_all.operations()]


def _check_once(times: int) -> None:
    if times > 1:
        raise ProtocolError(INVALID_REQUEST, "Each resource must appear at most once.")


def _writes(resource: _Resource, after: Mapping[str, str]) -> list[Operation]:
    if after == resource.current:
        return []
    content = nodes.configs(after) if after else None
    return [*resource.checks, Write(resource.path, content, resource.version)]


def _find(image: MetadataImage, broker: ThisBroker, change: ConfigChange) -> _Resource:
    resource_type, name = change.resource_type, change.resource_name
    if resource_type == TOPIC:
        return _topic(image, name)
    if resource_type == BROKER:
        return _broker(image, broker, name, [operation[0] for operation in change.operations])
    if resource_type == CLIENT_METRICS:
        return _client_metrics(image, name)
    if resource_type == GROUP:
        return _group(image, broker, name)
    raise ProtocolError(INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _topic(image: MetadataImage, name: str) -> _Resource:
    if not name:
        raise ProtocolError(INVALID_REQUEST, "Default topic resources are not allowed.")
    topic_names.validate(name)
    topic = image.topics.get(name)
    if topic is None:
        raise ProtocolError(UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return _Resource(
        definitions.TOPIC,
        topic.configs,
        paths.topic_configs(name),
        topic.configs_version,
        alter.validate_topic_configs,
        # Without it the settings of a topic that is deleted meanwhile would come back alone.
        checks=(Check(paths.topic(name), topic.version),),
    )


def _broker(image: MetadataImage, broker: ThisBroker, name: str, named: list[str]) -> _Resource:
    if name:
        check_broker_id(broker.broker_id, name)
        name = str(broker.broker_id)
    current = current_broker_config(image, broker)

    path = paths.broker_configs(name)
    own = image.broker_configs.get(name, {})

    def validate(after: Mapping[str, str]) -> None:
        alter.validate_dynamic_broker_configs(after, bool(name), current=current)
        check_min_in_sync(named, own, after, per_broker=bool(name))

    return _Resource(definitions.BROKER, own, path, image.version_of(path), validate)


def check_broker_id(expected: int, name: str) -> None:
    """A broker's settings are changed at that broker; clients know and go there."""
    if broker_id_in(name, "Node") != expected:
        message = f"Unexpected broker id, expected {expected}, but received {name}"
        raise ProtocolError(INVALID_REQUEST, message)


def broker_id_in(name: str, what: str) -> int:
    """Only digits are a number here, as in Java: Python takes blanks and underscores, too, and
    settings of a broker " 0" are settings of nobody."""
    if _BROKER_ID.fullmatch(name):
        number = int(name)
        if -(1 << 31) <= number < 1 << 31:
            return number
    raise ProtocolError(INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}")


def _client_metrics(image: MetadataImage, name: str) -> _Resource:
    if not name:
        raise ProtocolError(INVALID_REQUEST, "Subscription name can't be empty")
    path = paths.client_metrics_configs(name)
    return _Resource(
        other_resources.CLIENT_METRICS,
        image.client_metrics_configs.get(name, {}),
        path,
        image.version_of(path),
        other_resources.validate_client_metrics,
    )


def _group(image: MetadataImage, broker: ThisBroker, name: str) -> _Resource:
    if not name:
        raise ProtocolError(INVALID_REQUEST, "Default group resources are not allowed.")
    config = current_broker_config(image, broker)
    path = paths.group_configs(name)
    return _Resource(
        other_resources.GROUP,
        image.group_configs.get(name, {}),
        path,
        image.version_of(path),
        lambda after: other_resources.validate_group(config, after),
    )
