"""Copies from one leader: sends what `FollowerFetch` asks for and does what its answers want done.

One connection and, but for an interruption, one request under way. An idle leader holds the request
back for a while; when there is somebody new to ask for, a second request makes it answer the first.
Knows no event loop, only ports: the simulator runs it too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.base.deferred import Deferred
from ottla.base.errors import MalformedRequest, PeerLost, StorageError
from ottla.base.ports import Clock, Timer, Timers
from ottla.log.partition_log import PartitionLog
from ottla.protocol.api_keys import FETCH
from ottla.protocol.replica_fetch import VERSION
from ottla.replication.follower_fetch import FetchEffects, FollowerFetch
from ottla.replication.partition import Partition
from ottla.runtime.peers import Peers

log = logging.getLogger("ottla.runtime")

PURPOSE = "replica"
BACKOFF_MS_FIRST = 50

# A leader that is away is told of once in so long.
COMPLAINT_INTERVAL_MS = 60_000


class FetcherServices(NamedTuple):
    """What a fetcher needs of the broker. `save_both_ends`: where the logs of a log dir begin
    and up to where they are flushed, done when that is on the disk. `flush`: a log, likewise."""

    clock: Clock
    timers: Timers
    peers: Peers
    post: Callable[[Callable[[], None]], None]
    save_both_ends: Callable[[str], Deferred[None]]
    flush: Callable[[PartitionLog], Deferred[None]]
    storage_failed: Callable[[StorageError], None]


class ReplicaFetcher:
    def __init__(self, leader_id: int, fetch: FollowerFetch, services: FetcherServices) -> None:
        self.leader_id = leader_id
        self.fetch = fetch
        self._services = services
        self._is_closed = False
        self._is_posted = False
        self._backoff_ms = 0
        self._resting: Timer | None = None
        """While the leader is left alone after a failure."""
        self._alarm_clock: Timer | None = None
        self._complained_ms: int | None = None
        self.bytes_stored = 0

    # -- who is copied ------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        self.fetch.add(partition)
        self._soon()

    def remove(self, partition: Partition) -> None:
        self.fetch.remove(partition)
        self._soon()

    def start_over(self, fetch: FollowerFetch) -> None:
        """In another life of this broker: with the same partitions."""
        for partition in self.fetch.partitions():
            fetch.add(partition)
        self.fetch = fetch
        self._services.peers.close(self.leader_id, PURPOSE)
        self._soon()

    def on_throttle_changed(self) -> None:
        """Who was told to wait was told so by another rate."""
        self.fetch.rouse()
        self._set_alarm()

    def close(self) -> None:
        self._is_closed = True
        for timer in (self._resting, self._alarm_clock):
            if timer is not None:
                timer.cancel()
        self._services.peers.close(self.leader_id, PURPOSE)

    # -- asking -------------------------------------------------------------------------------

    def _soon(self) -> None:
        """Many partitions change hands in one turn: ask for them together."""
        if not self._is_posted:
            self._is_posted = True
            self._services.post(self._posted)

    def _posted(self) -> None:
        self._is_posted = False
        self._ask()

    def _ask(self) -> None:
        fetch = self.fetch
        if self._is_closed or self._resting is not None:
            return
        if not fetch.is_idle() and not fetch.wants_to_interrupt():
            return
        body = fetch.request(self._services.clock.monotonic_ms())
        self._set_alarm()
        if body is None:
            return
        count = fetch.session_count
        asked = self._services.peers.request(self.leader_id, PURPOSE, FETCH, VERSION, body)
        asked.when_done(lambda outcome: self._answered(fetch, count, outcome))

    def _set_alarm(self) -> None:
        """Somebody who rests is asked for again, also while a request is under way."""
        if self._alarm_clock is not None:
            self._alarm_clock.cancel()
            self._alarm_clock = None
        due_ms = self.fetch.next_due_ms()
        if due_ms is not None:
            delay_ms = max(due_ms - self._services.clock.monotonic_ms(), 0)
            self._alarm_clock = self._services.timers.call_later(delay_ms, self._wake)

    def _wake(self) -> None:
        self._alarm_clock = None
        self.fetch.wake(self._services.clock.monotonic_ms())
        self._ask()

    # -- answers ------------------------------------------------------------------------------

    def _answered(self, fetch: FollowerFetch, count: int, outcome: Deferred[memoryview]) -> None:
        if self._is_closed or fetch is not self.fetch or fetch.session_count != count:
            return  # nobody asks for that any more
        try:
            effects = fetch.on_answer(outcome.result(), self._services.clock.monotonic_ms())
        except (PeerLost, MalformedRequest) as lost:
            fetch.on_failure()
            self._services.peers.close(self.leader_id, PURPOSE)
            self._rest(str(lost))
            return
        if effects.refusal is not None:
            self._rest(effects.refusal)
            return
        self._backoff_ms = 0
        self._complained_ms = None
        self.bytes_stored += effects.bytes_stored
        if effects.has_more_than_records():
            self._do(fetch, effects)
        self._ask()

    def _do(self, fetch: FollowerFetch, effects: FetchEffects) -> None:
        services = self._services
        for line in effects.complaints:
            log.warning("copying from broker %d: %s", self.leader_id, line)
        for partition in effects.cut:
            saved = services.save_both_ends(partition.log_dir)
            self._resume_after(saved, fetch, partition)
        for partition in effects.unsafe:
            if partition.log is not None:
                self._resume_after(services.flush(partition.log), fetch, partition)
        for failure in effects.failures:
            services.storage_failed(failure)

    def _resume_after(
        self, work: Deferred[None], fetch: FollowerFetch, partition: Partition
    ) -> None:
        def done(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except StorageError:
                return  # its log dir is offline, and so is the partition
            fetch.resume(partition)
            self._soon()

        work.when_done(done)

    def _rest(self, reason: str) -> None:
        services = self._services
        now_ms = services.clock.monotonic_ms()
        if self._complained_ms is None or now_ms - self._complained_ms >= COMPLAINT_INTERVAL_MS:
            # The first failure is often the leader's end, of which the image will tell.
            if self._backoff_ms:
                self._complained_ms = now_ms
                log.warning("broker %d can't be copied from: %s", self.leader_id, reason)
        limit_ms = self.fetch.limits.backoff_ms
        self._backoff_ms = min(max(2 * self._backoff_ms, BACKOFF_MS_FIRST), limit_ms)
        self._resting = services.timers.call_later(self._backoff_ms, self._rested)

    def _rested(self) -> None:
        self._resting = None
        self._ask()
