"""The settings in force for one topic: its own, else the broker's, as the log wants them.

Owns the way from the texts of overrides to a LogConfig. Never decides whether a change is allowed:
that is `alter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields

from ottla.base.errors import ConfigError, check
from ottla.log.log_config import LogConfig
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.definitions import BROKER_DEFAULT_OF_TOPIC, TOPIC
from ottla.metadata.configs.values import ConfigValue

_SEGMENT_BYTES_STAND_IN = "internal.segment.bytes"
_NAMES = {field.name: field.name.replace("_", ".") for field in fields(LogConfig)}
check(all(name in TOPIC.by_name for name in _NAMES.values()), "LogConfig has a field of no topic")


def effective_log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Unknown names are left aside, and so are overrides that cannot be taken."""
    values = {field: effective_value(config, overrides, name) for field, name in _NAMES.items()}
    policy = values["cleanup_policy"]
    values["cleanup_policy"] = frozenset(policy)  # type: ignore[arg-type, assignment]
    stand_in = effective_value(config, overrides, _SEGMENT_BYTES_STAND_IN)
    if stand_in is not None:
        values["segment_bytes"] = stand_in
    return LogConfig(**values)  # type: ignore[arg-type]


def effective_value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> ConfigValue:
    """What the topic setting `name` is for a topic with these overrides.

    Changes were checked when they were made. What a store still brings that cannot be taken
    (another version wrote it) must not keep a broker down: it counts as not set.
    """
    definition = TOPIC.by_name[name]
    if name in overrides:
        with suppress(ConfigError):
            return definition.parse(overrides[name])
    broker_name = BROKER_DEFAULT_OF_TOPIC.get(name)
    return definition.default if broker_name is None else config.effective_value(broker_name)


def refused_overrides(overrides: Mapping[str, str]) -> list[str]:
    """What is wrong with those that cannot be taken, for whoever tells people."""
    refusals = []
    for name, text in overrides.items():
        definition = TOPIC.find(name)
        try:
            if definition is not None:
                definition.parse(text)
        except ConfigError as error:
            refusals.append(str(error))
    return refusals
