"""Tells the cluster which replicas of this broker are of no use any more.

Commits of this broker's own say so in its registration, take it out of their in-sync sets and give
their leaderships to others. What can't be written is tried again, until there is nothing left to
write. A registration that does not say what is so is mended: a new one, after a lost session, says
nothing of it, and a replica that is of use again, or gone, is still named by the old one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.base.ports import Timers
from ottla.metadata.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.offline_replicas import Lost, decide_offline_replicas, is_told
from ottla.metadata.topic_settings import TopicSettings

log = logging.getLogger("ottla.runtime")

R = TypeVar("R")
RETRY_MS = 1_000


class Deciding(Protocol):
    """What the metadata driver offers."""

    def settings(self) -> TopicSettings: ...
    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Deferred[R]: ...


class OfflineReplicas:
    """`lost` says what is lost at the moment."""

    def __init__(
        self, broker_id: int, metadata: Deciding, timers: Timers, lost: Callable[[], Lost]
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._timers = timers
        self._lost = lost
        self._is_busy = False
        self._is_closed = False
        self._has_more = False
        """Something was lost while a commit was under way that does not know of it."""

    def tell(self) -> None:
        """Something has been lost."""
        self._has_more = True
        self._next()

    def on_image(self, image: MetadataImage) -> None:
        if not is_told(image, self._broker_id, self._lost()):
            self.tell()

    def close(self) -> None:
        self._is_closed = True

    def _next(self) -> None:
        if self._is_busy or self._is_closed or not self._has_more:
            return
        self._is_busy, self._has_more = True, False
        said = self._metadata.submit(
            lambda image: decide_offline_replicas(
                image, self._broker_id, self._lost(), self._metadata.settings()
            )
        )
        said.when_done(self._said)

    def _said(self, outcome: Deferred[bool]) -> None:
        self._is_busy = False
        try:
            self._has_more |= outcome.result()
        except OttlaError as failure:
            count = sum(map(len, self._lost().values()))
            log.warning("%d replicas are offline, and nobody knows yet: %s", count, failure)
            self._has_more = True
            self._timers.call_later(RETRY_MS, self._next)
            return
        self._next()
