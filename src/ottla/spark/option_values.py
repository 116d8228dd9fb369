"""From the text of an option to its value; a refusal names the option and what would be right.

Spark hands over every option as text. Nothing here knows which options there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ottla.spark.errors import OptionError

# What {"topic": {"0": -2}} means in the stock connector's options, and in ListOffsets.
EARLIEST = -2
LATEST = -1

Offsets = dict[str, dict[int, int]]

_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def boolean(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise OptionError(f"option {name}: {text!r} is neither true nor false")
    return lowered == "true"


def positive(name: str, text: str) -> int:
    return at_least(name, text, 1)


def at_least(name: str, text: str, least: int) -> int:
    try:
        number = int(text.strip())
    except ValueError:
        raise OptionError(f"option {name}: {text!r} is not a whole number") from None
    if number < least:
        raise OptionError(f"option {name}: {number} is less than {least}")
    return number


def duration_ms(name: str, text: str) -> int:
    """As Spark writes them: 15m, 30s, 1500ms; a bare number is milliseconds."""
    compact = text.strip().lower().replace(" ", "")
    digits = compact.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = compact[len(digits) :] or "ms"
    if not digits.isdigit() or unit not in _UNITS_MS:
        raise OptionError(f"option {name}: {text!r} is not a duration such as 15m, 30s or 1500ms")
    return int(digits) * _UNITS_MS[unit]


def names(name: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise OptionError(f"option {name}: {text!r} names nothing")
    return found


def assigned_partitions(name: str, text: str) -> dict[str, tuple[int, ...]]:
    """{"topicA":[0,1],"topicB":[2,4]}"""
    example = '{"topicA":[0,1],"topicB":[2]}'
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in _object(name, text, example).items():
        if not isinstance(partitions, list) or not all(_is_number(one) for one in partitions):
            raise OptionError(f"option {name}: {topic!r} needs a list of partitions: {example}")
        if any(one < 0 for one in partitions):
            raise OptionError(f"option {name}: {topic!r} has a partition below 0")
        found[topic] = tuple(sorted(set(partitions)))
    if not any(found.values()):
        raise OptionError(f"option {name}: {text!r} names no partition: {example}")
    return found


def offsets_by_partition(name: str, text: str, *, least: int = EARLIEST) -> Offsets:
    """{"topicA":{"0":23,"1":-1}}; numbers are offsets or timestamps in milliseconds."""
    example = '{"topicA":{"0":23,"1":42}}'
    found: Offsets = {}
    for topic, partitions in _object(name, text, example).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"option {name}: {topic!r} needs a number a partition: {example}")
        found[topic] = {}
        for partition, number in partitions.items():
            if not partition.isdigit() or not _is_number(number):
                raise OptionError(
                    f"option {name}: {partition!r}: {number!r} of {topic!r} is no partition with "
                    f"a number: {example}"
                )
            if number < least:
                raise OptionError(
                    f"option {name}: {number} of {topic}-{partition} is below {least}"
                )
            found[topic][int(partition)] = number
    if not any(found.values()):
        raise OptionError(f"option {name}: {text!r} names no partition: {example}")
    return found


def choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    lowered = text.strip().lower()
    if lowered not in allowed:
        raise OptionError(f"option {name}: {text!r} is none of {', '.join(allowed)}")
    return lowered


def _object(name: str, text: str, example: str) -> Mapping[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError:
        raise OptionError(f"option {name}: {text!r} is not JSON such as {example}") from None
    if not isinstance(parsed, dict):
        raise OptionError(f"option {name}: {text!r} is not an object such as {example}")
    return parsed


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
