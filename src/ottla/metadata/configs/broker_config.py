"""The settings of a running broker, each from the strongest place that has it.

Owns the order in which they count: set for this broker while it ran, set for all brokers while they
ran, the properties file, the default. Immutable: a change makes a new object (`with_dynamic`), so
that a handler that reads two settings sees them of one moment. Everything is parsed when the object
is made; reading a setting is one look into a dict.

Invariant: setting a name at one level hides its synonyms of all weaker levels, as in Kafka: a
dynamic log.retention.ms beats a log.retention.hours in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.base.errors import ConfigError, InvariantError
from ottla.metadata.configs.definitions import BROKER, IN_A_CLUSTER, find_broker_definition
from ottla.metadata.configs.values import ConfigValue

_DEFAULTS: dict[str, ConfigValue] = {
    name: definition.default for name, definition in BROKER.by_name.items()
}
_IN_A_CLUSTER: dict[str, ConfigValue] = {**_DEFAULTS, **IN_A_CLUSTER}
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_NOTHING: Mapping[str, str] = {}


class BrokerConfig:
    """`static`, `cluster_wide` and `per_broker` are the texts as they were set, by name."""

    __slots__ = ("_effective", "_named", "cluster_wide", "ignored", "per_broker", "static")

    def __init__(
        self,
        properties: Mapping[str, str] = _NOTHING,
        *,
        cluster_wide: Mapping[str, str] = _NOTHING,
        per_broker: Mapping[str, str] = _NOTHING,
    ) -> None:
        self.static: Mapping[str, str] = _with_both_ids(properties)
        self.cluster_wide: Mapping[str, str] = dict(cluster_wide)
        self.per_broker: Mapping[str, str] = dict(per_broker)
        self.ignored: list[str] = []
        parsed = {name: _parse(name, text) for name, text in self.static.items()}
        for level in (self.cluster_wide, self.per_broker):
            self._override(parsed, level)
        self._named = {**(_IN_A_CLUSTER if self.is_of_cluster() else _DEFAULTS), **parsed}
        self._effective = _effective(self._named)

    def with_dynamic(
        self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
    ) -> BrokerConfig:
        """The same file under other settings of the cluster and of this broker."""
        return BrokerConfig(self.static, cluster_wide=cluster_wide, per_broker=per_broker)

    def is_of_cluster(self) -> bool:
        """Whether metadata is shared with other brokers; some defaults depend on it."""
        return bool(self.static.get("zookeeper.connect", "").strip())

    def default_of(self, name: str) -> ConfigValue:
        return (_IN_A_CLUSTER if self.is_of_cluster() else _DEFAULTS).get(name)

    def get_int(self, name: str) -> int:
        value = self._effective[name]
        if not isinstance(value, int) or value is True or value is False:
            raise InvariantError(f"{name} is no number: {value!r}")
        return value

    get_long = get_int

    def get_optional_int(self, name: str) -> int | None:
        """None where nobody has set it and there is no default."""
        return None if self._effective[name] is None else self.get_int(name)

    def get_bool(self, name: str) -> bool:
        value = self._effective[name]
        if not isinstance(value, bool):
            raise InvariantError(f"{name} is neither true nor false: {value!r}")
        return value

    def get_float(self, name: str) -> float:
        value = self._effective[name]
        if not isinstance(value, float):
            raise InvariantError(f"{name} is no decimal number: {value!r}")
        return value

    def get_str(self, name: str) -> str:
        value = self._effective[name]
        if not isinstance(value, str):
            raise InvariantError(f"{name} is no text: {value!r}")
        return value

    def get_optional_str(self, name: str) -> str | None:
        """For settings that may be left open, such as broker.rack."""
        return None if self._effective[name] is None else self.get_str(name)

    def get_list(self, name: str) -> list[str]:
        """Its items; none at all where it is not set."""
        value = self._effective[name]
        if not isinstance(value, tuple | None):
            raise InvariantError(f"{name} is no list: {value!r}")
        return list(value or ())

    def get_int_for_listener(self, listener: str, name: str) -> int:
        """A number that `listener.name.<listener>.<name>` may set apart from the others."""
        own = f"listener.name.{listener.lower()}.{name}"
        return self.get_int(own if own in self._effective else name)

    def is_set(self, name: str) -> bool:
        """Whether anybody set it, be it to its default."""
        return any(name in level for level in self.levels())

    def levels(self) -> Iterator[Mapping[str, str]]:
        """What was set, the strongest level first."""
        yield from (self.per_broker, self.cluster_wide, self.static)

    def named_value(self, name: str) -> ConfigValue:
        """What is in force under this very name, its synonyms left aside: for descriptions."""
        return self._named.get(name)

    def effective_value(self, name: str) -> ConfigValue:
        return self._effective[name]

    def names(self) -> set[str]:
        """Every name with a value or a default, unknown ones included."""
        return set(self._named)

    def _override(self, parsed: dict[str, ConfigValue], level: Mapping[str, str]) -> None:
        """Changes were checked when they were made. What a store still brings that cannot be taken
        (another version wrote it) must not keep the broker down: it is left out and told."""
        for name, text in level.items():
            try:
                value = _parse(name, text)
            except ConfigError as error:
                self.ignored.append(str(error))
                continue
            definition = BROKER.find(name)
            for synonym in definition.synonyms if definition else (name,):
                parsed.pop(synonym, None)
            parsed[name] = value


def check_together(config: BrokerConfig) -> None:
    """What no setting can tell alone. Raises ConfigError."""
    if config.get_long("log.roll.ms") < 1:
        raise ConfigError("log.roll.ms must be greater than or equal to 1")
    if config.get_long("log.roll.jitter.ms") < 0:
        raise ConfigError("log.roll.jitter.ms must be greater than or equal to 0")
    if config.get_long("log.retention.ms") == 0:
        raise ConfigError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
    cleaners = config.get_int("log.cleaner.threads")
    if cleaners < 1:
        raise ConfigError("log.cleaner.threads must be greater than or equal to 1")
    if config.get_long("log.cleaner.dedupe.buffer.size") // cleaners <= 1 << 20:
        raise ConfigError("log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    overrides = connections_per_ip_overrides(config)
    if config.get_int("max.connections.per.ip") == 0 and not overrides:
        raise ConfigError(
            "max.connections.per.ip can be set to zero only if "
            "max.connections.per.ip.overrides property is set."
        )
    queued = config.get_long("queued.max.request.bytes")
    if 0 < queued < config.get_int("socket.request.max.bytes"):
        raise ConfigError(
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
        )
    _check_consumer_group_times(config)
    if config.get_optional_str("authorizer.class.name"):
        # Starting without it would let everybody do what its owner forbade.
        raise ConfigError(
            "authorizer.class.name is set, but access rights are not checked yet: "
            "take it out to start without them"
        )


def _check_consumer_group_times(config: BrokerConfig) -> None:
    """As Kafka refuses to start. It does not compare those of classic groups."""
    heartbeat = "group.consumer.heartbeat.interval.ms"
    session = "group.consumer.session.timeout.ms"
    for name in (heartbeat, session):
        least, most = (name.replace("consumer.", f"consumer.{end}.") for end in ("min", "max"))
        for greater, less in ((most, least), (name, least)):
            if config.get_int(greater) < config.get_int(less):
                raise ConfigError(f"{greater} must be greater than or equal to {less}")
        if config.get_int(name) > config.get_int(most):
            raise ConfigError(f"{name} must be less than or equal to {most}")
    if config.get_int(heartbeat) >= config.get_int(session):
        raise ConfigError(f"{heartbeat} must be less than {session}")


def connections_per_ip_overrides(config: BrokerConfig) -> dict[str, int]:
    """max.connections.per.ip.overrides by address."""
    overrides = {}
    for item in config.get_str("max.connections.per.ip.overrides").split(","):
        address, colon, count = item.strip().rpartition(":")
        if colon and address and count.strip().isdecimal():
            overrides[address.strip()] = int(count)
        elif item.strip():
            raise ConfigError(
                f"Invalid value {item.strip()} for configuration max.connections.per.ip.overrides: "
                "Expected address:count"
            )
    return overrides


def _parse(name: str, text: str) -> ConfigValue:
    definition = find_broker_definition(name)
    return text if definition is None else definition.parse(text)


def _with_both_ids(properties: Mapping[str, str]) -> dict[str, str]:
    """broker.id and node.id are one number under two names, and described under both."""
    both = dict(properties)
    node_id, broker_id = both.get("node.id"), both.get("broker.id")
    if node_id is not None and broker_id is not None and node_id.strip() != broker_id.strip():
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
    if node_id is not None:
        both["broker.id"] = node_id
    elif broker_id is not None:
        both["node.id"] = broker_id
    return both


def _effective(named: dict[str, ConfigValue]) -> dict[str, ConfigValue]:
    """The values with synonyms resolved under the strongest name, in that name's unit."""
    values = dict(named)
    retention_ms = _first(
        named,
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    )
    values["log.retention.ms"] = max(-1, retention_ms)  # all below zero means for ever
    values["log.roll.ms"] = _first(named, ("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS))
    values["log.roll.jitter.ms"] = _first(
        named, ("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)
    )
    values["log.flush.interval.ms"] = _first(
        named, ("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)
    )
    if values["log.dirs"] is None:
        values["log.dirs"] = values["log.dir"]
    return values


def _first(named: Mapping[str, ConfigValue], *candidates: tuple[str, int]) -> int:
    for name, unit_ms in candidates:
        value = named[name]
        if isinstance(value, int):
            return value * unit_ms
    raise InvariantError(f"none of {candidates} has a default")
