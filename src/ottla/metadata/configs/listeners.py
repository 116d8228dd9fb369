"""Where a broker listens, and what it tells clients to connect to.

Turns `listeners`, `advertised.listeners`, `listener.security.protocol.map` and the choice of the
inter-broker listener into checked values. Never opens anything and asks no resolver. Listeners of
a KRaft controller (`controller.listener.names`) are taken out: files written for Kafka have them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.base.errors import ConfigError
from ottla.metadata.configs.broker_config import BrokerConfig

PLAINTEXT = "PLAINTEXT"
_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ADDRESS = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """An empty host means every address of the machine; port 0 any free port."""

    name: str
    host: str
    port: int
    protocol: str


@dataclass(frozen=True, slots=True)
class Listeners:
    listening: tuple[ListenerSpec, ...]
    advertised: tuple[ListenerSpec, ...]
    inter_broker_name: str


def address_of(host: str, port: int) -> str:
    """As it is written in a URL, and understood again: an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listeners(config: BrokerConfig, *, host_name: str = "localhost") -> Listeners:
    """Raises ConfigError. `host_name` is advertised where an address leaves the host open."""
    protocols = _protocols(config)
    left_out = {name.upper() for name in config.get_list("controller.listener.names")}
    listening = _parse_all(config.get_list("listeners"), protocols, left_out)
    _check_ports(listening)
    if not listening:
        raise ConfigError("listeners names no listener for clients")
    for spec in listening:
        if spec.protocol != PLAINTEXT:
            raise ConfigError(
                f"Listener {spec.name} speaks {spec.protocol}: only PLAINTEXT is served so far"
            )
    advertised = listening
    if config.get_list("advertised.listeners"):
        advertised = _parse_all(config.get_list("advertised.listeners"), protocols, left_out)
    _check_advertised(listening, advertised)
    inter_broker_name = _inter_broker_name(config, protocols, advertised)
    return Listeners(
        listening=tuple(listening),
        advertised=tuple(
            ListenerSpec(spec.name, spec.host or host_name, spec.port, spec.protocol)
            for spec in advertised
        ),
        inter_broker_name=inter_broker_name,
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it; unknown names count as reachable."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None


def _protocols(config: BrokerConfig) -> dict[str, str]:
    """Listener name to protocol; names count in upper case, as in Kafka."""
    setting = "listener.security.protocol.map"
    protocols = {}
    for entry in filter(None, map(str.strip, config.get_str(setting).split(","))):
        name, colon, protocol = (part.strip() for part in entry.rpartition(":"))
        if not colon or not name:
            raise ConfigError(
                f"Error parsing configuration property '{setting}': {entry} is not NAME:PROTOCOL"
            )
        if protocol.upper() not in _PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol}` defined in {setting}")
        protocols[name.upper()] = protocol.upper()
    return protocols


def _parse_all(
    texts: Sequence[str], protocols: dict[str, str], left_out: set[str]
) -> list[ListenerSpec]:
    specs = []
    for text in texts:
        name, host, port = _parse_address(text, texts)
        if name in left_out:
            continue
        if name not in protocols:
            raise _wrong(texts, f"No security protocol defined for listener {name}")
        specs.append(ListenerSpec(name, host, port, protocols[name]))
    if len({spec.name for spec in specs}) != len(specs):
        raise _wrong(texts, "Each listener must have a different name")
    return specs


def _parse_address(text: str, texts: Sequence[str]) -> tuple[str, str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise _wrong(texts, f"Unable to parse {text} to a broker endpoint")
    port = int(match[3])
    if not 0 <= port <= _PORT_MAX:
        raise _wrong(texts, f"Port {port} of {text} is not between 0 and {_PORT_MAX}")
    return match[1].upper(), match[2], port


def _check_ports(specs: Sequence[ListenerSpec]) -> None:
    """Two listeners may share a port only if one is IPv4 and the other IPv6."""
    taken: dict[tuple[int, bool], str] = {}
    for spec in specs:
        key = (spec.port, ":" in spec.host)
        if spec.port != 0 and key in taken:
            raise ConfigError(
                f"Listeners {taken[key]} and {spec.name} are on the same port {spec.port}: "
                "one needs to be IPv4 and the other IPv6"
            )
        taken[key] = spec.name


def _check_advertised(
    listening: Sequence[ListenerSpec], advertised: Sequence[ListenerSpec]
) -> None:
    for spec in advertised:
        if spec.host in ("0.0.0.0", "::"):  # noqa: S104 -- looked for in order to refuse it
            raise ConfigError(
                f"advertised.listeners cannot use the nonroutable meta-address {spec.host}. "
                "Use a routable IP address."
            )
    unknown = {spec.name for spec in advertised} - {spec.name for spec in listening}
    if unknown:
        raise ConfigError(
            f"advertised.listeners has {', '.join(sorted(unknown))}, which listeners does not have"
        )


def _inter_broker_name(
    config: BrokerConfig, protocols: dict[str, str], advertised: Sequence[ListenerSpec]
) -> str:
    setting = "inter.broker.listener.name"
    chosen = config.get_optional_str(setting)
    if chosen is not None and config.is_set("security.inter.broker.protocol"):
        raise ConfigError(
            f"Only one of {setting} and security.inter.broker.protocol should be set."
        )
    name = (chosen or config.get_str("security.inter.broker.protocol")).upper()
    if chosen is not None and name not in protocols:
        raise ConfigError(
            f"Listener with name {name} defined in {setting} not found in "
            "listener.security.protocol.map."
        )
    names = [spec.name for spec in advertised]
    if name not in names:
        raise ConfigError(
            f"{setting} must be a listener name defined in advertised.listeners. The valid "
            f"options based on currently configured listeners are {','.join(names)}"
        )
    return name


def _wrong(texts: Sequence[str], reason: str) -> ConfigError:
    return ConfigError(f"Error creating broker listeners from '[{', '.join(texts)}]': {reason}")
