"""Where to begin: every partition without a position gets one, every doubtful one is checked.

A new partition begins at what its group has committed, else by `auto.offset.reset`: at an end of
the log, at a time, or not at all. When a partition has a new leader, its log may have lost records
that were read here (KIP-320); the leader says where the epoch of the last record ended, and what
lies behind that is read again.

Each leader is asked by a flow of its own for what it leads, and the coordinator by another: nobody
waits for a partition that has no leader, or one that does not answer. What only the application can
decide is put in the way of its next poll. Always holds: an answer counts only if nobody has moved
the position since (`era`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

from ottla.base.errors import ConfigError
from ottla.base.ids import TopicPartition
from ottla.client.backoff import backoff_ms
from ottla.client.cluster import NO_LEADER
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


Errors = Mapping[TopicPartition, ClientError]
"""Of those for which an attempt came to nothing."""

Ask = Callable[[], Coroutine[Any, Any, Errors]]
Tickets = Mapping[PartitionState, tuple[int, int]]
"""Of each partition the era, and who is asked."""

_COORDINATOR = -2
"""Who is asked for what the group has committed: no leader has this id."""


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
        self._flows: set[Flow[None]] = set()
        self._waiting: dict[PartitionState, tuple[int, int]] = {}
        """Era, and who was asked (or is not to be asked again before a while)."""
        self._checks_epochs = True
        self._held: dict[PartitionState, ClientError] = {}
        """Without a position until the application does something."""
        self._cut: dict[PartitionState, int] = {}
        """What was read of these is gone behind an offset, and nothing may be guessed."""
        self.on_ready: Callable[[], None] = lambda: None
        self.on_changed: Callable[[], None] = lambda: None
        """Called when a partition may be fetched that could not."""

    # ------------------------------------------------------------------------------- asking

    def look(self) -> None:
        """At the end of a turn: begins what there is to do and is not under way."""
        asked: dict[tuple[int, bool], list[PartitionState]] = {}
        for state in self._subscription.partitions.values():
            if _is_unsettled(state):
                node = _COORDINATOR if state.is_new else self._core.cluster.leader_of(*state.key)
                if node == NO_LEADER:
                    self._want_leader(state)
                elif self._waiting.get(state) != (state.era, node):
                    asked.setdefault((node, state.reset_to is not None), []).append(state)
        for (node, is_reset), states in asked.items():
            if node == _COORDINATOR:
                self._start(node, states, partial(self._take_committed, states))
            else:
                ask = self._reset if is_reset else self._check
                self._start(node, states, partial(ask, node, states))

    def ask_again(self) -> None:
        """What only the application could decide, and it was told so, is asked once more."""
        told = {state.error for state in self._held}
        for state, error in list(self._held.items()):
            if error in told:
                continue  # it will be told
            del self._held[state]
            if state.position is None and state.reset_to is None:
                state.is_new = True
        if self._cut:
            self._tell_cut()

    def _tell_cut(self) -> None:
        """At every poll until the application seeks: nothing comes of these before."""
        held = self._subscription.partitions
        self._cut = {
            state: offset
            for state, offset in self._cut.items()
            if _is_cut(state) and held.get(state.key) is state
        }
        if self._cut and all(state.error is None for state in self._cut):
            error = LogTruncatedError({state.key: offset for state, offset in self._cut.items()})
            self._queue.add_error(next(iter(self._cut)), error)
            self.on_ready()

    def error_of(self, state: PartitionState) -> ClientError | None:
        """Why it has no position, if only the application can do something about that."""
        return state.error or self._held.get(state)

    def stop(self) -> None:
        for flow in list(self._flows):
            flow.cancel()

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
            if state.position is not None and self._checks_epochs and not _is_cut(state):
                state.checking = NO_EPOCH < state.position_epoch < epoch

    def _want_leader(self, state: PartitionState) -> None:
        if state.key[0] in self._core.cluster.topics:  # else it is being asked for
            self._core.metadata.request_update()

    def _start(self, node: int, states: list[PartitionState], ask: Ask) -> None:
        tickets = {state: (state.era, node) for state in states}
        self._waiting.update(tickets)
        flow = self._core.spawn(self._attempt(tickets, ask))
        self._flows.add(flow)
        flow.when_done(self._flows.discard)

    async def _attempt(self, tickets: Tickets, ask: Ask) -> None:
        """Whatever came to nothing is left for the next one, after a pause."""
        eras = _eras(tickets)
        try:
            errors = await ask()
            failed = {state for state in tickets if state.key in errors}
            self._release({one: ticket for one, ticket in tickets.items() if one not in failed})
            for state in tickets:
                state.failures = state.failures + 1 if state in failed else 0
            if failed:
                for state in _still(eras):
                    if state in failed and not errors[state.key].retriable:
                        self._queue.add_error(state, errors[state.key])
                        self.on_ready()
                self._core.metadata.request_update()
                await self._pause(min(state.failures for state in failed))
        finally:
            self._release(tickets)

    def _release(self, tickets: Tickets) -> None:
        for state, ticket in tickets.items():
            if self._waiting.get(state) == ticket:
                del self._waiting[state]

    async def _pause(self, failures: int) -> None:
        core = self._core
        first_ms, most_ms = core.settings.retry_backoff_ms, core.settings.retry_backoff_max_ms
        pause_ms = backoff_ms(first_ms, most_ms, failures, core.chance())
        await core.sleep_until(core.now_ms + pause_ms)

    # ----------------------------------------------------------------------------- committed

    async def _take_committed(self, states: list[PartitionState]) -> Errors:
        eras = _eras(states)
        committed = {}
        if self._commits is not None:
            deadline_ms = self._core.now_ms + self._core.settings.request_timeout_ms
            try:
                committed = await self._commits.committed([one.key for one in states], deadline_ms)
            except ClientError as error:
                if error.retriable:
                    return dict.fromkeys([one.key for one in states], error)
                self._hold(_still(eras), error)
                return {}
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
        else:
            self._hold(without, NoOffsetError([state.key for state in without]))
        return {}

    def _hold(self, states: list[PartitionState], error: ClientError) -> None:
        """Nothing more is done about these until the application seeks or polls again."""
        for state in states:
            state.is_new = False
            self._held[state] = error
        if states:
            self._queue.add_error(states[0], error)
            self.on_ready()

    def _begin(self, state: PartitionState, offset: int, epoch: int) -> None:
        state.seek(offset, epoch)
        state.leader_epoch = self._core.cluster.leader_epoch_of(*state.key)
        state.checking = self._checks_epochs and NO_EPOCH < epoch < state.leader_epoch
        self.on_changed()

    # --------------------------------------------------------------------------------- reset

    async def _reset(self, node: int, states: list[PartitionState]) -> Errors:
        eras = _eras(states)
        wanted = {one.key: one.reset_to for one in states if one.reset_to is not None}
        found, errors = await self._questions.offsets_of(node, wanted)
        late = [key for key, listed in found.items() if listed.offset == NOT_FOUND]
        if late:  # a time after the last record
            for key in late:
                del found[key]
            ends = await self._questions.offsets_of(node, dict.fromkeys(late, LATEST))
            found |= ends.found
            errors |= ends.errors
        for state in _still(eras):
            if state.key in found:
                self._begin(state, found[state.key].offset, NO_EPOCH)
        return errors

    # --------------------------------------------------------------------------------- check

    async def _check(self, node: int, states: list[PartitionState]) -> Errors:
        eras = _eras(states)
        asked = {state: (state.leader_epoch, state.position_epoch) for state in states}
        ends, errors = await self._questions.epoch_ends_of(
            node, {state.key: epoch for state, (_, epoch) in asked.items()}
        )
        if any(isinstance(error, UnsupportedByBrokerError) for error in errors.values()):
            self._checks_epochs = False
            for state in states:
                state.checking = False
            self.on_changed()
            return {}
        for state in _still(eras):
            if (state.leader_epoch, state.position_epoch) != asked[state]:
                continue  # there is yet another leader: ask that one
            if state.key not in ends:
                continue
            end = ends[state.key]
            state.checking = False
            self.on_changed()
            if state.position is not None and end.end_offset < state.position:
                self._on_truncated(state, end.end_offset, end.leader_epoch)
        self._tell_cut()
        return errors

    def _on_truncated(self, state: PartitionState, end_offset: int, epoch: int) -> None:
        target = self._policy.target()
        logger.warning(
            "%s: what was read behind offset %s is no longer in the log", state.key, end_offset
        )
        if target is None:
            self._cut[state] = end_offset
            state.checking = True
            state.position_epoch = NO_EPOCH  # asked no more, fetched no more, until it seeks
        elif end_offset == NOT_FOUND or epoch == NO_EPOCH:
            state.reset(target)
        else:
            state.seek(end_offset, epoch)


def _is_unsettled(state: PartitionState) -> bool:
    return state.error is None and (
        state.is_new or state.reset_to is not None or (state.checking and not _is_cut(state))
    )


def _is_cut(state: PartitionState) -> bool:
    """Whether what was read is known to be gone, and only the application can go on."""
    return state.checking and state.position_epoch == NO_EPOCH


def _eras(states: Iterable[PartitionState]) -> dict[PartitionState, int]:
    return {state: state.era for state in states}


def _still(eras: dict[PartitionState, int]) -> list[PartitionState]:
    return [state for state, era in eras.items() if state.era == era]
