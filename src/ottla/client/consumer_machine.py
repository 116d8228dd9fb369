"""The consumer as a machine without IO: subscription, membership, positions, fetches, commits.

Owns how these play together; the shells (`consumer`, `aio_consumer`) only wait and call back. The
application drives it by polling: while it is inside of a poll its callbacks run and partitions may
be taken from it, and what it polled before counts as processed.

Never decodes a record (`consumer_reading` does, outside of any lock). Always holds: a position is
committed automatically only when the application has come back for more.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ConfigError, check
from ottla.base.ids import TopicPartition
from ottla.client.consumer_offsets import OffsetQuestions
from ottla.client.consumer_partitions import PartitionState, Subscription
from ottla.client.consumer_positions import Positions, ResetPolicy
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.coordinators import Coordinators
from ottla.client.core import Core
from ottla.client.errors import ClientError, error_for
from ottla.client.fetch_queue import FetchedItem
from ottla.client.fetcher import Fetcher
from ottla.client.group_classic import ClassicMember
from ottla.client.group_commits import GroupCommits, MemberIdentity
from ottla.client.group_consumer import ConsumerMember
from ottla.client.group_member import GroupMember
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.pending import Flow, Pending
from ottla.protocol import error_codes as codes

logger = logging.getLogger("ottla.client")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
RebalanceCallback = Callable[[list[TopicPartition]], Any]

_HOPELESS = frozenset({codes.TOPIC_AUTHORIZATION_FAILED, codes.INVALID_TOPIC_EXCEPTION})


class Callbacks(NamedTuple):
    """What the application wants to be told of; in its own thread, while it polls."""

    assigned: RebalanceCallback | None = None
    revoked: RebalanceCallback | None = None
    lost: RebalanceCallback | None = None


class UserCall(NamedTuple):
    """A callback to be run by whoever polls, and what waits for its end."""

    function: RebalanceCallback
    partitions: list[TopicPartition]
    done: Pending[None]


class ConsumerMachine:
    def __init__(
        self,
        settings: ConsumerSettings,
        chance: Callable[[], float],
        wall_clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self.settings = settings
        self.core = Core(settings, chance, auto_create=settings.allow_auto_create_topics)
        self.subscription = Subscription()
        self.callbacks = Callbacks()
        self._new_id = new_id
        self._coordinators = Coordinators(self.core)
        read_committed = settings.isolation_level == "read_committed"
        self.questions = OffsetQuestions(self.core, read_committed=read_committed)
        self.commits: GroupCommits | None = None
        if settings.group_id is not None:
            self.commits = GroupCommits(
                self.core,
                self._coordinators,
                settings.group_id,
                self.identity,
                require_stable=read_committed,
            )
            self.commits.on_ousted = self._on_ousted
        self.member: GroupMember | None = None
        self.last_identity = MemberIdentity()
        """Who it was when it was last in the group: under this name it has got its records. Without
        one, a broker takes the offsets of a transaction from anybody, whoever has read on since."""
        self.fetcher = Fetcher(self.core, settings, self.subscription)
        self.positions = Positions(
            self.core,
            self.subscription,
            self.questions,
            self.fetcher.queue,
            ResetPolicy(settings.auto_offset_reset, wall_clock),
            self.commits,
        )
        self.fetcher.on_ready = self.positions.on_ready = self.notify
        self.positions.on_changed = self.fetcher.touch
        self.fetcher.reset_policy = self.positions.reset_by_policy
        self.core.metadata.listeners.append(self._on_metadata)
        self.core.turn_ends.append(self._on_turn_end)
        self.core.on_close.append(self.notify)  # a poll that waits is to hear of it
        # Polling.
        self._polls = 0
        self._is_reading = False
        """Whether this poll has got hold of something to hand out: it is not processed yet."""
        self._last_poll_ms = 0.0
        self._gate: Pending[None] | None = None
        self._waiting: Pending[None] | None = None
        self._user_calls: deque[UserCall] = deque()
        self._errors: deque[ClientError] = deque()
        self._auto_commit_due_ms = 0.0
        self._auto_commit: Flow[None] | None = None
        self.records_total = 0
        self.poll_total = 0

    # ------------------------------------------------------------------------- what to read

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: re.Pattern[str] | None,
        broker_pattern: str | None,
        callbacks: Callbacks,
    ) -> None:
        if self.commits is None:
            raise ConfigError("group.id is missing: a subscription is shared by a group")
        self.subscription.subscribe(topics, pattern, broker_pattern)
        self.callbacks = callbacks
        self.core.metadata.all_topics = pattern is not None or broker_pattern is not None
        self._want_topics()
        if self.core.metadata.all_topics:
            self.core.metadata.request_update()
        if self.member is None:
            self.member = self._new_member()
        else:
            self.member.on_subscription_changed()

    def _new_member(self) -> GroupMember:
        parts = (self.core, self.settings, self._coordinators, self)
        if self.settings.group_protocol == "consumer":
            return ConsumerMember(*parts, member_id=self._new_id())
        return ClassicMember(*parts)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.subscription.assign(partitions)
        self.last_identity = MemberIdentity()
        self._want_topics()
        self.positions.on_metadata_changed()
        self.fetcher.touch()

    async def unsubscribe(self) -> None:
        """Leaves the group, if it is in one; the callbacks have been called by then.

        Who does not wait for the end has left all the same: others shall get its partitions.
        """
        member, self.member = self.member, None
        try:
            if member is not None:
                await self.core.spawn(member.leave("it unsubscribed"))
        finally:
            self.subscription.clear()
            self.core.metadata.all_topics = False
            self._want_topics()

    def _want_topics(self) -> None:
        topics = set(self.subscription.topics) | self.subscription.topics_of_partitions()
        if isinstance(self.member, ClassicMember):
            topics |= self.member.topics_of_group()
        if not self.core.metadata.all_topics:
            self.core.metadata.set_wanted(topics)

    def topics_to_read(self) -> list[str]:
        pattern = self.subscription.pattern
        if pattern is None:
            return sorted(self.subscription.topics)
        hidden = self.settings.exclude_internal_topics
        return sorted(
            name
            for name, info in self.core.cluster.topics.items()
            if info.error_code == codes.NONE
            and not (info.is_internal and hidden)
            and pattern.search(name)
        )

    def _on_metadata(self) -> None:
        for name in self.subscription.topics | self.subscription.topics_of_partitions():
            info = self.core.cluster.topics.get(name)
            if info is not None and info.error_code in _HOPELESS:
                self.report(error_for(info.error_code, f"topic {name}"))
        self.positions.on_metadata_changed()
        self.fetcher.touch()
        if self.member is not None:
            self.member.on_metadata_changed()

    def _on_turn_end(self) -> None:
        self.positions.look()
        self.fetcher.send_fetches()

    # ------------------------------------------------------------------------------- polling

    def begin_poll(self) -> None:
        self._polls += 1
        self._is_reading = False
        self.poll_total += 1
        self._last_poll_ms = self.core.now_ms
        self.positions.ask_again()
        if self.member is not None:
            self.member.start()
        elif not self.subscription.is_by_hand:
            raise ClientError("this consumer reads nothing: subscribe or assign first")
        self._maybe_auto_commit()
        self._open_gate()

    def end_poll(self) -> None:
        self._polls -= 1
        self._last_poll_ms = self.core.now_ms

    def next_call(self) -> UserCall | None:
        return self._user_calls.popleft() if self._user_calls else None

    def next_item(self, *, is_first: bool = True) -> FetchedItem | None:
        """What is to be handed out next; raises what went wrong before it. Who has something in
        hand already (not `is_first`) gets None instead: it would be lost."""
        if not is_first and self.is_interrupted():
            return None
        if self._errors:
            raise self._errors.popleft()
        if self.member is not None and self.member.holds_back:
            return None
        item = self.fetcher.queue.first()
        if item is not None and item.error is not None:
            if not is_first:
                return None
            self.fetcher.queue.done(item)
            self.fetcher.touch()
            raise item.error
        self._is_reading = self._is_reading or item is not None
        return item

    def next_items(self) -> list[FetchedItem]:
        """As `next_item`, and all behind it up to the next that went wrong."""
        if self.next_item() is None:
            return []
        items = []
        for item in self.fetcher.queue.items():
            if item.error is not None:
                break
            items.append(item)
        return items

    def ready(self) -> Pending[None]:
        """Settled as soon as there may be something to hand out, or a callback to run. The poll
        has nothing to hand out so far."""
        self._is_reading = False
        self._open_gate()
        if self._waiting is None or self._waiting.done:
            self._waiting = Pending()
        return self._waiting

    def took(self, item: FetchedItem, position: int, epoch: int, *, is_done: bool) -> None:
        """Records of `item` before `position` have been handed out."""
        if item.era == item.state.era:
            item.state.advance(position, epoch)
        if is_done:
            self.fetcher.queue.done(item)
            self.fetcher.touch()

    def is_interrupted(self) -> bool:
        """Whether something is to be done before more is handed out."""
        return bool(self._errors or self._user_calls)

    def has_something(self) -> bool:
        """Whether a poll that found nothing should look again at once."""
        if self.is_interrupted():
            return True
        is_held = self.member is not None and self.member.holds_back
        return not is_held and self.fetcher.queue.first() is not None

    def raise_reported(self) -> None:
        if self._errors:
            raise self._errors.popleft()

    def notify(self) -> None:
        if self._waiting is not None and not self._waiting.done:
            self._waiting.resolve(None)

    # ----------------------------------------------------------- what a membership asks for

    async def in_poll(self) -> None:
        """From the moment on when a poll has got hold of records, the next poll is waited for:
        positions are behind them, and the application has not seen them yet."""
        while self._polls == 0 or self._is_reading:
            if self._gate is None:
                self._gate = Pending()
            await self._gate

    def _open_gate(self) -> None:
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate.resolve(None)

    def poll_due_ms(self) -> float:
        since_ms = self.core.now_ms if self._polls > 0 else self._last_poll_ms
        return since_ms + self.settings.max_poll_interval_ms

    async def tell_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._tell(self.callbacks.revoked, partitions)

    async def tell_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._want_topics()
        self.positions.on_metadata_changed()
        await self._tell(self.callbacks.assigned, partitions)
        self.fetcher.touch()
        self.notify()

    async def tell_lost(self, partitions: Sequence[TopicPartition]) -> None:
        callback = self.callbacks.lost or self.callbacks.revoked
        await self._tell(callback, partitions)

    async def _tell(
        self, callback: RebalanceCallback | None, partitions: Sequence[TopicPartition]
    ) -> None:
        if callback is not None:
            call = UserCall(callback, list(partitions), Pending())
            self._user_calls.append(call)
            self.notify()
            await call.done

    def report(self, error: ClientError) -> None:
        if all(str(waiting) != str(error) for waiting in self._errors):
            self._errors.append(error)
        self.notify()

    def _on_ousted(self, code: int, identity: MemberIdentity) -> None:
        if self.member is not None:
            self.member.on_ousted(code, identity)

    def identity(self) -> MemberIdentity | None:
        """None if it is subscribed and not in the group (any more)."""
        return MemberIdentity() if self.member is None else self.member.identity()

    def note_identity(self) -> None:
        self.last_identity = self.identity() or self.last_identity

    # ------------------------------------------------------------------------------- commits

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all partitions that have one."""
        return {
            key: OffsetAndMetadata(state.position, state.position_epoch)
            for key, state in self.subscription.partitions.items()
            if state.position is not None
        }

    def require_group(self) -> GroupCommits:
        if self.commits is None:
            raise ConfigError("group.id is missing: offsets are committed by a group")
        return self.commits

    async def commit(self, offsets: Offsets, deadline_ms: float) -> None:
        await self.require_group().commit(offsets, deadline_ms)

    def commit_in_background(
        self, offsets: Offsets, on_done: Callable[[BaseException | None], None]
    ) -> None:
        """One attempt: a later commit may have been made meanwhile."""
        flow = self.core.spawn(self.require_group().commit_once(offsets))
        flow.when_done(lambda done: on_done(done.error()))

    def _commits_by_itself(self) -> bool:
        return self.settings.enable_auto_commit and self.commits is not None

    def _maybe_auto_commit(self) -> None:
        if not self._commits_by_itself() or self._auto_commit is not None:
            return
        if self.core.now_ms < self._auto_commit_due_ms:
            return
        is_first = self._auto_commit_due_ms == 0.0
        self._auto_commit_due_ms = self.core.now_ms + self.settings.auto_commit_interval_ms
        offsets = self.consumed()
        if offsets and not is_first:
            self._auto_commit = self.core.spawn(self._commit_quietly(offsets))
            self._auto_commit.when_done(self._on_auto_committed)

    def _on_auto_committed(self, _: object) -> None:
        self._auto_commit = None

    async def _commit_quietly(self, offsets: Offsets) -> None:
        check(self.commits is not None, "only groups commit")
        deadline_ms = self.core.now_ms + self.settings.request_timeout_ms
        try:
            # A topic that was deleted must not hold up the others: the next poll waits for this.
            await self.require_group().commit(offsets, deadline_ms, waits_for_topics=False)
        except ClientError as error:
            logger.warning("group %s: offsets not committed: %s", self.settings.group_id, error)

    async def commit_before_revoking(self) -> None:
        if self._commits_by_itself():
            await self._commit_quietly(self.consumed())

    # ------------------------------------------------------------------------------- the end

    async def close(self, offsets: Offsets | None) -> None:
        """Commits `offsets` if commits are automatic, and leaves the group."""
        if offsets and self._commits_by_itself():
            await self._commit_quietly(offsets)
        self.positions.stop()
        member, self.member = self.member, None
        if member is not None:
            await member.leave("the consumer was closed")

    def state_of(self, key: TopicPartition) -> PartitionState:
        return self.subscription.state_of(key)

    def caught_up(self) -> dict[TopicPartition, int]:
        """Assigned partitions of which nothing is left to hand out, as of the last answer, and the
        offset behind all of it: behind what a reader does not get to see, too."""
        committed_only = self.settings.isolation_level == "read_committed"
        return {
            key: state.position
            for key, state in self.subscription.partitions.items()
            if state.lag(committed_only=committed_only) == 0 and state.position is not None
        }

    def metrics(self) -> dict[str, float]:
        committed_only = self.settings.isolation_level == "read_committed"
        states = self.subscription.partitions.values()
        lags = [state.lag(committed_only=committed_only) or 0 for state in states]
        return {
            "records-consumed-total": float(self.records_total),
            "bytes-consumed-total": float(self.fetcher.bytes_total),
            "fetch-total": float(self.fetcher.fetch_total),
            "poll-total": float(self.poll_total),
            "assigned-partitions": float(len(lags)),
            "records-lag-max": float(max(lags, default=0)),
            "answers-waiting": float(sum(state.buffered for state in states)),
        }
