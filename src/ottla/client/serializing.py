"""Keys and values into bytes: the user's serializers, or bytes as they are."""

from __future__ import annotations

from typing import Any

from ottla.client.producer_settings import ProducerSettings


def serialize(settings: ProducerSettings, value: Any, key: Any) -> tuple[Any, Any]:
    if settings.value_serializer is not None and value is not None:
        value = settings.value_serializer(value)
    if settings.key_serializer is not None and key is not None:
        key = settings.key_serializer(key)
    return value, key


def as_bytes(given: Any, what: str) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(
        f"a {what} is bytes or None, not {type(given).__name__}: encode it or set {what}.serializer"
    )
