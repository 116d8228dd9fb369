"""Where to begin: every partition without a position gets one, every doubtful one is checked.

A new partition begins at what its group has committed, else by `auto.offset.reset`: at an end of
the log, at a time, or not at all. When a partition has a new leader, its log may have lost records
that were read here (KIP-320); the leader says where the epoch of the last record ended, and what
lies behind that is read again.

Runs as one flow whenever there is something to do. What only the application can decide is put in
the way of its next poll. Always holds: an answer counts only if nobody has moved the position since
(`era`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable

from ottla.base.errors import ConfigError
from ottla.base.ids import TopicPartition
from ottla.client.consumer_errors import LogTruncatedError, NoOffsetError
from ottla.client.consumer_offsets import NOT_FOUND, OffsetQuestions
from ottla.client.consumer_partitions import (
    EARLIEST,
    LATEST,
    NO_EPOCH,
    PartitionState,
    Subscription,
)
from ottla.client.core import Core
from ottla.client.errors import ClientError, UnsupportedByBrokerError
from ottla.client.fetch_queue import FetchQueue
from ottla.client.group_commits import GroupCommits
from ottla.client.pending import Flow

logger = logging.getLogger("ottla.client")

Clock = Callable[[], float]
"""Milliseconds since 1970."""

_DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?")


class ResetPolicy:
    """`auto.offset.reset`: earliest, latest, none, or by_duration:PnDTnHnMnS (KIP-1106)."""

    def __init__(self, text: str, clock: Clock) -> None:
        self._clock = clock
        self._back_ms: int | None = None
        self._end: int | None = None
        named = {"earliest": EARLIEST, "latest": LATEST, "none": None}
        if text in named:
            self._end = named[text]
            return
        match = _DURATION.fullmatch(text)
        if match is None or not any(match.groups()):
            raise ConfigError(
                f"auto.offset.reset={text}: earliest, latest, none or by_duration:PT1H is needed"
            )
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        self._back_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000

    def target(self) -> int | None:
        """An end, a time, or None."""
        if self._back_ms is not None:
            return max(0, int(self._clock()) - self._back_ms)
        return self._end


class Positions:
    def __init__(
        self,
        core: Core,
        subscription: Subscription,
        questions: OffsetQuestions,
        queue: FetchQueue,
        policy: ResetPolicy,
        commits: GroupCommits | None,
    ) -> None:
        self._core = core
        self._subscription = subscription
        self._questions = questions
        self._queue = queue
        self._policy = policy
        self._commits = commits
        self._flow: Flow[None] | None = None
        self._checks_epochs = True
        self._held: list[PartitionState] = []
        """Without a position until the application does something."""
        self.on_ready: Callable[[], None] = lambda: None
        self.on_changed: Callable[[], None] = lambda: None
        """Called when a partition may be fetched that could not."""

    # ------------------------------------------------------------------------------- asking

    def look(self) -> None:
        """At the end of a turn: begins what there is to do, if nothing is under way."""
        if self._flow is None and any(map(_is_unsettled, self._subscription.partitions.values())):
            self._flow = self._core.spawn(self._settle_all())
            self._flow.when_done(self._on_done)

    def ask_again(self) -> None:
        """What only the application could decide is asked once more, and raised again."""
        for state in self._held:
            if state.position is None and state.reset_to is None:
                state.is_new = True
        self._held.clear()

    def stop(self) -> None:
        if self._flow is not None:
            self._flow.cancel()

    def reset_by_policy(self, state: PartitionState) -> bool:
        target = self._policy.target()
        if target is None:
            return False
        logger.info("%s: offset %s is not there; resetting", state.key, state.position)
        state.reset(target)
        return True

    def on_metadata_changed(self) -> None:
        """A new leader may not have all that was read from the one before."""
        cluster = self._core.cluster
        for state in self._subscription.partitions.values():
            epoch = cluster.leader_epoch_of(*state.key)
            if epoch <= state.leader_epoch:
                continue
            state.leader_epoch = epoch
            if state.position is not None and self._checks_epochs:
                state.checking = NO_EPOCH < state.position_epoch < epoch

    def _on_done(self, _: object) -> None:
        self._flow = None

    async def _settle_all(self) -> None:
        failures = 0
        while True:
            states = [one for one in self._subscription.partitions.values() if _is_unsettled(one)]
            if not states:
                return
            deadline_ms = self._core.now_ms + self._core.settings.request_timeout_ms
            try:
                await self._take_committed([one for one in states if one.is_new], deadline_ms)
                await self._reset([one for one in states if one.reset_to is not None], deadline_ms)
                await self._check([one for one in states if one.checking], deadline_ms)
                failures = 0
            except ClientError as error:
                failures += 1
                if not error.retriable:
                    self._queue.add_error(states[0], error)
                    self.on_ready()
                pause_ms = min(
                    self._core.settings.retry_backoff_ms * 2**failures,
                    self._core.settings.retry_backoff_max_ms,
                )
                await self._core.sleep_until(self._core.now_ms + pause_ms)

    # ----------------------------------------------------------------------------- committed

    async def _take_committed(self, states: list[PartitionState], deadline_ms: float) -> None:
        if not states:
            return
        eras = _eras(states)
        committed = {}
        if self._commits is not None:
            committed = await self._commits.committed([one.key for one in states], deadline_ms)
        without: list[PartitionState] = []
        for state in _still(eras):
            found = committed.get(state.key)
            if found is None:
                without.append(state)
            else:
                self._begin(state, found.offset, found.leader_epoch)
        target = self._policy.target()
        if target is not None:
            for state in without:
                state.reset(target)
        elif without:
            self._hold(without, NoOffsetError([state.key for state in without]))

    def _hold(self, states: list[PartitionState], error: ClientError) -> None:
        """Nothing more is done about these until the application seeks or polls again."""
        for state in states:
            state.is_new = False
        self._held += states
        self._queue.add_error(states[0], error)
        self.on_ready()

    def _begin(self, state: PartitionState, offset: int, epoch: int) -> None:
        state.seek(offset, epoch)
        state.leader_epoch = self._core.cluster.leader_epoch_of(*state.key)
        state.checking = self._checks_epochs and NO_EPOCH < epoch < state.leader_epoch
        self.on_changed()

    # --------------------------------------------------------------------------------- reset

    async def _reset(self, states: list[PartitionState], deadline_ms: float) -> None:
        if not states:
            return
        eras = _eras(states)
        wanted = {one.key: one.reset_to for one in states if one.reset_to is not None}
        listed = await self._questions.list_offsets(wanted, deadline_ms)
        late = [key for key, found in listed.items() if found.offset == NOT_FOUND]
        if late:  # a time after the last record
            ends = await self._questions.list_offsets(dict.fromkeys(late, LATEST), deadline_ms)
            listed.update(ends)
        for state in _still(eras):
            found = listed[state.key]
            self._begin(state, found.offset, NO_EPOCH)

    # --------------------------------------------------------------------------------- check

    async def _check(self, states: list[PartitionState], deadline_ms: float) -> None:
        if not states:
            return
        eras = _eras(states)
        asked = {state: (state.leader_epoch, state.position_epoch) for state in states}
        try:
            ends = await self._questions.epoch_ends(
                {state.key: epoch for state, (_, epoch) in asked.items()}, deadline_ms
            )
        except UnsupportedByBrokerError:
            self._checks_epochs = False
            for state in states:
                state.checking = False
            self.on_changed()
            return
        cut: dict[TopicPartition, int] = {}
        for state in _still(eras):
            if (state.leader_epoch, state.position_epoch) != asked[state]:
                continue  # there is yet another leader: ask that one
            end = ends[state.key]
            state.checking = False
            self.on_changed()
            if state.position is not None and end.end_offset < state.position:
                self._on_truncated(state, end.end_offset, end.leader_epoch, cut)
        if cut:
            self._queue.add_error(states[0], LogTruncatedError(cut))
            self.on_ready()

    def _on_truncated(
        self, state: PartitionState, end_offset: int, epoch: int, cut: dict[TopicPartition, int]
    ) -> None:
        target = self._policy.target()
        logger.warning(
            "%s: what was read behind offset %s is no longer in the log", state.key, end_offset
        )
        if target is None:
            cut[state.key] = end_offset
            state.checking = True
            state.position_epoch = NO_EPOCH  # asked no more, fetched no more, until it seeks
        elif end_offset == NOT_FOUND or epoch == NO_EPOCH:
            state.reset(target)
        else:
            state.seek(end_offset, epoch)


def _is_unsettled(state: PartitionState) -> bool:
    return (
        state.is_new
        or state.reset_to is not None
        or (state.checking and state.position_epoch != NO_EPOCH)
    )


def _eras(states: Iterable[PartitionState]) -> dict[PartitionState, int]:
    return {state: state.era for state in states}


def _still(eras: dict[PartitionState, int]) -> list[PartitionState]:
    return [state for state, era in eras.items() if state.era == era]
