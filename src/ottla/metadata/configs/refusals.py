"""The refusal of a changed setting: a ConfigError that travels to the client that asked for it."""

from __future__ import annotations

from ottla.base.errors import ConfigError, ProtocolError


class InvalidConfig(ProtocolError, ConfigError):
    """Code and message as Kafka would answer them for the resource."""
