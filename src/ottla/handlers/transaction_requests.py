"""From a request to the shard that holds its transactional id, and back.

Every handler of the transaction APIs asks through here, so that each of them only says what to ask
and how a refusal looks in its own response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError
from ottla.coordinator.shard import Fields
from ottla.protocol.error_codes import INVALID_PRODUCER_EPOCH, PRODUCER_FENCED

R = TypeVar("R")
Answer = Fields | Deferred[Fields]

# How long a client's next transaction waits for the markers of its last one.
PATIENCE_MS = 1_000

# Before this version of the transaction APIs, a fenced producer is told by another code.
FENCED_FROM = 2


def answered(
    asked: Deferred[R], fields_of: Callable[[R], Fields], refused: Callable[[int], Fields]
) -> Answer:
    """The response, now or later: from what was asked for, or from the code that came instead."""
    if asked.done:
        return _fields(asked, fields_of, refused)
    answer: Deferred[Fields] = Deferred()

    def done(outcome: Deferred[R]) -> None:
        try:
            fields = _fields(outcome, fields_of, refused)
        except OttlaError as failure:
            answer.fail(failure)
        else:
            answer.resolve(fields)

    asked.when_done(done)
    return answer


def _fields(
    asked: Deferred[R], fields_of: Callable[[R], Fields], refused: Callable[[int], Fields]
) -> Fields:
    try:
        result = asked.result()
    except ProtocolError as refusal:
        return refused(refusal.code)
    return fields_of(result)


def code_for(code: int, api_version: int) -> int:
    """The code as clients of this version know it."""
    if code == PRODUCER_FENCED and api_version < FENCED_FROM:
        return INVALID_PRODUCER_EPOCH
    return code
