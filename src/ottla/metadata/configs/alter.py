"""Changing settings: what the operations of KIP-339 make of them, and what is refused.

Takes texts and returns texts, and touches nothing. Refusals are `InvalidConfig` with the code and
words that Kafka 4.3 answers with: INVALID_CONFIG for topics, INVALID_REQUEST for brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.errors import ConfigError
from ottla.metadata.configs.broker_config import BrokerConfig, check_together
from ottla.metadata.configs.definition import PER_BROKER, READ_ONLY, ConfigDefinition, Definitions
from ottla.metadata.configs.definitions import (
    BROKER,
    TOPIC,
    find_broker_definition,
    without_listener,
)
from ottla.metadata.configs.refusals import InvalidConfig
from ottla.metadata.configs.values import LIST, parse, parse_list
from ottla.protocol.error_codes import INVALID_CONFIG, INVALID_REQUEST

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3
_OPERATION_NAMES = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

# A key store is changed for one listener at a time, so that a wrong one cannot lock out everybody.
_PER_LISTENER_ONLY = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
# With none of these nobody could connect any more, not even to set it back.
_NEVER_ZERO = ("max.connection.creation.rate", "max.connections")
# Of the settings of one listener only these may be set for all brokers.
_LISTENERS_OF_ALL_BROKERS = (*_NEVER_ZERO, "num.network.threads")
_THREAD_COUNTS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)

Operation = tuple[str, int, str | None]
"""Name, one of SET, DELETE, APPEND, SUBTRACT, and the value, which DELETE does not need."""


def apply_incremental(
    definitions: Definitions, current: Mapping[str, str], operations: Sequence[Operation]
) -> dict[str, str]:
    """The resource's own settings after `operations`; whether they are valid is another matter."""
    _check_operations(operations)
    changed = dict(current)
    for name, operation, value in operations:
        if operation == DELETE or value is None:
            changed.pop(name, None)
        elif operation == SET:
            changed[name] = value
        else:
            definition = _list_definition(definitions, name, operation)
            changed[name] = _changed_list(definition, changed.get(name), operation, value)
    return changed


def validate_topic_configs(overrides: Mapping[str, str]) -> None:
    """Raises InvalidConfig(INVALID_CONFIG) unless a topic may have all of these."""
    try:
        values = {name: _topic_definition(name).parse(text) for name, text in overrides.items()}
    except ConfigError as error:
        raise InvalidConfig(INVALID_CONFIG, str(error)) from error
    least, most = (values.get(f"{bound}.compaction.lag.ms") for bound in ("min", "max"))
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise InvalidConfig(
            INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most})",
        )
    if values.get("remote.storage.enable") is True:
        raise InvalidConfig(
            INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )


def validate_dynamic_broker_configs(
    changes: Mapping[str, str], per_broker: bool, *, current: BrokerConfig | None = None
) -> None:
    """Raises InvalidConfig(INVALID_REQUEST) unless all of `changes` may be set while brokers run.

    `changes` is all that is set for the broker, or for the cluster, afterwards; `current` is what
    the broker runs with now: with it, what depends on other settings is checked, too.
    """
    _refuse_read_only(changes)
    try:
        for name, text in changes.items():
            _check_broker_value(name, text)
    except ConfigError as error:
        raise InvalidConfig(INVALID_REQUEST, str(error)) from error
    if not per_broker:
        _refuse_for_all_brokers(changes)
    if current is not None:
        _check_against(current, changes, per_broker)


def _check_broker_value(name: str, text: str) -> None:
    definition = find_broker_definition(name)
    value = None if definition is None else definition.parse(text)
    if value == 0 and without_listener(name) in _NEVER_ZERO:
        raise ConfigError(f"Invalid {without_listener(name)} 0")


def _check_operations(operations: Sequence[Operation]) -> None:
    names = [name for name, _, _ in operations]
    if len(set(names)) != len(names):
        raise InvalidConfig(INVALID_REQUEST, "Error due to duplicate config keys")
    unknown = [operation for _, operation, _ in operations if operation not in _OPERATION_NAMES]
    if unknown:
        raise InvalidConfig(INVALID_REQUEST, f"Unknown operation type {unknown[0]}")
    empty = [name for name, operation, value in operations if operation != DELETE and value is None]
    if empty:
        raise InvalidConfig(INVALID_REQUEST, f"Null value not supported for : {','.join(empty)}")


def _list_definition(definitions: Definitions, name: str, operation: int) -> ConfigDefinition:
    definition = definitions.find(name)
    if definition is None and definitions is BROKER:
        definition = find_broker_definition(name)
    if definition is None or definition.type != LIST:
        raise InvalidConfig(
            INVALID_CONFIG,
            f"Can't {_OPERATION_NAMES[operation]} to key {name} because its type is not LIST.",
        )
    return definition


def _changed_list(
    definition: ConfigDefinition, current: str | None, operation: int, value: str
) -> str:
    """Works on what is set for the resource, else on the default, not on what is in force."""
    items = _split(
        definition, current if current is not None else definition.render(definition.default)
    )
    if operation == APPEND:
        items += [item for item in _appended(value) if item not in items]
    else:
        change = _split(definition, value)
        items = [item for item in items if item not in change]
    return ",".join(items)


def _appended(text: str) -> tuple[str, ...]:
    """As Java splits it: empty items count, so that they are refused, but not those at the end."""
    return parse_list(text.rstrip(",")) if text.strip() else ("",)


def _split(definition: ConfigDefinition, text: str | None) -> list[str]:
    items = parse(definition.name, LIST, text or "")
    return [item for item in items if item] if isinstance(items, tuple) else []


def _topic_definition(name: str) -> ConfigDefinition:
    definition = TOPIC.find(name)
    if definition is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return definition


def _refuse_read_only(changes: Mapping[str, str]) -> None:
    read_only = [name for name in changes if _mode_of(name) == READ_ONLY]
    if read_only:
        raise InvalidConfig(
            INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(read_only)}]"
        )
    bare = [name for name in changes if name in _PER_LISTENER_ONLY]
    if bare:
        raise InvalidConfig(
            INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the "
            f"listener prefix: [{', '.join(bare)}]",
        )


def _mode_of(name: str) -> str | None:
    """None for what Kafka lets pass: names it does not know, and those of one listener."""
    definition = BROKER.find(name)
    return None if definition is None else definition.mode


def _refuse_for_all_brokers(changes: Mapping[str, str]) -> None:
    own = [name for name in changes if _is_of_one_broker(name)]
    if own:
        raise InvalidConfig(
            INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(own)}]",
        )


def _is_of_one_broker(name: str) -> bool:
    setting = without_listener(name)
    if setting != name:
        return setting not in _LISTENERS_OF_ALL_BROKERS
    return _mode_of(name) == PER_BROKER


def _check_against(current: BrokerConfig, changes: Mapping[str, str], per_broker: bool) -> None:
    if per_broker:
        proposed = current.with_dynamic(current.cluster_wide, changes)
    else:
        proposed = current.with_dynamic(changes, current.per_broker)
    try:
        check_together(proposed)
        for name in _THREAD_COUNTS:
            if name in changes:
                _check_thread_count(name, current.get_int(name), proposed.get_int(name))
    except ConfigError as error:
        raise InvalidConfig(INVALID_REQUEST, str(error)) from error


def _check_thread_count(name: str, count: int, proposed: int) -> None:
    """A pool grows to double or shrinks to half at most, so a slip of a digit is no disaster."""
    told = f"Dynamic thread count update validation failed for {name}={proposed}, value should "
    if proposed > count * 2:
        raise ConfigError(f"{told}not be greater than double the current value {count}")
    if proposed < count // 2:
        raise ConfigError(f"{told}be at least half the current value {count}")
