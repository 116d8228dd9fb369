"""Fetches: one request at a time to each broker that leads something, and what came of it.

Owns the sessions, what is in flight, and the queue of answers that wait to be handed out. A broker
is asked again as soon as no partition of its has more than one answer waiting: so one answer is
being read while the next one comes, and memory is bounded by two answers a broker.

Never decodes records. Always holds: answers are handed out in the order of a partition's offsets;
an answer to what was asked in another `era` of a partition is dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.base.ports import Buffer
from ottla.client.cluster import Broker
from ottla.client.connection import Request
from ottla.client.consumer_errors import CorruptBatchError, OffsetOutOfRangeError
from ottla.client.consumer_partitions import PartitionState, Subscription
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.core import Core
from ottla.client.errors import ClientError, error_for
from ottla.client.fetch_queue import FetchQueue
from ottla.client.fetch_session import NEWEST_BY_NAME, FetchSession, Plan, Wish
from ottla.client.fetch_wire import NO_REPLICA, FetchAnswer, FetchedPartition, read_fetch_answer
from ottla.client.timers import Timer
from ottla.protocol import error_codes as codes
from ottla.protocol import messages
from ottla.protocol.api_keys import FETCH
from ottla.records.batch_header import HEADER_SIZE, LENGTH_END

_READ_COMMITTED = 1
_ANSWERS_MAX = 2
"""Of one partition that wait to be handed out: one is being read, the next is there."""

_BASE_AND_LENGTH = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_POSITION = 23

_MOVED = frozenset(
    {
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.REPLICA_NOT_AVAILABLE,
        codes.KAFKA_STORAGE_ERROR,
        codes.FENCED_LEADER_EPOCH,
        codes.OFFSET_NOT_AVAILABLE,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.UNKNOWN_TOPIC_ID,
        codes.INCONSISTENT_TOPIC_ID,
        codes.LEADER_NOT_AVAILABLE,
    }
)
_PASSING = frozenset({codes.UNKNOWN_LEADER_EPOCH, codes.UNKNOWN_SERVER_ERROR})

Eras = dict[PartitionState, tuple[int, int]]
"""Of each partition in a request: era and offset asked for."""


class Fetcher:
    def __init__(self, core: Core, settings: ConsumerSettings, subscription: Subscription) -> None:
        self._core = core
        self._settings = settings
        self._subscription = subscription
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: set[int] = set()
        self._is_read_committed = settings.isolation_level == "read_committed"
        self.queue = FetchQueue(settings.check_crcs)
        self.on_ready: Callable[[], None] = lambda: None
        """Called when something has come to the queue."""
        self.reset_policy: Callable[[PartitionState], bool] = lambda state: False
        """Resets a partition by `auto.offset.reset`; False if that is none."""
        self.bytes_total = 0
        self.fetch_total = 0
        self._again: Timer | None = None
        self._is_stale = True
        """Whether anything has changed since all brokers were last looked at: turns are many."""

    # -------------------------------------------------------------------------------- asking

    def touch(self) -> None:
        """There may be something to ask for."""
        self._is_stale = True

    def send_fetches(self) -> None:
        """At the end of a turn: asks every broker that is idle and has something to give."""
        if not self._is_stale:
            return
        self._is_stale = False
        for node_id, states in self._by_node().items():
            if node_id in self._in_flight:
                continue
            if any(state.buffered >= _ANSWERS_MAX for state in states):
                continue
            if self._core.is_ready(node_id):
                self._send(node_id, states)
            else:
                self._is_stale = True  # until there is a connection
                self._look_again_later()
                if node_id not in self._core.cluster.brokers:
                    self._core.metadata.request_update()

    def _look_again_later(self) -> None:
        """A broker that could not be reached is tried again after its backoff, unasked."""
        if self._again is None:
            pause_ms = max(self._settings.reconnect_backoff_ms, 1)
            self._again = self._core.timers.call_at(self._core.now_ms + pause_ms, self._on_again)

    def _on_again(self) -> None:
        self._again = None

    def _by_node(self) -> dict[int, list[PartitionState]]:
        now_ms = self._core.now_ms
        nodes: dict[int, list[PartitionState]] = {}
        is_leader_missing = False
        for state in self._subscription.partitions.values():
            if not state.is_fetchable(now_ms):
                continue
            node_id = self._node_for(state)
            if node_id < 0:
                is_leader_missing = True
            else:
                nodes.setdefault(node_id, []).append(state)
        if is_leader_missing:
            self._core.metadata.request_update()
        return nodes

    def _node_for(self, state: PartitionState) -> int:
        replica = state.preferred_replica
        if replica is not None:
            if self._core.now_ms < state.preferred_until_ms and self._is_up(replica, state):
                return replica
            state.preferred_replica = None
        return self._core.cluster.leader_of(*state.key)

    def _is_up(self, replica: int, state: PartitionState) -> bool:
        topic, partition = state.key
        info = self._core.cluster.topics.get(topic)
        return (
            replica in self._core.cluster.brokers
            and info is not None
            and partition < len(info.partitions)
            and replica not in info.partitions[partition].offline
        )

    def _send(self, node_id: int, states: list[PartitionState]) -> None:
        cluster, settings = self._core.cluster, self._settings
        wishes = {
            state.key: Wish(
                state.fetch_offset, state.leader_epoch, settings.max_partition_fetch_bytes
            )
            for state in states
        }
        topic_ids = {
            topic: cluster.topics[topic].topic_id for topic, _ in wishes if topic in cluster.topics
        }
        session = self._sessions.setdefault(node_id, FetchSession())
        if any(one.high_watermark is None and session.awaits_news_of(one.key) for one in states):
            # Given up and taken again, or its answer was dropped: where the end is, is not known
            # here, and the broker tells it once a session.
            session.begin_anew()
        plan = session.plan(wishes, topic_ids)
        eras: Eras = {state: (state.era, state.fetch_offset) for state in states}
        fields = self._fields(plan, topic_ids)
        request = Request(
            FETCH,
            lambda version: (messages.encode_request(FETCH, version, fields),),
            lambda _, answer, error: self._settle(node_id, eras, answer, error),
            self._core.now_ms + settings.request_timeout_ms,
            decode=read_fetch_answer,
            version_max=None if plan.by_id else NEWEST_BY_NAME,
        )
        self._in_flight.add(node_id)
        self.fetch_total += 1
        self._core.send(node_id, request)

    def _fields(self, plan: Plan, topic_ids: dict[str, Any]) -> dict[str, Any]:
        settings = self._settings
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), wish in plan.wanted.items():
            topics.setdefault(topic, []).append(
                {
                    "partition": partition,
                    "current_leader_epoch": wish.leader_epoch,
                    "fetch_offset": wish.offset,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": wish.bytes_max,
                }
            )
        forgotten: dict[tuple[str, Any], list[int]] = {}
        for topic, topic_id, partition in plan.forgotten:
            forgotten.setdefault((topic, topic_id), []).append(partition)
        return {
            "replica_id": -1,
            "max_wait_ms": settings.fetch_max_wait_ms,
            "min_bytes": settings.fetch_min_bytes,
            "max_bytes": settings.fetch_max_bytes,
            "isolation_level": _READ_COMMITTED if self._is_read_committed else 0,
            "session_id": plan.session_id,
            "session_epoch": plan.epoch,
            "topics": [
                {"topic": topic, "topic_id": topic_ids.get(topic), "partitions": partitions}
                for topic, partitions in topics.items()
            ],
            "forgotten_topics_data": [
                {"topic": topic, "topic_id": topic_id, "partitions": partitions}
                for (topic, topic_id), partitions in forgotten.items()
            ],
            "rack_id": settings.client_rack,
        }

    # ------------------------------------------------------------------------------- answers

    def _settle(self, node_id: int, eras: Eras, answer: FetchAnswer | None, error: Any) -> None:
        self._in_flight.discard(node_id)
        self._is_stale = True
        session = self._sessions[node_id]
        if answer is None:
            session.begin_anew()
            if isinstance(error, ClientError) and not error.retriable:
                self._fail_all(eras, error)
            return
        session.on_answer(answer.error_code, answer.session_id)
        if answer.error_code != codes.NONE:
            if answer.error_code == codes.FETCH_SESSION_TOPIC_ID_ERROR:
                self._core.metadata.request_update()
            return
        self._learn_endpoints(answer)
        states = {state.key: state for state in eras}
        for fetched in answer.partitions:
            topic = session.name_of(fetched.topic)
            state = None if topic is None else states.get((topic, fetched.partition))
            if state is None:
                continue
            era, offset = eras[state]
            if state.era == era and state.fetch_offset == offset:
                self._take(state, offset, fetched, answer.frame)

    def _fail_all(self, eras: Eras, error: ClientError) -> None:
        for state, (era, _) in eras.items():
            if state.era == era:
                self._hold_back(state)
                self._report(state, error)

    def _learn_endpoints(self, answer: FetchAnswer) -> None:
        for node_id, host, port, rack in answer.endpoints:
            self._core.cluster.brokers.setdefault(node_id, Broker(node_id, host, port, rack))

    def _take(
        self, state: PartitionState, offset: int, fetched: FetchedPartition, frame: Buffer
    ) -> None:
        if fetched.error_code != codes.NONE:
            self._on_error(state, offset, fetched)
            return
        state.high_watermark = fetched.high_watermark
        state.last_stable_offset = fetched.last_stable_offset
        if fetched.log_start_offset >= 0:
            state.log_start_offset = fetched.log_start_offset
        if fetched.preferred_replica != NO_REPLICA:
            state.preferred_replica = fetched.preferred_replica
            state.preferred_until_ms = self._core.now_ms + self._settings.metadata_max_age_ms
        size = fetched.end - fetched.start
        if size == 0:
            return
        end_offset = _end_offset(frame, fetched.start, fetched.end)
        if end_offset is None:
            self._hold_back(state)
            reason = f"no whole batch within {size} bytes: raise max.partition.fetch.bytes"
            self._report(state, CorruptBatchError(state.key, offset, reason))
            return
        self.bytes_total += size
        aborted = (fetched.aborted or ()) if self._is_read_committed else None
        state.fetch_offset = max(end_offset, offset)
        self.queue.add(state, frame, fetched.start, fetched.end, offset, aborted)
        self.on_ready()

    def _on_error(self, state: PartitionState, offset: int, fetched: FetchedPartition) -> None:
        code = fetched.error_code
        self._hold_back(state)
        if fetched.leader is not None:
            self._core.cluster.learn_leader(*state.key, *fetched.leader)
        if code in _MOVED:
            state.preferred_replica = None
            self._core.metadata.request_update()
        elif code == codes.OFFSET_OUT_OF_RANGE:
            if state.preferred_replica is not None:
                state.preferred_replica = None  # a follower may lag behind: the leader knows
            elif state.buffered == 0 and not self.reset_policy(state):
                self._report(state, OffsetOutOfRangeError({state.key: offset}))
        elif code == codes.CORRUPT_MESSAGE:
            reason = "the broker says that what stands there is damaged"
            self._report(state, CorruptBatchError(state.key, offset, reason))
        elif code not in _PASSING:
            topic, partition = state.key
            self._report(state, error_for(code, f"{topic}-{partition}"))

    def _hold_back(self, state: PartitionState) -> None:
        """Not asked again before a while."""
        state.not_before_ms = self._core.now_ms + self._settings.retry_backoff_ms
        self._core.timers.call_at(state.not_before_ms, self.touch)

    def _report(self, state: PartitionState, error: ClientError) -> None:
        """Raised to the application once all before it has been handed out."""
        self.queue.add_error(state, error)
        self.on_ready()


def _end_offset(frame: Buffer, start: int, end: int) -> int | None:
    """The offset behind the last whole batch; None if there is no whole one."""
    found = None
    while end - start >= HEADER_SIZE:
        base, length = _BASE_AND_LENGTH.unpack_from(frame, start)
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(frame, start + _LAST_OFFSET_DELTA_POSITION)
        start += LENGTH_END + max(length, HEADER_SIZE - LENGTH_END)
        if start > end:
            break
        found = base + delta + 1
    return found
