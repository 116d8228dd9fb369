"""Asking the controller, and the answer that a client is owed whatever comes of it.

What can't be written (a full disk, a store that fails) is told to the client item by item, as any
other refusal; only an error of the program itself goes on to the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError, StorageError
from ottla.handlers.context import Context
from ottla.metadata.controller import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_settings import TopicSettings, settings_of
from ottla.protocol.error_codes import KAFKA_STORAGE_ERROR, message_of

log = logging.getLogger("ottla.handlers")

R = TypeVar("R")
Fields = dict[str, Any]


def ask_controller(
    context: Context,
    decide: Callable[[MetadataImage], Decision[R]],
    respond: Callable[[R], Fields],
    refuse: Callable[[int, str | None], Fields],
) -> Deferred[Fields]:
    """`refuse` makes the answer in which every item has failed with this code and message."""
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

    context.services.controller.submit(decide).when_done(done)
    return answer


def topic_settings(context: Context, image: MetadataImage) -> TopicSettings:
    """As of the image that is decided on, which may be newer than what this broker acts on."""
    return settings_of(image, context.services.broker_id, context.services.config)
