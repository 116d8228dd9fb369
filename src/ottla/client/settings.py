"""A client's settings: Kafka's names, Kafka's defaults (Java's clients of 4.x), typed.

A setting is a field of a dataclass; its Kafka name is the field's with dots (`linger_ms` is
`linger.ms`), and both spellings are taken. Text is read as the field's type, so a properties file
works as well as Python values. A name that nobody knows is refused with the nearest one, a value
out of range with the range. Secrets are kept in a Secret, which shows itself to nobody.

Never changes after it was read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from ottla.base.errors import ConfigError

S = TypeVar("S", bound="ClientSettings")
Address = tuple[str, int]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Secret:
    """A text that must not get into logs: only `reveal` shows it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "[hidden]"


def at_least(default: Any, low: float, high: float = INT_MAX) -> Any:
    return dataclasses.field(default=default, metadata={"low": low, "high": high})


def one_of(default: Any, *choices: str) -> Any:
    return dataclasses.field(default=default, metadata={"choices": choices})


def ineffective(default: Any, *choices: str) -> Any:
    """Taken because configurations have it, without a meaning here."""
    metadata = {"ineffective": True, "choices": choices or None}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What producers, consumers and admin clients have in common."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = ""
    # All addresses of a name are tried, always.
    client_dns_lookup: str = ineffective(
        "use_all_dns_ips", "use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"
    )
    client_rack: str = ""
    request_timeout_ms: int = at_least(30_000, 0)
    metadata_max_age_ms: int = at_least(300_000, 0, LONG_MAX)
    metadata_recovery_strategy: str = one_of("rebootstrap", "rebootstrap", "none")
    # The bootstrap addresses are tried as soon as no broker that is known can be reached.
    metadata_recovery_rebootstrap_trigger_ms: int = ineffective(300_000)
    reconnect_backoff_ms: int = at_least(50, 0, LONG_MAX)
    reconnect_backoff_max_ms: int = at_least(1_000, 0, LONG_MAX)
    retry_backoff_ms: int = at_least(100, 0, LONG_MAX)
    retry_backoff_max_ms: int = at_least(1_000, 0, LONG_MAX)
    socket_connection_setup_timeout_ms: int = at_least(10_000, 0, LONG_MAX)
    socket_connection_setup_timeout_max_ms: int = at_least(30_000, 0, LONG_MAX)
    connections_max_idle_ms: int = 540_000
    # Of plain clients; on asyncio the sizes are the system's.
    send_buffer_bytes: int = at_least(131_072, -1)
    receive_buffer_bytes: int = at_least(65_536, -1)
    security_protocol: str = one_of("PLAINTEXT", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    sasl_mechanism: str = one_of("PLAIN", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: Secret | None = None
    ssl_endpoint_identification_algorithm: str = one_of("https", "https", "")
    interceptor_classes: str = ineffective("")
    metric_reporters: str = ineffective("")
    metrics_num_samples: int = ineffective(2)
    metrics_sample_window_ms: int = ineffective(30_000)
    metrics_recording_level: str = ineffective("INFO")
    enable_metrics_push: bool = ineffective(True)
    auto_include_jmx_reporter: bool = ineffective(True)

    def completed(self, given: Set[str]) -> Self:
        """With what follows from other settings where it was not said."""
        return self

    def validate(self) -> None:
        """What no single setting shows. Raises ConfigError."""
        if self.security_protocol.startswith("SASL") and (
            self.sasl_username is None or self.sasl_password is None
        ):
            raise ConfigError(
                f"security.protocol={self.security_protocol} needs sasl.username and sasl.password"
            )

    def check_given(self, given: Set[str]) -> None:
        """What must not be said at all beside others, be it the default. Raises ConfigError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    default_api_timeout_ms: int = at_least(60_000, 0)
    retries: int = at_least(INT_MAX, 0)


# Names of librdkafka and kafka-python for what Java's client takes in other shapes.
_ALIASES = {
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_password": "sasl_password",
    "sasl_plain_username": "sasl_username",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
}

# Names of Java's client and of librdkafka for what is said otherwise here.
_INSTEAD = {
    "batch_num_messages": "batch.size",
    "message_max_bytes": "max.request.size",
    "message_timeout_ms": "delivery.timeout.ms",
    "queue_buffering_max_kbytes": "buffer.memory",
    "queue_buffering_max_ms": "linger.ms",
    "sasl_jaas_config": "sasl.username and sasl.password",
    "ssl_keystore_location": "ssl.certfile and ssl.keyfile, in PEM",
    "ssl_truststore_location": "ssl.cafile, in PEM",
}


def kafka_name(field_name: str) -> str:
    return field_name.replace("_", ".")


def read_settings(kind: type[S], given: Mapping[str, Any] | None, named: Mapping[str, Any]) -> S:
    """Settings of `kind` from a mapping and keyword arguments, in either spelling."""
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(
            f"settings are a mapping or keyword arguments, not {type(given).__name__}:"
            ' {"bootstrap.servers": "host:port"} or bootstrap_servers="host:port"'
        )
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in [*(given or {}).items(), *named.items()]:
        if not isinstance(name, str):
            raise ConfigError(f"there is no setting {name!r}: names are texts")
        field_name = name.replace(".", "_")
        field_name = _ALIASES.get(field_name, field_name)
        if field_name not in fields:
            raise ConfigError(_unknown(name, field_name, kind))
        if field_name in values:
            raise ConfigError(f"{kafka_name(field_name)} is given twice")
        values[field_name] = _read(fields[field_name], value)
    if not values.get("bootstrap_servers"):
        raise ConfigError("bootstrap.servers is missing: host:port, more of them with commas")
    told = {name for name, value in values.items() if value is not None}
    settings = kind(**values).completed(told)
    settings.validate()
    settings.check_given(told)
    return settings


def _unknown(name: str, field_name: str, kind: type[ClientSettings]) -> str:
    # Loaded to say what else it may be; whoever makes no mistake has no need of them all.
    import difflib  # noqa: PLC0415

    from ottla.client.consumer_settings import ConsumerSettings  # noqa: PLC0415
    from ottla.client.producer_settings import ProducerSettings  # noqa: PLC0415

    fields = {field.name for field in dataclasses.fields(kind)}
    if field_name in _INSTEAD:
        return f"there is no setting {name}; it is {_INSTEAD[field_name]} here"
    kinds = {"producer": ProducerSettings, "consumer": ConsumerSettings, "admin": AdminSettings}
    for owner, other in kinds.items():
        if field_name in {field.name for field in dataclasses.fields(other)}:
            article = "an" if owner == "admin" else "a"
            return f"there is no setting {name} here: {article} {owner} has it"
    near = difflib.get_close_matches(field_name, fields, n=1)
    hint = f"; did you mean {kafka_name(near[0])}?" if near else ""
    return f"there is no setting {name}{hint}"


def _read(field: dataclasses.Field[Any], value: Any) -> Any:
    name = kafka_name(field.name)
    optional = str(field.type).endswith("| None")
    if value is None:
        if optional:
            return None
        raise ConfigError(f"{name} cannot be None")
    read = _READERS.get(str(field.type).removesuffix(" | None"))
    if str(field.type).startswith("Callable"):
        read = _read_function
    elif field.metadata.get("choices") and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # acks=1
    if read is not None:
        try:
            value = read(value)
        except (TypeError, ValueError) as cause:
            shown = "[hidden]" if read is _read_secret else repr(value)
            raise ConfigError(f"{name}={shown}: {cause}") from cause
    if isinstance(value, str):
        value = _as_spelt(value, field.metadata.get("choices") or ())
    _check_range(name, field.metadata, value)
    return value


def _as_spelt(value: str, choices: tuple[str, ...]) -> str:
    """`sasl_ssl` is taken for `SASL_SSL`, as by other clients."""
    return next((one for one in choices if one.lower() == value.lower()), value)


def _check_range(name: str, rules: Mapping[str, Any], value: Any) -> None:
    low, high, choices = rules.get("low"), rules.get("high"), rules.get("choices")
    if low is not None and value < low:
        raise ConfigError(f"{name}={value}: at least {low} is needed")
    if high is not None and value > high:
        raise ConfigError(f"{name}={value}: at most {high} is allowed")
    if choices is not None and value not in choices:
        raise ConfigError(f"{name}={value}: one of {', '.join(map(repr, choices))} is needed")


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("true or false is needed")
    return text == "true"


def _read_int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("a whole number is needed")
    try:
        return int(value)
    except (TypeError, ValueError) as cause:
        raise ValueError("a whole number is needed") from cause


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is needed")
    return value


def _read_texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    elif not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise TypeError("a text, or a list of texts, is needed")
    parts = list(value)
    return tuple(_read_text(part).strip() for part in parts if part)


def _read_function(value: Any) -> Any:
    if not callable(value):
        raise TypeError("a function is needed")
    return value


def _read_secret(value: Any) -> Secret:
    return value if isinstance(value, Secret) else Secret(_read_text(value))


def _read_addresses(value: Any) -> tuple[Address, ...]:
    return tuple(parse_address(text) for text in _read_texts(value))


def parse_address(text: str) -> Address:
    """`host:port`, `[v6]:port`, with or without a listener name (`PLAINTEXT://`) in front."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536 or not host:
        raise ValueError(f"{text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


_READERS: dict[str, Callable[[Any], Any]] = {
    "bool": _read_bool,
    "int": _read_int,
    "str": _read_text,
    "tuple[str, ...]": _read_texts,
    "tuple[Address, ...]": _read_addresses,
    "Secret": _read_secret,
}
