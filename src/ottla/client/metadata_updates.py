"""Keeps the picture of the cluster fresh: asks when somebody needs it, and when it has aged.

Owns which topics are asked for and when. One Metadata request at a time, at least a backoff apart;
requests that come meanwhile share its answer. A topic that nobody uses for `metadata.max.idle.ms`
is no longer asked for. Where no known broker answers, the bootstrap addresses are tried again
(KIP-899).

Never fails for good while a broker might come back: whoever waits brings a deadline. Only what no
waiting can cure (credentials, a broker that is no Kafka) is raised to all who wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.client.backoff import backoff_ms
from ottla.client.cluster import TopicInfo, check_topic_name
from ottla.client.errors import (
    ClientError,
    TimedOutError,
    UnknownTopicError,
    error_for,
    is_retriable_code,
)
from ottla.client.pending import Cancelled, Flow, Pending
from ottla.client.timers import Timer
from ottla.protocol.api_keys import METADATA
from ottla.protocol.error_codes import (
    NONE,
    REBOOTSTRAP_REQUIRED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.primitives import NULL_UUID

if TYPE_CHECKING:
    from ottla.client.core import Core

logger = logging.getLogger("ottla.client")

PINNED = float("inf")
"""As a topic's last use: asked for until it is dropped by name."""


class MetadataUpdates:
    def __init__(self, core: Core, *, auto_create: bool, topic_idle_ms: float = PINNED) -> None:
        self._core = core
        self._auto_create = auto_create
        self._topic_idle_ms = topic_idle_ms
        self.all_topics = False
        self.wanted: dict[str, float] = {}  # topic -> when it was last used
        self._new: set[str] = set()
        self._needed = False
        self._waiting: list[Pending[None]] = []
        self._asking: list[Pending[None]] = []  # whose question is on its way
        self._wake: Pending[None] | None = None
        self._age_timer: Timer | None = None
        self._flow: Flow[None] | None = None
        self._failures = 0
        self._not_before_ms = 0.0
        self.updated_ms = 0.0
        self.listeners: list[Callable[[], None]] = []

    # ------------------------------------------------------------------------- asking for it

    def want(self, topic: str, used_ms: float = PINNED) -> None:
        """From now on this topic is asked for; at once, if it is new."""
        if topic not in self.wanted:
            check_topic_name(topic)
            self._new.add(topic)
            self._go()
        self.wanted[topic] = used_ms

    def set_wanted(self, topics: set[str]) -> None:
        """These and no others, as a subscription has it."""
        for topic in [one for one in self.wanted if one not in topics]:
            self.drop(topic)
        for topic in topics:
            self.want(topic)

    def drop(self, topic: str) -> None:
        self.wanted.pop(topic, None)
        self._new.discard(topic)
        self._core.cluster.forget([topic])

    def request_update(self) -> None:
        """What is known seems to be old: ask again, a backoff after the last time."""
        self._needed = True
        self._go()

    def next_update(self) -> Pending[None]:
        """Settled by the next answer that was asked for from now on."""
        pending: Pending[None] = Pending()
        self._waiting.append(pending)
        self.request_update()
        return pending

    async def topic(self, name: str, deadline_ms: float) -> TopicInfo:
        """What is known of a topic with partitions; waits for it to exist until the deadline."""
        core = self._core
        used_ms = self.wanted.get(name)
        if used_ms != PINNED:
            self.want(name, core.now_ms if self._topic_idle_ms != PINNED else PINNED)
        while True:
            info = core.cluster.topics.get(name)
            if info is not None:
                if info.error_code == NONE and info.partitions:
                    return info
                if info.error_code != NONE and not is_retriable_code(info.error_code):
                    self.drop(name)
                    raise error_for(info.error_code, f"topic {name}")
            try:
                await core.within(self.next_update(), deadline_ms, "metadata of the cluster")
            except TimedOutError as error:
                code = NONE if info is None else info.error_code
                if code == UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopicError(code, f"topic {name}") from error
                if code != NONE:
                    raise error_for(code, f"topic {name}") from error
                raise

    # ----------------------------------------------------------------------------- the flow

    def _go(self) -> None:
        if self._flow is None:
            self._flow = self._core.spawn(self._run())
            self._flow.when_done(self._on_end)
        elif self._wake is not None and not self._wake.done:
            self._wake.resolve(None)

    def _on_end(self, flow: Flow[None]) -> None:
        """It never ends but with the client, or by a defect: whoever waits must hear of that."""
        self._flow = None
        error = flow.error()
        if error is not None and not isinstance(error, Cancelled):
            logger.error("the metadata of the cluster cannot be asked for", exc_info=error)
            waiting, self._waiting = self._waiting + self._asking, []
            for pending in waiting:
                if not pending.done:
                    pending.fail(error)

    async def _run(self) -> None:
        while True:
            if not self._needed and not self._new:
                await self._until_due()
            await self._core.sleep_until(self._not_before_ms)
            await self._update()

    async def _until_due(self) -> None:
        wake: Pending[None] = Pending()
        self._wake = wake
        due_ms = self.updated_ms + self._core.settings.metadata_max_age_ms

        def on_age() -> None:
            self._needed = True
            if not wake.done:
                wake.resolve(None)

        timer = self._core.timers.call_at(due_ms, on_age)
        try:
            await wake
        finally:
            timer.cancel()
            self._wake = None

    async def _update(self) -> None:
        core = self._core
        complete = self._needed or not self._new
        asked = set(self.wanted) if complete else set(self._new)
        self._asking = waiting = self._waiting
        self._waiting = []
        self._new.clear()
        self._needed = False
        try:
            answer = await core.request(core.least_loaded(), METADATA, self._fields(asked))
        except ClientError as error:
            self._on_failure(error, waiting, asked)
            return
        if answer.error_code == REBOOTSTRAP_REQUIRED:
            logger.info("a broker says that the cluster is elsewhere: beginning anew")
            core.rebootstrap()
            self._ask_again(waiting, asked)
            return
        self._failures = 0
        self.updated_ms = core.now_ms
        self._wait_before_next(1)
        core.cluster.update(answer, all_topics=self.all_topics)
        self._expire_idle()
        for listener in self.listeners:
            listener()
        for pending in waiting:
            if not pending.done:
                pending.resolve(None)

    def _fields(self, topics: set[str]) -> dict[str, Any]:
        named = [{"topic_id": NULL_UUID, "name": name} for name in sorted(topics)]
        return {
            "topics": None if self.all_topics else named,
            "allow_auto_topic_creation": self._auto_create,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }

    def _on_failure(
        self, error: ClientError, waiting: list[Pending[None]], asked: set[str]
    ) -> None:
        if error.retriable:
            logger.debug("no metadata: %s", error)
            self._core.last_network_error = error
            self._ask_again(waiting, asked)
            return
        self._ask_again([], asked)
        logger.warning("no metadata: %s", error)
        for pending in waiting:
            if not pending.done:
                pending.fail(error)

    def _ask_again(self, waiting: list[Pending[None]], asked: set[str]) -> None:
        self._failures += 1
        self._wait_before_next(self._failures)
        self._new |= asked & self.wanted.keys()
        self._needed = True
        self._waiting = waiting + self._waiting

    def _wait_before_next(self, failures: int) -> None:
        settings = self._core.settings
        self._not_before_ms = self._core.now_ms + backoff_ms(
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            failures,
            self._core.chance(),
        )

    def _expire_idle(self) -> None:
        if self._topic_idle_ms == PINNED:
            return
        before_ms = self._core.now_ms - self._topic_idle_ms
        for topic in [name for name, used_ms in self.wanted.items() if used_ms < before_ms]:
            self.drop(topic)
