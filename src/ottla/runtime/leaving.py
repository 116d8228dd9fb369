"""A broker that stops while others go on: it says so, and hands over by commits of its own.

First its registration says that it leaves, so that nobody gives it anything any more. Then what it
leads goes to others in its in-sync sets, and it leaves those sets wherever another member stays.
It is over when nothing is left that another could take, or after the time that
`controlled.shutdown.*` allows; whatever is left then has to wait for its death to be noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.ports import Timers
from ottla.metadata.decision import Decision
from ottla.metadata.duties import Done
from ottla.metadata.image import MetadataImage
from ottla.metadata.registrations import decide_hand_over, decide_stopping
from ottla.metadata.topic_settings import TopicSettings

log = logging.getLogger("ottla.runtime")

R = TypeVar("R")
RETRY_MS = 200


class Member(Protocol):
    """What the driver offers to it."""

    broker_id: int

    @property
    def image(self) -> MetadataImage: ...
    def settings(self) -> TopicSettings: ...
    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Deferred[R]: ...
    def when_acted(self) -> Deferred[None]: ...


class Leaving:
    def __init__(self, member: Member, timers: Timers) -> None:
        self._member = member
        self._timers = timers
        self._left: Deferred[None] | None = None

    @property
    def has_begun(self) -> bool:
        return self._left is not None

    def begin(self) -> Deferred[None]:
        if self._left is not None:
            return self._left
        left: Deferred[None] = Deferred()
        self._left = left
        config = self._member.settings().config
        if not config.get_bool("controlled.shutdown.enable") or self._is_alone():
            left.resolve(None)
            return left
        attempts = 1 + config.get_int("controlled.shutdown.max.retries")
        patience_ms = attempts * config.get_int("controlled.shutdown.retry.backoff.ms")
        self._timers.call_later(patience_ms, self._give_up)
        self._say()
        return left

    def abandon(self) -> None:
        """The session has ended: there is nothing left to hand over."""
        self._finish()

    def _is_alone(self) -> bool:
        image = self._member.image
        return not any(
            image.may_lead(one) for one in image.brokers if one != self._member.broker_id
        )

    def _say(self) -> None:
        said = self._member.submit(lambda image: decide_stopping(image, self._member.broker_id))
        said.when_done(lambda outcome: self._then(outcome, self._hand_over, self._say))

    def _hand_over(self) -> None:
        member = self._member
        more = True

        def decide(image: MetadataImage) -> Decision[Done]:
            nonlocal more
            decision = decide_hand_over(image, member.broker_id, member.settings())
            more = decision is not None
            return decision or Decision([], Done())

        def handed_over() -> None:
            if more:
                self._hand_over()
            else:
                # Who still asks here is told the new leaders before the connection ends.
                member.when_acted().when_done(lambda _: self._finish())

        handing = member.submit(decide)
        handing.when_done(lambda outcome: self._then(outcome, handed_over, self._hand_over))

    def _then(
        self, outcome: Deferred[R], go_on: Callable[[], None], again: Callable[[], None]
    ) -> None:
        if self._left is None or self._left.done:
            return
        if outcome.error() is None:
            go_on()
        else:
            log.info("handing over has to wait: %s", outcome.error())
            self._timers.call_later(RETRY_MS, again)

    def _give_up(self) -> None:
        if self._left is not None and not self._left.done:
            log.warning("this broker stops without having handed over everything")
            self._finish()

    def _finish(self) -> None:
        if self._left is not None and not self._left.done:
            self._left.resolve(None)
