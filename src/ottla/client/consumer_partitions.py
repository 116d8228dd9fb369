"""What a consumer reads: its subscription, and of each partition where it stands.

Owns the states of a partition: without a position it waits for one (the group's commit, or a reset
to an end of the log), with one it is fetched unless it is paused or its position has to be checked
against a new leader. Never asks a broker; `consumer_positions` and `fetcher` do.

Always holds: `era` changes whenever what was fetched or asked before must not count any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.base.errors import check
from ottla.base.ids import TopicPartition
from ottla.client.consumer_errors import NotAssignedError
from ottla.client.errors import ClientError

EARLIEST = -2
LATEST = -1

NO_EPOCH = -1


class PartitionState:
    __slots__ = (
        "buffered",
        "checking",
        "era",
        "error",
        "failures",
        "fetch_offset",
        "high_watermark",
        "is_announced",
        "is_new",
        "key",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "not_before_ms",
        "paused",
        "position",
        "position_epoch",
        "preferred_replica",
        "preferred_until_ms",
        "reset_to",
    )

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.era = 0
        self.is_announced = True
        """False until the application has been told that it has this partition."""
        self.is_new = True
        """No position yet, and none was asked for: the group's commit decides."""
        self.position: int | None = None
        """The next offset to hand out."""
        self.position_epoch = NO_EPOCH
        """The leader epoch of the record before it, where that is known."""
        self.reset_to: int | None = None
        """EARLIEST, LATEST or a time: where it is to go, as soon as somebody has been asked."""
        self.leader_epoch = NO_EPOCH
        """Of the leader that the position is right for."""
        self.checking = False
        """Its leader changed: whether it has lost what was read is being asked."""
        self.failures = 0
        """How many attempts in a row to find its position came to nothing."""
        self.error: ClientError | None = None
        """Waits to be raised to the application; until then nothing is asked or fetched."""
        self.paused = False
        self.fetch_offset = 0
        """The next to fetch: at `position`, or behind what has been fetched in advance."""
        self.buffered = 0
        """How many answers with its records wait to be handed out."""
        self.preferred_replica: int | None = None
        self.preferred_until_ms = 0.0
        self.not_before_ms = 0.0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """The next record is the one at `offset`; what was fetched or asked before is void."""
        self._forget_fetched()
        self.is_new = False
        self.reset_to = None
        self.position = self.fetch_offset = offset
        self.position_epoch = epoch
        self.checking = False

    def reset(self, to: int) -> None:
        """Somebody has to be asked where that is."""
        self._forget_fetched()
        self.is_new = False
        self.position = None
        self.position_epoch = NO_EPOCH
        self.checking = False
        self.reset_to = to

    def refetch(self) -> None:
        """What was fetched in advance is fetched again."""
        self._forget_fetched()
        if self.position is not None:
            self.fetch_offset = self.position

    def advance(self, position: int, epoch: int) -> None:
        """Everything before it has been handed out."""
        check(self.position is not None and position >= self.position, "a position goes forward")
        self.position = position
        if epoch != NO_EPOCH:
            self.position_epoch = epoch

    def is_fetchable(self, now_ms: float) -> bool:
        return (
            self.position is not None
            and not self.paused
            and not self.checking
            and self.error is None
            and self.is_announced
            and self.not_before_ms <= now_ms
        )

    def lag(self, *, committed_only: bool) -> int | None:
        """Records between the position and the end, as of the last answer."""
        end = self.last_stable_offset if committed_only else self.high_watermark
        if end is None or self.position is None:
            return None
        return max(0, end - self.position)

    def _forget_fetched(self) -> None:
        self.era += 1
        self.error = None
        self.buffered = 0
        self.not_before_ms = 0.0


class Subscription:
    """One of: nothing, names of topics, a pattern, partitions given by hand."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern: str | None = None
        """One that the broker matches (KIP-848)."""
        self.is_by_hand = False
        self.partitions: dict[TopicPartition, PartitionState] = {}

    def is_by_group(self) -> bool:
        return bool(self.topics) or self.pattern is not None or self.broker_pattern is not None

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: re.Pattern[str] | None = None,
        broker_pattern: str | None = None,
    ) -> None:
        if self.is_by_hand:
            raise ClientError("this consumer has partitions assigned by hand: unsubscribe first")
        self.topics = frozenset(topics)
        self.pattern = pattern
        self.broker_pattern = broker_pattern

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self.is_by_group():
            raise ClientError("this consumer is subscribed to topics: unsubscribe first")
        self.is_by_hand = True
        self.set_partitions(partitions)

    def clear(self) -> None:
        self.topics = frozenset()
        self.pattern = self.broker_pattern = None
        self.is_by_hand = False
        self.set_partitions(())

    def set_partitions(self, wanted: Iterable[TopicPartition]) -> list[PartitionState]:
        """These from now on; the ones that stay keep their state. The new ones are returned."""
        kept: dict[TopicPartition, PartitionState] = {}
        added = []
        for key in wanted:
            state = self.partitions.get(key)
            if state is None:
                state = PartitionState(key)
                added.append(state)
            kept[key] = state
        for key, state in self.partitions.items():
            if key not in kept:
                state.refetch()  # whatever still comes for it is void
        self.partitions = kept
        return added

    def state_of(self, key: TopicPartition) -> PartitionState:
        state = self.partitions.get(key)
        if state is None:
            topic, partition = key
            raise NotAssignedError(f"partition {partition} of {topic} is not assigned here")
        return state

    def topics_of_partitions(self) -> set[str]:
        return {topic for topic, _ in self.partitions}
