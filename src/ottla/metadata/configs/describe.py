"""What DescribeConfigs tells of a setting: its value, where that comes from, and what it hides.

Pure translation of a BrokerConfig and a topic's overrides; which resource was meant, and who may
see it, is the handler's. Sources, the order of synonyms and their oddities are those of Kafka 4.3:
synonyms are listed only from the first one under the asked name on, so retention.ms counts as a
default although log.retention.hours was set in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.definition import READ_ONLY, ConfigDefinition
from ottla.metadata.configs.definitions import (
    BROKER,
    BROKER_DEFAULT_OF_TOPIC,
    TOPIC,
    broker_synonyms,
    find_broker_definition,
)
from ottla.metadata.configs.effective import effective_value
from ottla.metadata.configs.values import ConfigValue

DYNAMIC_TOPIC = 1
DYNAMIC_BROKER = 2
DYNAMIC_DEFAULT_BROKER = 3
STATIC_BROKER = 4
DEFAULT = 5

_UNKNOWN_TYPE = 0


@dataclass(slots=True)
class Synonym:
    name: str
    value: str | None
    source: int


@dataclass(slots=True)
class DescribedConfig:
    name: str
    value: str | None
    read_only: bool
    is_default: bool
    config_source: int
    is_sensitive: bool
    synonyms: list[Synonym]
    config_type: int
    documentation: str | None

    def response_fields(self, *, synonyms: bool, documentation: bool) -> dict[str, Any]:
        """As the response schema has them; a client may ask to be spared the long parts."""
        return {
            "name": self.name,
            "value": self.value,
            "read_only": self.read_only,
            "is_default": self.is_default,
            "config_source": self.config_source,
            "is_sensitive": self.is_sensitive,
            "synonyms": [
                {"name": synonym.name, "value": synonym.value, "source": synonym.source}
                for synonym in (self.synonyms if synonyms else ())
            ],
            "config_type": self.config_type,
            "documentation": self.documentation if documentation else None,
        }


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """All settings of a topic with these overrides, or those of `names` that there are."""
    return [
        _describe_topic_setting(config, overrides, definition)
        for name, definition in sorted(TOPIC.by_name.items())
        if _wanted(name, names) and (not definition.hidden or name in overrides)
    ]


def describe_broker(
    config: BrokerConfig, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """All settings of the broker that runs with `config`, or those of `names` that there are."""
    return [
        _describe_broker_setting(config, name)
        for name in sorted(config.names())
        if _wanted(name, names) and (not _is_hidden(name) or config.is_set(name))
    ]


def describe_cluster_default(
    config: BrokerConfig, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """What was set for all brokers (the broker resource without a name), and nothing else."""
    return [
        _described(
            name,
            find_broker_definition(name),
            text,
            [Synonym(name, text, DYNAMIC_DEFAULT_BROKER)],
            read_only=_is_read_only(name),
        )
        for name, text in sorted(config.cluster_wide.items())
        if _wanted(name, names)
    ]


def _describe_topic_setting(
    config: BrokerConfig, overrides: Mapping[str, str], definition: ConfigDefinition
) -> DescribedConfig:
    name = definition.name
    value = definition.render(effective_value(config, overrides, name))
    broker_name = BROKER_DEFAULT_OF_TOPIC.get(name)
    synonyms = [] if broker_name is None else synonyms_of_broker_setting(config, broker_name)
    if name in overrides:
        synonyms.insert(0, Synonym(name, value, DYNAMIC_TOPIC))
    return _described(name, definition, value, synonyms, read_only=False)


def _describe_broker_setting(config: BrokerConfig, name: str) -> DescribedConfig:
    definition = find_broker_definition(name)
    value: ConfigValue = config.named_value(name)
    return _described(
        name,
        definition,
        None if definition is None else definition.render(value),
        synonyms_of_broker_setting(config, name),
        read_only=_is_read_only(name),
    )


def _described(
    name: str,
    definition: ConfigDefinition | None,
    value: str | None,
    synonyms: list[Synonym],
    *,
    read_only: bool,
) -> DescribedConfig:
    # What a name nobody knows may hold is anybody's guess, a secret for one.
    sensitive = definition is None or definition.sensitive
    if sensitive:
        synonyms = [Synonym(synonym.name, None, synonym.source) for synonym in synonyms]
    source = synonyms[0].source if synonyms else DEFAULT
    return DescribedConfig(
        name=name,
        value=None if sensitive else value,
        read_only=read_only,
        is_default=source == DEFAULT,
        config_source=source,
        is_sensitive=sensitive,
        synonyms=synonyms,
        config_type=_UNKNOWN_TYPE if definition is None else definition.type,
        documentation=None if definition is None else definition.documentation,
    )


def synonyms_of_broker_setting(config: BrokerConfig, name: str) -> list[Synonym]:
    """Everything that was set or defaults under a name that means the same, the strongest first."""
    found = []
    names = broker_synonyms(name)
    levels = ((DYNAMIC_BROKER, config.per_broker), (DYNAMIC_DEFAULT_BROKER, config.cluster_wide))
    for source, level in (*levels, (STATIC_BROKER, config.static)):
        found += [Synonym(each, level[each], source) for each in names if each in level]
    for each in names:
        definition = BROKER.find(each)
        default = config.default_of(each)
        if definition is not None and default is not None:
            found.append(Synonym(each, definition.render(default), DEFAULT))
    first = next((index for index, each in enumerate(found) if each.name == name), len(found))
    return found[first:]


def _is_read_only(name: str) -> bool:
    definition = BROKER.find(name)
    return definition is None or definition.mode == READ_ONLY


def _is_hidden(name: str) -> bool:
    definition = BROKER.find(name)
    return definition is not None and definition.hidden


def _wanted(name: str, names: Collection[str] | None) -> bool:
    """No names at all and an empty list of them both mean every one, as in Kafka."""
    return not names or name in names
