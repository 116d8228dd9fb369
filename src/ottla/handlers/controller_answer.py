"""Asking the controller, and the answer that a client is owed whatever comes of it.

What can't be written (a full disk, a store that fails) is told to the client item by item, as any
other refusal; only an error of the program itself goes on to the connection.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError, StorageError
from ottla.handlers.context import Context
from ottla.metadata.controller import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.partition_writes import PARTITIONS_MAX
from ottla.metadata.topic_settings import TopicSettings, settings_of
from ottla.protocol.error_codes import KAFKA_STORAGE_ERROR, message_of

log = logging.getLogger("ottla.handlers")

R = TypeVar("R")
T = TypeVar("T")
Fields = dict[str, Any]


def is_too_late(request: Any, asked_for: Iterable[object]) -> bool:
    """Whether its time was over before it came. Kafka's controller does not even begin with such a
    request: each item of it is told REQUEST_TIMED_OUT. But what is in it twice does not get there:
    with nothing else in it, it is answered as ever."""
    return request.timeout_ms <= 0 and 1 in Counter(asked_for).values()


def ask_controller(
    context: Context,
    decide: Callable[[MetadataImage], Decision[R]],
    respond: Callable[[R], Fields],
    refuse: Callable[[int, str | None], Fields],
) -> Deferred[Fields]:
    """`refuse` makes the answer in which every item has failed with this code and message."""
    return answer_with(context.services.controller.submit(decide), respond, refuse)


def answer_with(
    asked: Deferred[R],
    respond: Callable[[R], Fields],
    refuse: Callable[[int, str | None], Fields],
) -> Deferred[Fields]:
    answer: Deferred[Fields] = Deferred()

    def done(outcome: Deferred[R]) -> None:
        try:
            fields = respond(outcome.result())
        except ProtocolError as refused:
            fields = refuse(refused.code, refused.message or None)
        except StorageError as failure:
            log.warning("a change of the metadata could not be written: %s", failure)
            fields = refuse(KAFKA_STORAGE_ERROR, message_of(KAFKA_STORAGE_ERROR))
        except OttlaError as failure:
            answer.fail(failure)
            return
        answer.resolve(fields)

    asked.when_done(done)
    return answer


def ask_in_parts(
    context: Context,
    items: Sequence[T],
    decide: Callable[[MetadataImage, Sequence[T]], Decision[list[R]]],
    respond: Callable[[list[R]], Fields],
    refuse: Callable[[int, str | None], Fields],
) -> Deferred[Fields]:
    """As `ask_controller`, for as many items as a client likes: a commit does not hold more than
    some hundred partitions. Where a part can't be done, what was done before it stays done."""
    answer: Deferred[Fields] = Deferred()
    results: list[R] = []

    def next_part(first: int) -> None:
        part = items[first : first + PARTITIONS_MAX]

        def gathered(of_part: list[R]) -> Fields:
            results.extend(of_part)
            return respond(results) if first + len(part) >= len(items) else {}

        def done(outcome: Deferred[Fields]) -> None:
            if outcome.error() is None and outcome.result() == {}:
                next_part(first + len(part))
            else:
                outcome.tell(answer)

        asked = ask_controller(context, lambda image: decide(image, part), gathered, refuse)
        asked.when_done(done)

    next_part(0)
    return answer


def topic_settings(context: Context, image: MetadataImage) -> TopicSettings:
    """As of the image that is decided on, which may be newer than what this broker acts on."""
    return settings_of(image, context.services.broker_id, context.services.config)
