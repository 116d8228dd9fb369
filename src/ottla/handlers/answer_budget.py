"""How much one answer may hold: a small request can ask for the same thing thousands of times.

A handler takes from the budget before it adds to its answer. Whoever asks for more than the bound
is no client of any kind, and its connection is closed.
"""

from __future__ import annotations

from ottla.base.limits import RESPONSE_BYTES_MAX, RESPONSE_ENTRIES_MAX
from ottla.handlers.reply import CloseConnection


class AnswerBudget:
    __slots__ = ("_bound", "_left", "_what")

    def __init__(self, bound: int, what: str) -> None:
        self._bound = self._left = bound
        self._what = what

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise CloseConnection(
                f"it asked for an answer of more than {self._bound:,} {self._what}"
            )


def entries() -> AnswerBudget:
    """For answers made of mappings, which cost memory and time each."""
    return AnswerBudget(RESPONSE_ENTRIES_MAX, "entries")


def encoded_bytes() -> AnswerBudget:
    return AnswerBudget(RESPONSE_BYTES_MAX, "bytes")
