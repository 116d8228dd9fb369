"""Runs the controller's decisions: decide on the newest image, write, apply, publish, answer.

One at a time, in the order in which they were submitted. The image is replaced only by what the
store has accepted, through `changes.apply`; whoever submitted hears of it when this broker acts on
the change, so a topic that was answered for can be produced to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.base.ports import Pool
from ottla.metadata.changes import apply, image_from_snapshot
from ottla.metadata.controller import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import Change, MetadataStore, VersionConflict

R = TypeVar("R")
Publish = Callable[[MetadataImage, MetadataImage], Deferred[None]]
Decide = Callable[[MetadataImage], Decision[Any]]


class ControllerDriver:
    def __init__(
        self, store: MetadataStore, pool: Pool, image: MetadataImage, publish: Publish
    ) -> None:
        self.image = image
        self._store = store
        self._pool = pool
        self._publish = publish
        self._waiting: deque[tuple[Decide, Deferred[Any]]] = deque()
        self._busy = False

    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Deferred[R]:
        deferred: Deferred[R] = Deferred()
        self._waiting.append((decide, deferred))
        self._next()
        return deferred

    def _next(self) -> None:
        while self._waiting and not self._busy:
            decide, deferred = self._waiting.popleft()
            try:
                decision = decide(self.image)
            except ProtocolError as refused:
                deferred.fail(refused)
                continue
            if not decision.writes:
                deferred.resolve(decision.response)
                continue
            self._busy = True
            self._commit(decide, decision, deferred)

    def _commit(self, decide: Decide, decision: Decision[Any], deferred: Deferred[Any]) -> None:
        def committed(outcome: Deferred[Change]) -> None:
            try:
                change = outcome.result()
            except VersionConflict:
                # Somebody else wrote first: look again and decide anew.
                self._reload(decide, deferred)
                return
            except Exception as error:
                self._done(partial(deferred.fail, error))
                return
            self._adopt(apply(self.image, change), decision.response, deferred)

        self._pool.run(self._store.commit, decision.writes).when_done(committed)

    def _reload(self, decide: Decide, deferred: Deferred[Any]) -> None:
        def loaded(outcome: Deferred[Any]) -> None:
            try:
                self.image = image_from_snapshot(outcome.result())
            except Exception as error:
                self._done(partial(deferred.fail, error))
                return
            self._waiting.appendleft((decide, deferred))
            self._done(lambda: None)

        self._pool.run(self._store.load).when_done(loaded)

    def _adopt(self, image: MetadataImage, response: Any, deferred: Deferred[Any]) -> None:
        old, self.image = self.image, image

        def published(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except Exception as error:
                self._done(partial(deferred.fail, error))
                return
            self._done(lambda: deferred.resolve(response))

        self._publish(old, image).when_done(published)

    def _done(self, tell: Callable[[], None]) -> None:
        self._busy = False
        tell()
        self._next()
