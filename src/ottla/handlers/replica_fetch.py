"""Fetch by another broker that copies partitions from this one.

Only on the inter-broker listener, and only for the life of a broker that the image knows: whoever
else claims to be a replica is refused, with one line in the log, and nothing changes. What a
follower is told, and what is learned from it, `replication.replica_session` decides; here it waits
for news, until its time is up or its next request comes.
"""

from __future__ import annotations

import uuid

from ottla.base.deferred import Deferred
from ottla.base.ports import Timer
from ottla.handlers.complaints import complain
from ottla.handlers.context import Context
from ottla.handlers.reply import Reply
from ottla.protocol.error_codes import (
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    STALE_BROKER_EPOCH,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.fetch import FetchedPartition, FetchRequest, fetch_response_parts
from ottla.replication.replica_session import ReplicaSession, Told

FIRST_VERSION_FOR_REPLICAS = 15
"""The first that says in which life the broker asks (KIP-903)."""

HOLD_MS = 1
"""Five requests of a busy producer come within about as much; what is hoped for ends it sooner."""


def handle_replica_fetch(context: Context, request: FetchRequest) -> Reply | Deferred[Reply | None]:
    services = context.services
    refusal = _refusal(context, request)
    if refusal is not None:
        return refusal
    now_ms = services.clock.monotonic_ms()
    session = services.replica_sessions.resolve(request, now_ms)
    if isinstance(session, int):
        return _reply(context, session, 0, [])
    # If it waits for one, it has somebody new to ask for: the answer is not to be held back.
    session.answer_waiting()
    session.take(request, now_ms)
    may_wait = request.session_epoch > 0 and request.max_wait_ms > 0
    if may_wait and session.hopes_for_more():
        parked = _ParkedFetch(context, request, session)
        parked.hold()
        return parked.answer
    told, is_urgent = session.collect(request.max_bytes)
    if is_urgent or not may_wait:
        session.on_told()
        return _reply(context, NONE, session.session_id, told)
    session.put_back(told)
    return _ParkedFetch(context, request, session).answer


class _ParkedFetch:
    """Woken by news, by time, or by the follower's next request. News wake it at the end of the
    loop's turn: what else is appended in the same turn goes with it. Where the last answer told of
    several appends, as many are waited for, for a moment."""

    __slots__ = ("_context", "_is_held", "_request", "_session", "_timer", "answer")

    def __init__(self, context: Context, request: FetchRequest, session: ReplicaSession) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._is_held = False
        self.answer: Deferred[Reply | None] = Deferred()
        self._timer: Timer = context.services.timers.call_later(request.max_wait_ms, self._on_time)
        session.wake = self._on_news
        session.hold = self.hold
        session.answer_waiting = self._resolve
        session.is_parked = True

    def _on_news(self) -> None:
        self._timer.cancel()
        self._context.services.soon(self._resolve)

    def hold(self) -> None:
        if not self._is_held:
            self._is_held = True
            self._timer.cancel()
            self._timer = self._context.services.timers.call_later(HOLD_MS, self._on_time)

    def _on_time(self) -> None:
        if self._session.is_parked:
            self._resolve()

    def _resolve(self) -> None:
        if self.answer.done:
            return  # by the next request, in the turn of the news
        self._timer.cancel()
        self._session.is_parked = False
        told, _ = self._session.collect(self._request.max_bytes)
        self._session.on_told()
        self.answer.resolve(_reply(self._context, NONE, self._session.session_id, told))


def _refusal(context: Context, request: FetchRequest) -> Reply | None:
    services = context.services
    replica_id = request.replica_id
    if context.listener_name != services.inter_broker_listener:
        complain(context, f"replica {replica_id} asks on the listener of clients")
        return _reply_to_all(context, request, TOPIC_AUTHORIZATION_FAILED)
    broker = services.image.brokers.get(replica_id)
    if broker is None or replica_id == services.broker_id:
        complain(context, f"replica {replica_id} asks, and there is no such broker")
        return _reply_to_all(context, request, NOT_LEADER_OR_FOLLOWER)
    if context.api_version < FIRST_VERSION_FOR_REPLICAS:
        complain(context, f"replica {replica_id} asks with Fetch v{context.api_version}")
        return _reply_to_all(context, request, UNSUPPORTED_VERSION)
    if broker.epoch != request.replica_epoch or broker.epoch < 0:
        complain(context, f"replica {replica_id} asks in its life {request.replica_epoch}")
        return _reply(context, STALE_BROKER_EPOCH, 0, [])
    return None


def _reply_to_all(context: Context, request: FetchRequest, code: int) -> Reply:
    topics = [
        (
            name,
            topic_id,
            [FetchedPartition(one.partition, code, -1, -1, -1, None, -1, None) for one in asked],
        )
        for name, topic_id, asked in request.topics
    ]
    parts, size = fetch_response_parts(context.api_version, 0, NONE, 0, topics)
    return Reply(parts, size)


def _reply(context: Context, error_code: int, session_id: int, told: Told) -> Reply:
    by_topic: dict[uuid.UUID, list[FetchedPartition]] = {}
    for topic_id, fetched in told:
        by_topic.setdefault(topic_id, []).append(fetched)
    topics = [(None, topic_id, partitions) for topic_id, partitions in by_topic.items()]
    parts, size = fetch_response_parts(context.api_version, 0, error_code, session_id, topics)
    return Reply(parts, size)
