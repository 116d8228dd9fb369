"""What a user gives as a record, made into what a batch takes: by the user's serializers, or as it
is. Whatever cannot be sent is refused here, so that nothing behind this fails half way.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from ottla.client.producer_batch import Headers
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import LONG_MAX


def serialize(settings: ProducerSettings, value: Any, key: Any) -> tuple[Any, Any]:
    if settings.value_serializer is not None and value is not None:
        value = settings.value_serializer(value)
    if settings.key_serializer is not None and key is not None:
        key = settings.key_serializer(key)
    return value, key


def as_bytes(given: Any, what: str) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    hint = "" if what == "header" else f" or set {what}.serializer"
    raise TypeError(f"a {what} is bytes or None, not {type(given).__name__}: encode it{hint}")


def as_headers(given: Any) -> Headers:
    """Pairs of a name and bytes or None, or a mapping of them."""
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    for place, pair in enumerate(pairs):
        try:
            name, value = pair
        except (TypeError, ValueError):
            name, value = None, None
        if not isinstance(name, str):
            raise TypeError(f"a header is a name (text) and bytes or None, not {pair!r}")
        if value is not None and value.__class__ is not bytes:
            pairs[place] = (name, as_bytes(value, "header"))
    return pairs


def as_timestamp(given: Any) -> int:
    timestamp_ms = as_whole_number(given, "a timestamp")
    if not 0 <= timestamp_ms <= LONG_MAX:
        raise ValueError(f"a timestamp is milliseconds since 1970, not {timestamp_ms}")
    return timestamp_ms


def as_whole_number(given: Any, what: str) -> int:
    try:
        return index(given)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {type(given).__name__}") from None
