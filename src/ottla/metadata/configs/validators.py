"""What a setting may be, beyond its type.

Each validator checks one parsed value and raises ConfigError in Kafka's words; its `text` says the
same for the reference pages. Stateless.
"""

from __future__ import annotations

import re
from typing import Protocol

from ottla.base.errors import ConfigError
from ottla.metadata.configs.values import ConfigValue, invalid, render_double


class Validator(Protocol):
    text: str

    def check(self, name: str, value: ConfigValue) -> None: ...


class Range:
    """A number within bounds, both included."""

    __slots__ = ("_high", "_low", "text")

    def __init__(self, low: float, high: float | None) -> None:
        self._low = low
        self._high = high
        self.text = f"at least {low}" if high is None else f"{low} to {high}"

    def check(self, name: str, value: ConfigValue) -> None:
        if not isinstance(value, int | float):
            return
        shown = render_double(value) if isinstance(value, float) else str(value)
        if value < self._low:
            raise invalid(name, shown, f"Value must be at least {self._low}")
        if self._high is not None and value > self._high:
            raise invalid(name, shown, f"Value must be no more than {self._high}")


class GzipLevel:
    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = "1 to 9, or -1"

    def check(self, name: str, value: ConfigValue) -> None:
        if not isinstance(value, int) or not (1 <= value <= 9 or value == -1):
            raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


class OneOf:
    __slots__ = ("_allowed", "_any_case", "_shown", "text")

    def __init__(self, *allowed: str, any_case: bool = False) -> None:
        self._any_case = any_case
        self._allowed = frozenset(word.lower() if any_case else word for word in allowed)
        self._shown = ", ".join(allowed)
        self.text = self._shown

    def check(self, name: str, value: ConfigValue) -> None:
        word = str(value).lower() if self._any_case else value
        if word not in self._allowed:
            case = " (case insensitive)" if self._any_case else ""
            raise invalid(name, value, f"String must be one of{case}: {self._shown}")


class NotEmpty:
    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = "not empty"

    def check(self, name: str, value: ConfigValue) -> None:
        if value == "":
            raise invalid(name, value, "String must be non-empty")


class Items:
    """A list without empty items; of given words, if there are any; whether it may be empty."""

    __slots__ = ("_allowed", "_empty", "_shown", "text")

    def __init__(self, *allowed: str, empty: bool) -> None:
        self._allowed = allowed
        self._empty = empty
        self._shown = f"[{', '.join(allowed)}]" if allowed else "any non-empty value"
        self.text = " and ".join(filter(None, (", ".join(allowed), "" if empty else "not empty")))

    def check(self, name: str, value: ConfigValue) -> None:
        if not isinstance(value, tuple):
            return
        if not value and not self._empty:
            raise ConfigError(
                f"Configuration '{name}' must not be empty. Valid values include: {self._shown}"
            )
        for item in value:
            if item == "":
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if self._allowed and item not in self._allowed:
                raise invalid(name, item, f"String must be one of: {', '.join(self._allowed)}")


class ThrottledReplicas:
    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = "`*`, or partition:broker pairs"

    def check(self, name: str, value: ConfigValue) -> None:
        # As in Kafka, items may be empty: scripts leave a comma at the end.
        if not isinstance(value, tuple) or "".join(value) == "*":
            return
        if not all(re.fullmatch(r"([0-9]+:[0-9]+)?", item) for item in value):
            raise invalid(
                name,
                f"[{', '.join(value)}]",
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )


class HostAndPort:
    """`host:port`, `[v6 address]:port`, or nothing at all."""

    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = "host:port, or empty"

    def check(self, name: str, value: ConfigValue) -> None:
        if value == "":
            return
        match = re.fullmatch(r"(?:\[[0-9a-fA-F:.%]+\]|[^\s:\[\]]+):([0-9]{1,5})", str(value))
        if match is None or int(match[1]) > 65535:
            raise invalid(name, value, "Expected host:port, or nothing")


def at_least(low: float) -> Range:
    return Range(low, None)


def between(low: float, high: float) -> Range:
    return Range(low, high)
