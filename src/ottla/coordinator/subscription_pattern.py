"""Regular expressions that members subscribe by: RE2, so that no expression can take for ever.

The library is loaded by the first expression: most brokers never see one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from ottla.base.errors import ProtocolError
from ottla.base.ports import Clock
from ottla.protocol.error_codes import INVALID_REGULAR_EXPRESSION

log = logging.getLogger("ottla.coordinator")

# What an expression may need in memory. With RE2's own 8 MiB there are some that take a quarter of
# a second to compile; with this none takes more than 3 ms.
PATTERN_BYTES_MAX = 256 * 1024

# So long the names of topics are tried in one turn of the loop; a name costs 6 µs, with the most
# hostile expressions up to 3 ms.
TURN_MS_MAX = 5
NAMES_BETWEEN_LOOKS = 16

# What RE2 calls it, and what RE2/J does, which Kafka uses: people look for the words they know.
KAFKAS_WORDS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
}


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """Raises ProtocolError if it is none."""
    re2 = import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as cause:
        reason = cause.args[0]
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        # "missing ): (" ends with the part that is wrong, which is no help in a short expression.
        what, _, part = reason.partition(": ")
        # A look behind begins like a name; RE2/J takes it for one.
        told = "invalid named capture" if part.startswith("(?<") else KAFKAS_WORDS.get(what, what)
        raise ProtocolError(
            INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {told}.",
        ) from None


class Resolution:
    """The search for the topics that some expressions match, a part of it at a time."""

    __slots__ = ("_found", "_left", "names", "started_ms")

    def __init__(self, patterns: Iterable[str], names: Iterable[str], started_ms: int) -> None:
        self.started_ms = started_ms
        self.names = frozenset(names)
        self._left = list(self.names)
        self._found: dict[str, list[str]] = {pattern: [] for pattern in patterns}

    def go_on(self, clock: Clock) -> bool:
        """Tries some names; whether all are tried."""
        until_ms = clock.monotonic_ms() + TURN_MS_MAX
        matchers = list(self._matchers())
        while self._left:
            for _ in range(min(NAMES_BETWEEN_LOOKS, len(self._left))):
                name = self._left.pop()
                for matches, found in matchers:
                    if matches(name) is not None:
                        found.append(name)
            if clock.monotonic_ms() >= until_ms:
                break
        return not self._left

    def _matchers(self) -> Iterator[tuple[Callable[[str], Any], list[str]]]:
        for pattern, found in self._found.items():
            try:
                yield compiled(pattern).fullmatch, found
            except ProtocolError as refusal:
                # A Kafka that had this log before has let it pass; to us it matches nothing.
                log.warning("a pattern of topics is left out: %r", str(refusal))

    def result(self) -> dict[str, frozenset[str]]:
        return {pattern: frozenset(found) for pattern, found in self._found.items()}
