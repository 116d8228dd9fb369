"""Values of settings as text and back, by Kafka's types and in Java's spelling.

Owns the nine types of KIP-226 (their numbers are those of DescribeConfigs) and what each accepts.
Never knows a particular setting. What `parse` accepts, `render` writes in the one way that Kafka
would show it: `parse(kind, render(kind, value)) == value`.
"""

from __future__ import annotations

import re

from ottla.base.errors import ConfigError

BOOLEAN = 1
STRING = 2
INT = 3
SHORT = 4
LONG = 5
DOUBLE = 6
LIST = 7
CLASS = 8
PASSWORD = 9

TYPE_NAMES = {
    BOOLEAN: "BOOLEAN",
    STRING: "STRING",
    INT: "INT",
    SHORT: "SHORT",
    LONG: "LONG",
    DOUBLE: "DOUBLE",
    LIST: "LIST",
    CLASS: "CLASS",
    PASSWORD: "PASSWORD",
}

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

ConfigValue = bool | int | float | str | tuple[str, ...] | None

# Java's trim() takes everything up to the space, and nothing that is blank only in Unicode.
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL_NUMBER = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?|[+-]?Infinity)[fFdD]?"
)
_COMMA = re.compile(r"\s*,\s*")
_BITS = {SHORT: 16, INT: 32, LONG: 64}


def parse(name: str, kind: int, text: str) -> ConfigValue:
    """The value that `text` stands for; ConfigError with Kafka's words if it is none."""
    if kind in _BITS:
        return _parse_whole(name, kind, text)
    if kind == BOOLEAN:
        return _parse_boolean(name, text)
    if kind == DOUBLE:
        return _parse_double(name, text)
    if kind == LIST:
        return parse_list(text)
    if kind == PASSWORD:
        return text  # blanks may be part of it
    return text.strip(_BLANKS)


def render(kind: int, value: ConfigValue) -> str | None:
    """How Kafka writes the value in a description."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if kind == DOUBLE:
        return render_double(float(value))
    return str(value)


def render_double(value: float) -> str:
    """Java's Double.toString: plain digits from 0.001 to 10 million, else `d.dddE<exponent>`."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value:e}".partition("e")
    # %e rounds to six digits; repr has the shortest digits that tell the value apart, as Java has.
    digits = repr(value).lower().partition("e")[0].replace(".", "").lstrip("-").strip("0")
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


def invalid(name: str, value: object, reason: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}")


def _parse_whole(name: str, kind: int, text: str) -> int:
    trimmed = text.strip(_BLANKS)
    if _WHOLE_NUMBER.fullmatch(trimmed):
        number = int(trimmed)
        bound = 1 << (_BITS[kind] - 1)
        if -bound <= number < bound:
            return number
    raise invalid(name, text, f"Not a number of type {TYPE_NAMES[kind]}")


def _parse_boolean(name: str, text: str) -> bool:
    lowered = text.strip(_BLANKS).lower()
    if lowered not in ("true", "false"):
        raise invalid(name, text, "Expected value to be either true or false")
    return lowered == "true"


def _parse_double(name: str, text: str) -> float:
    """As Java's parseDouble, but without NaN (it would pass every range) and hexadecimals."""
    match = _DECIMAL_NUMBER.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise invalid(name, text, "Not a number of type DOUBLE")
    return float(match["number"])


def parse_list(text: str) -> tuple[str, ...]:
    """Split at commas; what stands twice counts once, as in Kafka since 4.2."""
    trimmed = text.strip(_BLANKS)
    return tuple(dict.fromkeys(_COMMA.split(trimmed))) if trimmed else ()
