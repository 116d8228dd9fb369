"""What both kinds of membership in a group share: their host, waiting, and the time between polls.

A membership is a flow that speaks with the coordinator in the background. Whatever takes partitions
from the application or gives them to it waits until the application is inside of a poll: what it
polled before counts as processed from then on, and its callbacks run in its own thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from ottla.base.ids import TopicPartition
from ottla.client.consumer_partitions import Subscription
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.coordinators import GROUP, Coordinators
from ottla.client.core import Core
from ottla.client.errors import ClientError, error_for
from ottla.client.group_commits import MemberIdentity
from ottla.client.nodes import COORDINATOR
from ottla.client.pending import Flow, Pending
from ottla.protocol import error_codes as codes

NEVER = float("inf")
"""As a deadline: a timer for it would stay for ever."""


class GroupHost(Protocol):
    """What a membership asks of its consumer."""

    subscription: Subscription

    async def in_poll(self) -> None:
        """Until the application polls, and has not been given anything in that poll."""

    async def tell_revoked(self, partitions: Sequence[TopicPartition]) -> None: ...

    async def tell_assigned(self, partitions: Sequence[TopicPartition]) -> None: ...

    async def tell_lost(self, partitions: Sequence[TopicPartition]) -> None: ...

    async def commit_before_revoking(self) -> None:
        """What was polled so far, if commits are automatic; never raises."""

    def note_identity(self) -> None:
        """It is in the group under another identity from now on."""

    def topics_to_read(self) -> list[str]:
        """Names, with a pattern resolved, in order."""

    def notify(self) -> None:
        """A poll that waits looks again."""

    def report(self, error: ClientError) -> None:
        """Raised by the next poll."""

    def poll_due_ms(self) -> float:
        """When the application has not polled for `max.poll.interval.ms`."""


class Signal:
    """Something to wait for, again and again, with a deadline."""

    __slots__ = ("_core", "_is_set", "_waiting")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._is_set = False
        self._waiting: Pending[None] | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiting is not None and not self._waiting.done:
            self._waiting.resolve(None)

    async def wait(self, deadline_ms: float) -> bool:
        """Whether it was set before the deadline; it is not set afterwards."""
        if not self._is_set and deadline_ms > self._core.now_ms:
            waiting: Pending[None] = Pending()
            self._waiting = waiting

            def end() -> None:
                if not waiting.done:
                    waiting.resolve(None)

            timer = None if deadline_ms == NEVER else self._core.timers.call_at(deadline_ms, end)
            try:
                await waiting
            finally:
                if timer is not None:
                    timer.cancel()
                self._waiting = None
        was_set, self._is_set = self._is_set, False
        return was_set


class GroupMember(ABC):
    """The common part of a membership; `_run` is its life."""

    holds_back = False
    """Whether nothing may be handed out now: partitions are about to be given up."""

    def __init__(
        self, core: Core, settings: ConsumerSettings, coordinators: Coordinators, host: GroupHost
    ) -> None:
        self.core = core
        self.settings = settings
        self.host = host
        self.group_id = settings.group_id or ""
        self.nudge = Signal(core)
        """Set when there is something to do before the next heartbeat."""
        self._coordinators = coordinators
        self._life: Flow[None] | None = None

    def start(self) -> None:
        if self._life is None or self._life.done:
            self._life = self.core.spawn(self._guarded())
            self._life.when_done(lambda _: None)

    def stop(self) -> None:
        """Ends the flow; `leave` tells the coordinator."""
        if self._life is not None:
            self._life.cancel()
            self._life = None

    def is_polled_in_time(self) -> bool:
        return self.core.now_ms < self.host.poll_due_ms()

    def next_look_ms(self, due_ms: float) -> float:
        """When a pause until `due_ms` ends: sooner if the application has to poll before that."""
        poll_due_ms = self.host.poll_due_ms()
        return min(due_ms, poll_due_ms) if poll_due_ms > self.core.now_ms else due_ms

    def hand_out_again(self) -> None:
        """What was to be given up has been."""
        if self.holds_back:
            self.holds_back = False
            self.host.notify()

    def on_subscription_changed(self) -> None:
        self.nudge.set()

    def on_metadata_changed(self) -> None:
        self.nudge.set()

    @abstractmethod
    def on_ousted(self, code: int, identity: MemberIdentity) -> None:
        """What was asked by this name was refused with this code."""

    @abstractmethod
    def identity(self) -> MemberIdentity | None:
        """Who commits; None while it is not in the group."""

    @abstractmethod
    async def leave(self, reason: str) -> None:
        """Tells the coordinator, so that others need not wait; never raises."""

    @abstractmethod
    def _run(self) -> Coroutine[Any, Any, None]:
        """Until something is wrong that only the application can mend."""

    async def _guarded(self) -> None:
        """Until it is stopped: what nothing can be done about is raised by the next poll, and the
        poll after that begins anew."""
        while True:
            try:
                await self._run()
            except ClientError as error:
                self.host.report(error)
                await self.core.sleep_until(self.core.now_ms + self.settings.retry_backoff_ms)
                await self.host.in_poll()

    async def ask(
        self, api_key: int, fields: dict[str, Any], purpose: str = COORDINATOR, **others: Any
    ) -> Any:
        """One question to the coordinator; whoever it is, if it has moved."""
        node = await self._coordinators.find(GROUP, self.group_id)
        try:
            return await self.core.request(node, api_key, fields, purpose=purpose, **others)
        except ClientError as error:
            if error.retriable:
                self.forget_coordinator()
            raise

    def forget_coordinator(self) -> None:
        self._coordinators.forget(GROUP, self.group_id)

    def refusal(self, code: int, message: str | None = None) -> ClientError:
        if code in (codes.NOT_COORDINATOR, codes.COORDINATOR_NOT_AVAILABLE):
            self.forget_coordinator()
        return error_for(code, f"group {self.group_id}", message)
