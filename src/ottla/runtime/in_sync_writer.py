"""Writes the in-sync sets that leaders propose: all of one turn of the loop in one commit.

A conflict says that one of many does not fit any more. Then the image is brought up to date and
each is decided alone, so that one partition does not hold up the others. Never fails: what went
wrong is an outcome. REFUSED means that nothing of the proposal is in the store, nor will be;
UNKNOWN that the store did not answer, or with something nobody expects.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.metadata.image import MetadataImage
from ottla.metadata.in_sync import decide_in_sync_changes
from ottla.metadata.partition_writes import PARTITIONS_MAX
from ottla.metadata.store import Change, MetadataStore, VersionConflict
from ottla.metadata.topic_settings import TopicSettings
from ottla.replication.effects import InSyncProposal, Outcome
from ottla.runtime.store_lane import StoreLane

log = logging.getLogger("ottla.runtime")

ATTEMPTS_MAX = 3
"""Of one proposal, where something beside the partition keeps changing."""


class InSyncDoor(Protocol):
    """What a partition's driver needs of the writer."""

    def propose(self, proposal: InSyncProposal) -> Deferred[Outcome]: ...


class ImageSource(Protocol):
    """Where the newest image is, and what it says about topics."""

    @property
    def image(self) -> MetadataImage: ...
    def settings(self) -> TopicSettings: ...


class _Asked:
    __slots__ = ("answer", "attempts", "proposal", "size_before")

    def __init__(self, proposal: InSyncProposal) -> None:
        self.proposal = proposal
        self.answer: Deferred[Outcome] = Deferred()
        self.attempts = 0
        self.size_before = 0


class InSyncWriter:
    """`post` runs something on this thread soon, after what is being done now."""

    def __init__(
        self,
        *,
        broker_id: int,
        source: ImageSource,
        store: MetadataStore,
        lane: StoreLane,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._broker_id = broker_id
        self._source = source
        self._store = store
        self._lane = lane
        self._post = post
        self._waiting: list[_Asked] = []
        self._alone: deque[_Asked] = deque()
        self._is_busy = False
        self.shrinks = 0
        self.expands = 0

    def propose(self, proposal: InSyncProposal) -> Deferred[Outcome]:
        asked = _Asked(proposal)
        self._waiting.append(asked)
        if len(self._waiting) == 1 and not self._is_busy:
            self._post(self._next)
        return asked.answer

    def _next(self) -> None:
        if self._is_busy or not (self._alone or self._waiting):
            return
        self._write([self._alone.popleft()] if self._alone else self._take_batch())
        if not self._is_busy and (self._alone or self._waiting):
            # Not in a loop: who is told of a refusal may propose again at once.
            self._post(self._next)

    def _take_batch(self) -> list[_Asked]:
        """As many as one commit holds, each partition once; the others stay."""
        batch: dict[tuple[str, int], _Asked] = {}
        left = []
        for asked in self._waiting:
            key = (asked.proposal.topic, asked.proposal.partition)
            if key in batch or len(batch) == PARTITIONS_MAX:
                left.append(asked)
            else:
                batch[key] = asked
        self._waiting = left
        return list(batch.values())

    def _write(self, batch: list[_Asked]) -> None:
        if self._store.is_fenced():
            for asked in batch:
                asked.answer.resolve(Outcome.REFUSED)
            return
        decision = decide_in_sync_changes(
            self._source.image,
            self._broker_id,
            [asked.proposal for asked in batch],
            self._source.settings(),
        )
        taken = []
        for asked, refused in zip(batch, decision.refused, strict=True):
            asked.attempts += 1
            state = self._source.image.partition(asked.proposal.topic, asked.proposal.partition)
            asked.size_before = 0 if state is None else len(state.in_sync)
            if refused:
                asked.answer.resolve(Outcome.REFUSED)
            else:
                taken.append(asked)
        if not taken:
            return
        self._is_busy = True
        committed = self._lane.run(self._store.commit, decision.operations)
        committed.when_done(lambda outcome: self._on_committed(taken, outcome))

    def _on_committed(self, batch: list[_Asked], outcome: Deferred[Change]) -> None:
        try:
            outcome.result()
        except VersionConflict:
            self._lane.run(self._store.refresh).when_done(lambda _: self._again(batch))
            return
        except OttlaError as failure:
            # Whatever it is: who waits for this one has to go on, and so have all that come later.
            log.warning("%d in-sync sets could not be written: %s", len(batch), failure)
            told = Outcome.UNKNOWN
        else:
            told = Outcome.STORED
            for asked in batch:
                size = len(asked.proposal.in_sync)
                self.shrinks += size < asked.size_before
                self.expands += size > asked.size_before
        self._done(batch, told)

    def _again(self, batch: list[_Asked]) -> None:
        """Nothing was written. Where the refresh failed too, the old image decides once more."""
        for asked in batch:
            if asked.attempts < ATTEMPTS_MAX:
                self._alone.append(asked)
            else:
                asked.answer.resolve(Outcome.REFUSED)
        self._is_busy = False
        self._next()

    def _done(self, batch: list[_Asked], told: Outcome) -> None:
        self._is_busy = False
        for asked in batch:
            asked.answer.resolve(told)
        self._next()
