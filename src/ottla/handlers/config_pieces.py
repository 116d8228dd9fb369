"""DescribeConfigs answers, put together from encoded pieces: settings that are alike are encoded
once, however many resources have them.

Knows nothing of the wire but where the list of settings stands in a result: at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.protocol.messages import encode_response
from ottla.protocol.primitives import uvarint

DESCRIBE_CONFIGS = 32
FIRST_FLEXIBLE_VERSION = 4

Fields = Mapping[str, Any]

NO_RESULT: Fields = {
    "error_code": 0,
    "error_message": None,
    "resource_type": 0,
    "resource_name": "",
    "configs": [],
}


class ConfigPieces:
    __slots__ = ("_configs_start", "_empty", "_start", "_trailing", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self._trailing = 1 if version >= FIRST_FLEXIBLE_VERSION else 0  # no tagged fields
        nothing = encode_response(DESCRIBE_CONFIGS, version, {"throttle_time_ms": 0, "results": []})
        self._start = len(nothing) - self._trailing
        self._empty = len(self._count(0)) + self._trailing
        self._configs_start = len(self._encoded(NO_RESULT)) - self._empty

    def head(self, result: Fields) -> bytes:
        """A result without settings, as far as to their list."""
        encoded = self._encoded({**result, "configs": []})
        return encoded[: len(encoded) - self._empty]

    def settings(self, configs: Sequence[Fields]) -> bytes:
        """The list of settings and what stands behind it: the rest of a result."""
        return self._encoded({**NO_RESULT, "configs": configs})[self._configs_start :]

    def begin(self, count: int) -> bytes:
        """What stands before this many results."""
        return bytes(4) + self._count(count)

    def end(self) -> bytes:
        return bytes(self._trailing)

    def _encoded(self, result: Fields) -> bytes:
        """One result as it stands in the list of results."""
        fields = {"throttle_time_ms": 0, "results": [result]}
        alone = encode_response(DESCRIBE_CONFIGS, self._version, fields)
        return alone[self._start : len(alone) - self._trailing]

    def _count(self, count: int) -> bytes:
        if self._version < FIRST_FLEXIBLE_VERSION:
            return count.to_bytes(4, "big")
        return uvarint(count + 1)
