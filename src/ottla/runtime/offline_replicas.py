"""Tells the cluster which replicas of this broker are of no use any more.

A commit of this broker's own takes it out of their in-sync sets and gives their leaderships to
others. What can't be written is tried again, until there is nothing left to write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Timers
from ottla.metadata.decision import Decision
from ottla.metadata.duties import Done
from ottla.metadata.image import MetadataImage
from ottla.metadata.offline_replicas import decide_offline_replicas
from ottla.metadata.topic_settings import TopicSettings

log = logging.getLogger("ottla.runtime")

R = TypeVar("R")
RETRY_MS = 1_000


class Deciding(Protocol):
    """What the metadata driver offers."""

    def settings(self) -> TopicSettings: ...
    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Deferred[R]: ...


class OfflineReplicas:
    def __init__(self, broker_id: int, metadata: Deciding, timers: Timers) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._timers = timers
        self._lost: dict[TopicPartition, None] = {}
        self._is_busy = False
        self._is_closed = False

    def add(self, lost: list[TopicPartition]) -> None:
        self._lost.update(dict.fromkeys(lost))
        self._next()

    def close(self) -> None:
        self._is_closed = True

    def _next(self) -> None:
        if self._is_busy or self._is_closed or not self._lost:
            return
        self._is_busy = True
        asked = list(self._lost)
        said = self._metadata.submit(
            lambda image: decide_offline_replicas(
                image, self._broker_id, asked, self._metadata.settings()
            )
        )
        said.when_done(lambda outcome: self._said(asked, outcome))

    def _said(self, asked: list[TopicPartition], outcome: Deferred[Done]) -> None:
        self._is_busy = False
        try:
            done = outcome.result()
        except OttlaError as failure:
            log.warning("%d replicas are offline, and nobody knows yet: %s", len(asked), failure)
            self._timers.call_later(RETRY_MS, self._next)
            return
        if not done.moved:
            for key in asked:
                del self._lost[key]
        self._next()
