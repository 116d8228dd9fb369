"""Incremental fetch sessions (KIP-227): what a reader asked for and was told, until it asks again.

Owns the sessions and their bounds; decides which partitions a request means and which of them are
worth an answer. Never reads a log. A broker may always refuse a session (id 0): clients then send
full requests, so a full cache costs speed, not correctness.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

from ottla.protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
)
from ottla.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest

SESSION_IDLE_MS_MIN = 120_000
EPOCH_MAX = 2**31 - 1
FINAL_EPOCH = -1  # of a request that wants no session

PartitionKey = tuple[str | uuid.UUID, int]


class SessionPartition:
    """One partition of a session: how it is to be read, and what the reader was last told."""

    __slots__ = ("high_watermark", "log_start_offset", "name", "request", "topic_id")

    def __init__(
        self, name: str | None, topic_id: uuid.UUID | None, request: FetchPartition
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def told(self, high_watermark: int, log_start_offset: int) -> None:
        """The reader was sent records, and with them these."""
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset

    def worth_telling(self, fetched: FetchedPartition) -> bool:
        """Whether an incremental answer must name this partition; remembers what it says."""
        telling = (
            fetched.records is not None
            or fetched.preferred_read_replica >= 0
            or fetched.diverging_epoch is not None
        )
        if fetched.high_watermark != self.high_watermark:
            self.high_watermark = fetched.high_watermark
            telling = True
        if fetched.log_start_offset != self.log_start_offset:
            self.log_start_offset = fetched.log_start_offset
            telling = True
        if fetched.error_code != NONE:
            # The reader must hear of the recovery too, whatever the watermark is then.
            self.high_watermark = -1
            telling = True
        return telling


class FetchSession:
    __slots__ = ("epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, SessionPartition] = {}

    def advance(self, now_ms: int) -> None:
        """The request that was due has come."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        self.last_used_ms = now_ms

    def update(self, request: FetchRequest) -> None:
        for name, topic_id, partitions in request.topics:
            for wanted in partitions:
                key = (_key(name, topic_id), wanted.partition)
                known = self.partitions.get(key)
                if known is None:
                    self.partitions[key] = SessionPartition(name, topic_id, wanted)
                else:
                    known.request = wanted
        # What is named in both is forgotten, as in Kafka.
        for name, topic_id, indexes in request.forgotten:
            for index in indexes:
                self.partitions.pop((_key(name, topic_id), index), None)

    def served(self, key: PartitionKey) -> None:
        """Data was sent: next time the others come first, so that none is starved."""
        self.partitions[key] = self.partitions.pop(key)


class SessionAnswer:
    """What a request turned out to mean: the partitions to read, or a refusal."""

    __slots__ = ("error_code", "incremental", "partitions", "session")

    def __init__(
        self,
        error_code: int,
        session: FetchSession | None,
        incremental: bool,
        partitions: Iterable[tuple[PartitionKey, SessionPartition]],
    ) -> None:
        self.error_code = error_code
        self.session = session
        self.incremental = incremental
        self.partitions = list(partitions)

    def session_id(self) -> int:
        return 0 if self.session is None else self.session.session_id


class FetchSessions:
    def __init__(self, slots_max: int, new_session_id: Callable[[], int]) -> None:
        self._slots_max = slots_max
        self._new_session_id = new_session_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> SessionAnswer:
        session_id, epoch = request.session_id, request.session_epoch
        if FINAL_EPOCH <= epoch <= 0:
            if session_id != 0:
                self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return SessionAnswer(NONE, None, False, asked_for(request))
            return self._create(request, uses_topic_ids, now_ms)
        session = self._sessions.get(session_id)
        if session is None:
            return SessionAnswer(FETCH_SESSION_ID_NOT_FOUND, None, False, ())
        if session.uses_topic_ids != uses_topic_ids:
            return SessionAnswer(FETCH_SESSION_TOPIC_ID_ERROR, None, False, ())
        if epoch != session.epoch:
            return SessionAnswer(INVALID_FETCH_SESSION_EPOCH, None, False, ())
        session.advance(now_ms)
        session.update(request)
        if not session.partitions:
            # Nothing is left to read in it: the slot is worth more to somebody else.
            del self._sessions[session_id]
            return SessionAnswer(NONE, None, False, ())
        return SessionAnswer(NONE, session, True, session.partitions.items())

    def is_next(self, session: FetchSession, epoch: int) -> bool:
        """Whether a request of that epoch is the one that is due in this session."""
        return epoch == session.epoch and self._sessions.get(session.session_id) is session

    def _create(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> SessionAnswer:
        if not self._make_room(now_ms):
            return SessionAnswer(NONE, None, False, asked_for(request))
        session_id = self._new_session_id()
        while session_id <= 0 or session_id in self._sessions:
            session_id = self._new_session_id()
        session = FetchSession(session_id, uses_topic_ids, now_ms)
        session.update(request)
        self._sessions[session_id] = session
        return SessionAnswer(NONE, session, False, session.partitions.items())

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots_max:
            return True
        for session_id, session in self._sessions.items():
            if now_ms - session.last_used_ms >= SESSION_IDLE_MS_MIN:
                del self._sessions[session_id]
                return True
        return False


def _key(name: str | None, topic_id: uuid.UUID | None) -> str | uuid.UUID:
    if topic_id is not None:
        return topic_id
    return name or ""


def asked_for(request: FetchRequest) -> Iterable[tuple[PartitionKey, SessionPartition]]:
    """Of a partition that is named twice the last one counts, in a session and without one."""
    wanted_last = {
        (_key(name, topic_id), wanted.partition): SessionPartition(name, topic_id, wanted)
        for name, topic_id, partitions in request.topics
        for wanted in partitions
    }
    return wanted_last.items()
