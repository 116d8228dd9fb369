"""Settings of client metrics subscriptions (KIP-714) and of groups (KIP-848): names, checks, tales.

Both are kept and described so that tools work; what acts on them lives elsewhere. A group's setting
defaults to the broker's of the same name with `group.` before it, and has to stay within the bounds
that the broker's `min` and `max` settings give.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.base.errors import ConfigError
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.definition import (
    ConfigDefinition,
    Definitions,
    boolean,
    integer,
    items,
    string,
)
from ottla.metadata.configs.definitions import BROKER
from ottla.metadata.configs.describe import (
    DEFAULT,
    DescribedConfig,
    Synonym,
    synonyms_of_broker_setting,
)
from ottla.metadata.configs.refusals import InvalidConfig
from ottla.metadata.configs.validators import OneOf, at_least
from ottla.metadata.configs.values import ConfigValue
from ottla.protocol.error_codes import INVALID_CONFIG, INVALID_REQUEST

DYNAMIC_CLIENT_METRICS = 7
DYNAMIC_GROUP = 8

INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
_CLIENT_KEYS = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

CLIENT_METRICS = Definitions(
    "client metrics",
    (
        integer("interval.ms", 300_000, about="How often a client sends its metrics, in ms."),
        items("match", (), about="Which clients are meant: a list of client_key=pattern."),
        items("metrics", (), about="Prefixes of the names of the metrics that are wanted."),
    ),
)

_LOWEST_FROM_BROKER = {
    "consumer.assignment.interval.ms": 0,
    "consumer.heartbeat.interval.ms": 1,
    "consumer.session.timeout.ms": 1,
    "share.assignment.interval.ms": 0,
    "share.delivery.count.limit": 2,
    "share.heartbeat.interval.ms": 1,
    "share.partition.max.record.locks": 100,
    "share.record.lock.duration.ms": 1000,
    "share.session.timeout.ms": 1,
    "streams.assignment.interval.ms": 0,
    "streams.heartbeat.interval.ms": 1,
    "streams.initial.rebalance.delay.ms": 0,
    "streams.num.standby.replicas": 0,
    "streams.session.timeout.ms": 1,
}


def _of_broker(name: str, lowest: int) -> ConfigDefinition:
    # The broker's own validator is not taken over: a group's upper bound is a setting itself.
    documentation = BROKER.by_name[f"group.{name}"].documentation
    return integer(name, None, at_least(lowest), about=documentation)


GROUP = Definitions(
    "group",
    (
        *(_of_broker(name, lowest) for name, lowest in _LOWEST_FROM_BROKER.items()),
        string(
            "share.auto.offset.reset",
            "latest",
            about="Where a new share group begins: earliest, latest, or by_duration:<ISO 8601>.",
        ),
        string(
            "share.isolation.level",
            "read_uncommitted",
            OneOf("read_committed", "read_uncommitted"),
            about="Whether a share group is given records of open transactions.",
        ),
        boolean(
            "share.renew.acknowledge.enable",
            True,
            about="Whether a consumer may renew its lock on a record.",
        ),
    ),
)


def validate_client_metrics(overrides: Mapping[str, str]) -> None:
    for name in overrides:
        if CLIENT_METRICS.find(name) is None:
            message = f"Unknown client metrics configuration: {name}"
            raise InvalidConfig(INVALID_REQUEST, message)
    values = _parsed(CLIENT_METRICS, overrides)
    interval = values.get("interval.ms")
    if isinstance(interval, int) and not INTERVAL_MS_MIN <= interval <= INTERVAL_MS_MAX:
        raise InvalidConfig(
            INVALID_REQUEST,
            f"Invalid value {interval} for interval.ms, interval must be between "
            f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)",
        )
    match = values.get("match")
    for pattern in match if isinstance(match, tuple) else ():
        key, separator, expression = pattern.partition("=")
        if not separator or not expression.strip() or key.strip() not in _CLIENT_KEYS:
            raise InvalidConfig(INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")


def validate_group(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    for name in overrides:
        if GROUP.find(name) is None:
            raise InvalidConfig(INVALID_CONFIG, f"Unknown group config name: {name}")
    values = _parsed(GROUP, overrides)
    for name, value in values.items():
        if isinstance(value, int) and not isinstance(value, bool):
            _check_bounds(config, name, value)
    for kind in ("consumer", "share", "streams"):
        _check_session(config, kind, values)


def describe_client_metrics(
    overrides: Mapping[str, str], names: Collection[str] | None
) -> list[DescribedConfig]:
    return [
        _described(definition, overrides, DYNAMIC_CLIENT_METRICS, [])
        for name, definition in sorted(CLIENT_METRICS.by_name.items())
        if not names or name in names
    ]


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None
) -> list[DescribedConfig]:
    return [
        _described(definition, overrides, DYNAMIC_GROUP, _fallbacks(config, definition))
        for name, definition in sorted(GROUP.by_name.items())
        if not names or name in names
    ]


def _parsed(definitions: Definitions, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    try:
        return {name: definitions.by_name[name].parse(text) for name, text in overrides.items()}
    except ConfigError as error:
        raise InvalidConfig(INVALID_CONFIG, str(error)) from error


def _check_bounds(config: BrokerConfig, name: str, value: int) -> None:
    kind, _, rest = name.partition(".")
    rest = rest.removeprefix("num.")
    lowest, highest = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    if lowest in BROKER.by_name and value < config.get_int(lowest):
        message = f"{name} must be greater than or equal to {lowest}"
        raise InvalidConfig(INVALID_CONFIG, message)
    if highest in BROKER.by_name and value > config.get_int(highest):
        raise InvalidConfig(INVALID_CONFIG, f"{name} must be less than or equal to {highest}")


def _check_session(config: BrokerConfig, kind: str, values: Mapping[str, ConfigValue]) -> None:
    """Who is to call less often than its session lasts would be dropped for keeping to it."""

    def in_force(name: str) -> int:
        own = values.get(name)
        return own if isinstance(own, int) else config.get_int(f"group.{name}")

    session, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    if in_force(session) <= in_force(interval):
        raise InvalidConfig(INVALID_CONFIG, f"{session} must be greater than {interval}")


def _fallbacks(config: BrokerConfig, definition: ConfigDefinition) -> list[Synonym]:
    """What counts where the group has nothing of its own, the strongest first."""
    name = f"group.{definition.name}"
    if BROKER.find(name) is None:
        return [Synonym(definition.name, definition.render(definition.default), DEFAULT)]
    return synonyms_of_broker_setting(config, name)


def _described(
    definition: ConfigDefinition,
    overrides: Mapping[str, str],
    source: int,
    fallbacks: list[Synonym],
) -> DescribedConfig:
    name = definition.name
    synonyms = list(fallbacks)
    if name in overrides:
        own = definition.render(definition.parse(overrides[name]))
        synonyms.insert(0, Synonym(name, own, source))
    value = synonyms[0].value if synonyms else definition.render(definition.default)
    source = synonyms[0].source if synonyms else DEFAULT
    return DescribedConfig(
        name=name,
        value=value,
        read_only=False,
        is_default=source == DEFAULT,
        config_source=source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=definition.type,
        documentation=definition.documentation,
    )
