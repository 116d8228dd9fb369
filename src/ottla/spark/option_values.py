"""From the text of an option to its value; a refusal names the option and what would be right.

Spark hands over every option as text. Nothing here knows which options there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ottla.spark.errors import OptionError

# What {"topic": {"0": -2}} means in the stock connector's options, and in ListOffsets.
EARLIEST = -2
LATEST = -1

# The largest that Kafka's formats and Spark's columns hold.
NUMBER_MAX = 2**63 - 1

Offsets = dict[str, dict[int, int]]

_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


# At most so long: Python refuses to read numbers of thousands of digits.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")
_SHOWN_MAX = 200
_PARTITION_MAX = 2**31 - 1


def boolean(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise OptionError(f"option {name}: {_shown(text)} is neither true nor false")
    return lowered == "true"


def positive(name: str, text: str) -> int:
    return at_least(name, text, 1)


def at_least(name: str, text: str, least: int) -> int:
    if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
        raise OptionError(f"option {name}: {_shown(text)} is not a whole number")
    number = int(text.strip())
    if number < least:
        raise OptionError(f"option {name}: {number} is less than {least}")
    if number > NUMBER_MAX:
        raise OptionError(f"option {name}: {number} is above {NUMBER_MAX}")
    return number


def duration_ms(name: str, text: str) -> int:
    """As Spark writes them: 15m, 30s, 1500ms; a bare number is milliseconds."""
    compact = text.strip().lower().replace(" ", "")
    digits = compact.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = compact[len(digits) :] or "ms"
    if not _WHOLE_NUMBER.fullmatch(digits) or unit not in _UNITS_MS:
        raise OptionError(
            f"option {name}: {_shown(text)} is not a duration such as 15m, 30s or 1500ms"
        )
    return at_least(name, digits, 0) * _UNITS_MS[unit]


def pattern(name: str, text: str) -> str:
    found = text.strip()
    if not found:
        raise OptionError(f"option {name} is empty")
    try:
        re.compile(found)
    except re.error as wrong:
        raise OptionError(f"option {name}: {_shown(found)} is no pattern: {wrong}") from None
    return found


def names(name: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise OptionError(f"option {name}: {_shown(text)} names nothing")
    return found


def assigned_partitions(name: str, text: str) -> dict[str, tuple[int, ...]]:
    """{"topicA":[0,1],"topicB":[2,4]}"""
    example = '{"topicA":[0,1],"topicB":[2]}'
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in _object(name, text, example).items():
        if not isinstance(partitions, list) or not all(_is_number(one) for one in partitions):
            raise OptionError(f"option {name}: {topic!r} needs a list of partitions: {example}")
        if any(not 0 <= one <= _PARTITION_MAX for one in partitions):
            raise OptionError(f"option {name}: {topic!r} has a partition that cannot be")
        if not partitions:
            raise OptionError(f"option {name}: {topic!r} names no partition: {example}")
        found[topic] = tuple(sorted(set(partitions)))
    if not any(found.values()):
        raise OptionError(f"option {name}: {_shown(text)} names no partition: {example}")
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
            if not _is_partition(partition) or not _is_number(number):
                raise OptionError(
                    f"option {name}: {partition!r}: {number!r} of {topic!r} is no partition with "
                    f"a number: {example}"
                )
            if number < least:
                raise OptionError(
                    f"option {name}: {number} of {topic}-{partition} is below {least}"
                )
            if number > NUMBER_MAX:
                raise OptionError(
                    f"option {name}: {number} of {topic}-{partition} is above {NUMBER_MAX}"
                )
            if int(partition) in found[topic]:
                raise OptionError(f"option {name}: {topic}-{partition} is named twice")
            found[topic][int(partition)] = number
    if not any(found.values()):
        raise OptionError(f"option {name}: {_shown(text)} names no partition: {example}")
    return found


def choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    lowered = text.strip().lower()
    if lowered not in allowed:
        raise OptionError(f"option {name}: {_shown(text)} is none of {', '.join(allowed)}")
    return lowered


def _object(name: str, text: str, example: str) -> Mapping[str, object]:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise OptionError(f"option {name}: {_shown(text)} names something twice")
        return found

    try:
        parsed = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise OptionError(f"option {name}: {_shown(text)} is not JSON such as {example}") from None
    if not isinstance(parsed, dict):
        raise OptionError(f"option {name}: {_shown(text)} is not an object such as {example}")
    return parsed


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}...")


def _is_partition(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _PARTITION_MAX


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
