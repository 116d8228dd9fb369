"""Runs one coordinator shard over its partition: decide, append, replay, wait, answer.

Owns the order of things. One decision at a time: what is asked while another is under way (an
answer can make a client's next request come in at once) waits for its turn. Records are replayed
as soon as they are appended, so the next decision sees them; answers wait until everything that
they may have seen is committed. It knows no event loop, only ports: the simulator runs it too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError, StorageError
from ottla.base.ports import Clock, Timer, Timers
from ottla.coordinator.shard import Outcome, Record, Transactional
from ottla.coordinator.shard_batch import build_batch, in_pieces
from ottla.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.counted import must_sync
from ottla.replication.partition import Partition

log = logging.getLogger("ottla.runtime")

R = TypeVar("R")
S = TypeVar("S", bound="Shard")

# What an append can fail with, and what the client of a coordinator is told instead.
ANSWERS = {
    UNKNOWN_TOPIC_OR_PARTITION: COORDINATOR_NOT_AVAILABLE,
    NOT_ENOUGH_REPLICAS: COORDINATOR_NOT_AVAILABLE,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND: COORDINATOR_NOT_AVAILABLE,
    REQUEST_TIMED_OUT: COORDINATOR_NOT_AVAILABLE,
    NOT_LEADER_OR_FOLLOWER: NOT_COORDINATOR,
    KAFKA_STORAGE_ERROR: NOT_COORDINATOR,
    MESSAGE_TOO_LARGE: UNKNOWN_SERVER_ERROR,
}


class Shard(Protocol):
    def replay(self, record: Record) -> None: ...
    def unload(self) -> None: ...


class HostServices(Protocol):
    """What a host asks of the broker."""

    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    def request_flush(self, partition: Partition) -> Deferred[None]: ...
    def storage_failed(self, failure: StorageError) -> None: ...


class HostTimers:
    """The time-outs of one shard, on the broker's timers."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._armed: dict[str, Timer] = {}
        self.run: Callable[[Callable[[], Outcome[None]]], None] = lambda operation: None

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Outcome[None]]) -> None:
        self.cancel(key)

        def fire() -> None:
            del self._armed[key]
            self.run(operation)

        self._armed[key] = self._timers.call_later(delay_ms, fire)

    def cancel(self, key: str) -> None:
        armed = self._armed.pop(key, None)
        if armed is not None:
            armed.cancel()

    def close(self) -> None:
        for armed in self._armed.values():
            armed.cancel()
        self._armed.clear()

    def __len__(self) -> int:
        return len(self._armed)


class _Waiting:
    """An answer that waits until the log is committed up to `end_offset`."""

    __slots__ = ("answer", "end_offset", "is_flushed", "outcome", "timer")

    def __init__(
        self, outcome: Outcome[Any], answer: Deferred[Any] | None, end_offset: int
    ) -> None:
        self.outcome = outcome
        self.answer = answer
        self.end_offset = end_offset
        self.is_flushed = True
        self.timer: Timer | None = None


class ShardHost(Generic[S]):
    def __init__(
        self,
        partition: Partition,
        shard: S,
        services: HostServices,
        timers: HostTimers,
        write_timeout_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self.shard = shard
        self.leader_epoch = partition.leader_epoch
        self._times_led = partition.times_led
        self._services = services
        self._timers = timers
        self._write_timeout_ms = write_timeout_ms
        self._queue: deque[tuple[Callable[[S], Outcome[Any]], Deferred[Any] | None]] = deque()
        self._expired: deque[_Waiting] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._is_busy = False
        self._is_closed = False
        timers.run = lambda operation: self.run(lambda shard: operation())

    # -- asking -----------------------------------------------------------------------------

    def write(self, decide: Callable[[S], Outcome[R]]) -> Deferred[R]:
        """The answer comes when the records are committed, or fails with a ProtocolError."""
        answer: Deferred[R] = Deferred()
        self._submit(decide, answer)
        return answer

    def write_at_once(self, decide: Callable[[S], Outcome[R]]) -> R | None:
        """The answer, where nothing has to be waited for. Else None, with nothing written: `write`
        then finds out why. For decisions that can be made twice and settle nothing."""
        if self._is_busy or self._is_closed or self._waiting:
            return None
        if not self.leads() or not self.partition.commits_at_once():
            return None
        self._is_busy = True
        try:
            try:
                outcome = decide(self.shard)
            except Exception:  # `write` makes it again, and has an answer for it
                log.exception("a decision of %s failed", self._name())
                return None
            code = self._append(outcome) if outcome.records else NONE
        finally:
            self._is_busy = False
        if self._queue:
            self._work()
        response = outcome.response
        return None if code != NONE or isinstance(response, Deferred) else response

    def read(self, look: Callable[[S], R]) -> Deferred[R]:
        """Looks; the answer comes when everything that it may have seen is committed."""
        return self.write(lambda shard: Outcome((), look(shard)))

    def run(self, decide: Callable[[S], Outcome[Any]]) -> None:
        """Decides something that nobody waits for."""
        self._submit(decide, None)

    def close(self) -> None:
        """The partition is led elsewhere: whoever waits has to look there."""
        if self._is_closed:
            return
        self._is_closed = True
        self.partition.remove_waiter(self)
        self._timers.close()
        waiting = [*self._expired, *self._waiting]
        self._expired.clear()
        self._waiting.clear()
        for one in waiting:
            self._settle(one, NOT_COORDINATOR)
        self.shard.unload()
        while self._queue:
            self._refuse(self._queue.popleft()[1], NOT_COORDINATOR)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def pending_writes(self) -> int:
        return len(self._waiting)

    def leads(self) -> bool:
        """Whether what this shard knows is still the newest: another leader may know more, and who
        had stepped down for a while has missed time-outs."""
        partition = self.partition
        return (
            partition.is_leader
            and partition.leader_epoch == self.leader_epoch
            and partition.times_led == self._times_led
        )

    # -- one at a time ----------------------------------------------------------------------

    def _submit(self, decide: Callable[[S], Outcome[Any]], answer: Deferred[Any] | None) -> None:
        if self._is_busy:
            self._queue.append((decide, answer))
            return
        if self._is_closed:
            self._refuse(answer, NOT_COORDINATOR)
            return
        self._is_busy = True
        try:
            self._decide(decide, answer)
        finally:
            self._is_busy = False
        if self._queue or self._waiting:
            self._work()

    def _work(self) -> None:
        """Does what can be done by now, the oldest first."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while not self._is_closed:
                if self._expired:
                    self._settle(self._expired.popleft(), COORDINATOR_NOT_AVAILABLE)
                elif self._waiting and self._is_done(self._waiting[0]):
                    self._settle(self._waiting.popleft(), NONE)
                elif self._queue:
                    self._decide(*self._queue.popleft())
                else:
                    break
        finally:
            self._is_busy = False
        if not self._waiting:
            self.partition.remove_waiter(self)

    def _decide(self, decide: Callable[[S], Outcome[Any]], answer: Deferred[Any] | None) -> None:
        if not self.leads():
            self._refuse(answer, NOT_COORDINATOR)
            return
        try:
            outcome = decide(self.shard)
        except Exception:  # a mistake of ours costs the one who found it, and nobody else
            log.exception("a decision of %s failed", self._name())
            if answer is not None:
                self._refuse(answer, UNKNOWN_SERVER_ERROR)
            return
        code = NONE
        needs_flush = False
        if outcome.records:
            code = self._append(outcome)
            needs_flush = code == NONE and self._needs_flush()
        waiting = _Waiting(outcome, answer, self._end_offset())
        if code != NONE:
            self._settle(waiting, ANSWERS.get(code, code))
        elif needs_flush:
            self._park(waiting)
            self._flush(waiting)
        elif answer is None and not outcome.records and outcome.on_settled is None:
            return  # nothing was written and nobody has to be told
        elif self._waiting or not self._is_done(waiting):
            self._park(waiting)
        else:
            self._settle(waiting, NONE)

    # -- appending --------------------------------------------------------------------------

    def _append(self, outcome: Outcome[Any]) -> int:
        partition = self.partition
        held = partition.log
        if held is None:
            return NOT_LEADER_OR_FOLLOWER
        if not partition.has_enough_in_sync():
            return NOT_ENOUGH_REPLICAS
        size_max = held.config.max_message_bytes
        if outcome.is_atomic or len(outcome.records) == 1:
            return self._append_batch(outcome.records, size_max, outcome.transactional)
        for piece in in_pieces(outcome.records, size_max):
            code = self._append_batch(piece, size_max)
            if code != NONE:
                return code
        return NONE

    def _append_batch(
        self,
        records: Sequence[Record],
        size_max: int,
        transactional: Transactional | None = None,
    ) -> int:
        now_ms = self._services.clock.wall_ms()
        batch, header = build_batch(records, now_ms, transactional)
        if len(batch) > size_max:
            return MESSAGE_TOO_LARGE
        try:
            self.partition.append(batch, header, now_ms, from_client=False)
        except ProtocolError as refused:
            return refused.code
        except StorageError as failure:
            self._services.storage_failed(failure)
            return KAFKA_STORAGE_ERROR
        if transactional is not None:
            self._replay_transactional(records, transactional)
            return NONE
        replay = self.shard.replay
        for record in records:
            replay(record)
        return NONE

    def _replay_transactional(
        self, records: Sequence[Record], transactional: Transactional
    ) -> None:
        shard: Any = self.shard
        producer_id = transactional.producer_id
        if transactional.committed is not None:
            shard.replay_marker(producer_id, committed=transactional.committed)
            return
        for record in records:
            shard.replay(record, producer_id)

    def _needs_flush(self) -> bool:
        held = self.partition.log
        return held is not None and must_sync(held)

    # -- waiting ----------------------------------------------------------------------------

    def _park(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self.partition.add_waiter(self)
        waiting.timer = self._services.timers.call_later(
            self._write_timeout_ms(), lambda: self._on_timeout(waiting)
        )

    def _is_done(self, waiting: _Waiting) -> bool:
        return waiting.is_flushed and self.partition.high_watermark >= waiting.end_offset

    def _end_offset(self) -> int:
        held = self.partition.log
        return self.partition.high_watermark if held is None else held.log_end_offset

    def on_progress(self, partition: Partition, new_bytes: int) -> None:
        self._work()

    def on_gone(self, partition: Partition) -> None:
        self.close()

    def _flush(self, waiting: _Waiting) -> None:
        waiting.is_flushed = False
        self._services.request_flush(self.partition).when_done(
            lambda done: self._on_flushed(waiting, done)
        )

    def _on_flushed(self, waiting: _Waiting, done: Deferred[None]) -> None:
        try:
            done.result()
        except StorageError:
            return  # the log dir goes offline, and this host with it
        waiting.is_flushed = True
        self._work()

    def _on_timeout(self, waiting: _Waiting) -> None:
        """The records stay where they are and may yet be committed; nobody is told any more."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._expired.append(waiting)
            self._work()

    # -- answering --------------------------------------------------------------------------

    def _settle(self, waiting: _Waiting, code: int) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        outcome, answer = waiting.outcome, waiting.answer
        if outcome.on_settled is not None:
            try:
                outcome.on_settled(code)
            except Exception:  # whoever waits behind this one has nothing to do with it
                log.exception("a decision of %s could not be ended", self._name())
                self._refuse(answer, UNKNOWN_SERVER_ERROR)
                return
        response = outcome.response
        if isinstance(response, Deferred):
            # It is resolved by whoever it waits for; `on_settled` has done so if it had to.
            if answer is not None:
                response.when_done(lambda done: _pass_on(done, answer))
        elif code != NONE:
            self._refuse(answer, code)
        elif answer is not None:
            answer.resolve(response)

    def _refuse(self, answer: Deferred[Any] | None, code: int) -> None:
        if answer is not None:
            answer.fail(ProtocolError(code))
        elif code != NOT_COORDINATOR:
            log.warning("%s: a change that was due could not be kept: error %d", self._name(), code)

    def _name(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"


def _pass_on(done: Deferred[Any], answer: Deferred[Any]) -> None:
    try:
        value = done.result()
    except OttlaError as error:
        answer.fail(error)
    else:
        answer.resolve(value)
