"""What each follower copies from this broker: its session, and what there is to tell it.

Owns one session for each follower. A partition that has something for a follower says so itself
(`on_news`), so a fetch costs as much as has happened since the last one and not as much as there
are partitions. Never decides who may fetch; that the caller is who it says it is, in the life that
the image knows, has been checked.

A follower that asks for an offset holds everything below it, but only if that offset and its last
epoch are in this log: before that nothing is learned from it (features 6.3, KIP-595).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import NamedTuple

from ottla.base.errors import ProtocolError, StorageError
from ottla.log.partition_log import LogSlice, PartitionLog
from ottla.log.segment import RottenLength
from ottla.protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
)
from ottla.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from ottla.protocol.fetch_request import NO_HIGH_WATERMARK
from ottla.replication.effects import InSyncProposal
from ottla.replication.in_sync_tracker import MayBeMember
from ottla.replication.leader_progress import Pulse
from ottla.replication.partition import Partition
from ottla.replication.throttle import Throttle

EPOCH_MAX = 2**31 - 1
NO_FOLLOWER = -1

ReadKey = tuple[uuid.UUID, int]
Told = list[tuple[uuid.UUID, FetchedPartition]]
"""Topic ids and what is told of their partitions."""


def no_suspicion(partition: Partition, offset: int) -> None:
    """Of a broker that does not look at its own data."""


class Surroundings(NamedTuple):
    """What a session asks of the broker: `find` gives a partition or the error code that is
    owed."""

    broker_id: int
    find: Callable[[uuid.UUID, int], Partition | int]
    may_be_member: MayBeMember
    propose: Callable[[Partition, InSyncProposal], None]
    storage_failed: Callable[[StorageError], None]
    throttle: Throttle
    doubt: Callable[[Partition, int, int], None]
    """A partition has stepped down, because this replica spoke of this epoch: the store has to be
    asked whether there is such an epoch."""
    suspect: Callable[[Partition, int], None] = no_suspicion
    """A follower got what stands at this offset and asks for it again: it may be broken."""


class ReplicaRead:
    """One partition as one follower copies it."""

    __slots__ = (
        "asked",
        "diverging",
        "error_code",
        "key",
        "partition",
        "session",
        "told_log_start",
        "told_watermark",
    )

    def __init__(self, session: ReplicaSession, key: ReadKey, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.asked = asked
        self.partition: Partition | None = None
        self.error_code = NONE
        self.diverging: tuple[int, int] | None = None
        self.told_watermark = -1
        self.told_log_start = -1

    def on_news(self) -> None:
        session = self.session
        session.news[self] = None
        session.gathered += 1
        if session.is_parked:
            if session.gathered >= session.hoped_for:
                session.is_parked = False
                session.wake()
            else:
                session.hold()

    def on_watermark(self) -> None:
        """Worth telling with the next answer; not worth an answer of its own, unless somebody reads
        from that follower."""
        self.session.news[self] = None
        if self.session.is_eager:
            self.on_news()


class ReplicaSession(Pulse):
    __slots__ = (
        "_reads",
        "_sent",
        "_surroundings",
        "_untaken",
        "answer_waiting",
        "broker_epoch",
        "epoch",
        "gathered",
        "hold",
        "hoped_for",
        "is_eager",
        "is_parked",
        "news",
        "replica_id",
        "session_id",
        "wake",
    )

    def __init__(
        self,
        replica_id: int,
        broker_epoch: int,
        session_id: int,
        surroundings: Surroundings,
        now_ms: int,
    ) -> None:
        super().__init__(now_ms)
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.session_id = session_id
        self.epoch = 1
        self.is_eager = False
        self.is_parked = False
        self.wake: Callable[[], None] = lambda: None
        """Called once for each time that `is_parked` was set."""
        self.gathered = 0
        """How often there were news since the last answer that told any."""
        self.hoped_for = 0
        """How many the last such answer told: of a producer with five batches under way the others
        come a moment after the first, and all of them are copied and acknowledged at the price of
        one. One batch at a time never waits."""
        self.hold: Callable[[], None] = lambda: None
        """Called with news while more are hoped for: the answer is due in a moment, by the first
        of these calls."""
        self.answer_waiting: Callable[[], None] = lambda: None
        """Answers the request that waits, if one does. Before the next one is taken: an answer
        tells nothing of what only a later request has named, for the follower would not take it,
        and would not be told again."""
        self.news: dict[ReplicaRead, None] = {}
        self._reads: dict[ReadKey, ReplicaRead] = {}
        self._sent: list[ReplicaRead] = []
        """Who got bytes with the last answer: unless they are named again, they did not take it."""
        self._untaken: dict[ReadKey, int] = {}
        """Who got bytes from this offset on and then was let go of, before it was named again."""
        self._surroundings = surroundings

    def __len__(self) -> int:
        return len(self._reads)

    def follow_up(self, earlier: ReplicaSession) -> None:
        """This session takes the place of another one of the same follower."""
        self._untaken = earlier._untaken
        for read in earlier._sent:
            self._untaken[read.key] = read.asked.fetch_offset

    def close(self) -> None:
        for read in self._reads.values():
            _let_go(read)
        self._reads.clear()
        self.news.clear()

    # -- a request ----------------------------------------------------------------------------

    def take(self, request: FetchRequest, now_ms: int) -> None:
        """What the follower says of its partitions: all that it does not name are as before."""
        self.fetched_ms = now_ms
        for _, topic_id, indexes in request.forgotten:
            for index in indexes:
                if topic_id is not None:
                    self._forget((topic_id, index))
        for read in self._sent:
            self.news[read] = None
        self._sent.clear()
        for _, topic_id, partitions in request.topics:
            if topic_id is None:
                continue
            for asked in partitions:
                self._name((topic_id, asked.partition), asked)

    def _forget(self, key: ReadKey) -> None:
        read = self._reads.pop(key, None)
        if read is not None:
            self.news.pop(read, None)
            _let_go(read)
            if read in self._sent:
                self._sent.remove(read)
                self._untaken[key] = read.asked.fetch_offset

    def _name(self, key: ReadKey, asked: FetchPartition) -> None:
        read = self._reads.get(key)
        untaken_offset = -1
        if read is None:
            read = self._reads[key] = ReplicaRead(self, key, asked)
            untaken_offset = self._untaken.pop(key, -1)
        else:
            read.asked = asked
        if asked.high_watermark != NO_HIGH_WATERMARK:
            # It has not taken all that was told: it let go of the partition in between.
            read.told_watermark, read.told_log_start = asked.high_watermark, asked.log_start_offset
        self.news[read] = None
        read.error_code = self._learn(read, asked)
        if untaken_offset == asked.fetch_offset and read.partition is not None:
            self._surroundings.suspect(read.partition, asked.fetch_offset)

    def _learn(self, read: ReplicaRead, asked: FetchPartition) -> int:
        """The error code that is owed; NONE if what the follower says was taken for true."""
        partition = read.partition
        read.diverging = None
        if partition is None:
            found = self._surroundings.find(*read.key)
            if isinstance(found, int):
                return found
            partition = read.partition = found
            partition.add_reader(read)
        code = partition.check_leader(asked.current_leader_epoch)
        if code != NONE:
            epoch = asked.current_leader_epoch
            if code == UNKNOWN_LEADER_EPOCH and partition.step_down(epoch):
                self._surroundings.doubt(partition, self.replica_id, epoch)
            return self._lose(read, code)
        if not partition.has_follower(self.replica_id):
            # It has heard of its assignment before us.
            return self._lose(read, UNKNOWN_LEADER_EPOCH)
        log = partition.log
        if log is None:
            return self._lose(read, KAFKA_STORAGE_ERROR)
        read.diverging = _divergence(partition, log, asked)
        if read.diverging is not None:
            return NONE
        if asked.fetch_offset < log.log_start_offset:
            return OFFSET_OUT_OF_RANGE
        proposal = partition.on_follower_fetch(
            self.replica_id,
            self.broker_epoch,
            asked.fetch_offset,
            asked.log_start_offset,
            self,
            self._surroundings.may_be_member,
        )
        if proposal is not None:
            self._surroundings.propose(partition, proposal)
        return NONE

    def _lose(self, read: ReplicaRead, code: int) -> int:
        """The partition is looked for again when it is named again."""
        _let_go(read)
        return code

    # -- an answer ----------------------------------------------------------------------------

    def collect(self, bytes_max: int) -> tuple[Told, bool]:
        """What there is to tell, and whether that is worth an answer now."""
        told: Told = []
        is_urgent = False
        bytes_read = 0
        news, self.news = self.news, {}
        for read in news:
            fetched = self._read(read, bytes_max - bytes_read, bytes_read == 0)
            if fetched is None:
                continue
            told.append((read.key[0], fetched))
            if fetched.records is not None:
                bytes_read += fetched.records.size
                self._sent.append(read)
                is_urgent = True
            elif fetched.error_code != NONE or fetched.diverging_epoch is not None:
                is_urgent = True
            elif self.is_eager:
                is_urgent = True  # its own request may have moved the watermark
        return told, is_urgent

    def hopes_for_more(self) -> bool:
        """Whether there are news, and fewer than an answer had the last time."""
        return 0 < self.gathered < self.hoped_for

    def on_told(self) -> None:
        """All news are on their way to the follower."""
        self.hoped_for, self.gathered = self.gathered, 0

    def put_back(self, told: Told) -> None:
        """It was not worth an answer: the next one is to tell it."""
        for topic_id, fetched in told:
            read = self._reads.get((topic_id, fetched.index))
            if read is not None:
                read.told_watermark = read.told_log_start = -1
                self.news[read] = None

    def _read(self, read: ReplicaRead, bytes_left: int, is_first: bool) -> FetchedPartition | None:
        index = read.key[1]
        partition = read.partition
        code = read.error_code
        if partition is not None and code == NONE:
            code = partition.check_leader(read.asked.current_leader_epoch)
        log = None if partition is None else partition.log
        if partition is None or log is None or code != NONE:
            log_start = -1 if log is None else log.log_start_offset
            return _failed(index, code or KAFKA_STORAGE_ERROR, log_start)
        if read.diverging is not None:
            return self._tell(read, partition, log, None, read.diverging)
        if read.asked.fetch_offset >= log.log_end_offset:
            return self._tell(read, partition, log, None, None)
        if (bytes_left <= 0 and not is_first) or not self._may_send(partition):
            self.news[read] = None  # it comes first in the next answer
            return self._tell(read, partition, log, None, None)
        try:
            records = self._records(read, partition, log, bytes_left, is_first)
        except RottenLength as rotten:
            self._surroundings.suspect(partition, rotten.offset)
            return _failed(index, rotten.code, log.log_start_offset)
        except ProtocolError as refused:
            return _failed(index, refused.code, log.log_start_offset)
        except StorageError as failure:
            self._surroundings.storage_failed(failure)
            return _failed(index, KAFKA_STORAGE_ERROR, -1)
        return self._tell(read, partition, log, records, None)

    def _records(
        self,
        read: ReplicaRead,
        partition: Partition,
        log: PartitionLog,
        bytes_left: int,
        is_first: bool,
    ) -> LogSlice | None:
        asked = read.asked
        records = log.read(
            asked.fetch_offset,
            max(min(asked.partition_max_bytes, bytes_left), 0),
            log.log_end_offset,
            at_least_one=is_first,
        )
        throttle = self._surroundings.throttle
        if records is None:
            self.news[read] = None
        elif throttle.is_on and self._is_throttled(partition):
            throttle.spend(records.size, self.fetched_ms)
        return records

    def _may_send(self, partition: Partition) -> bool:
        throttle = self._surroundings.throttle
        if not throttle.is_on or not self._is_throttled(partition):
            return True
        return throttle.wait_ms(self.fetched_ms) == 0

    def _is_throttled(self, partition: Partition) -> bool:
        """Who is in sync is never held back. The setting lists who sends, as in Kafka, and not to
        whom."""
        surroundings = self._surroundings
        return self.replica_id not in partition.in_sync and surroundings.throttle.applies(
            partition.topic, partition.partition, surroundings.broker_id
        )

    def _tell(
        self,
        read: ReplicaRead,
        partition: Partition,
        log: PartitionLog,
        records: LogSlice | None,
        diverging: tuple[int, int] | None,
    ) -> FetchedPartition | None:
        watermark, log_start = partition.high_watermark, log.log_start_offset
        if records is None and diverging is None:
            if watermark == read.told_watermark and log_start == read.told_log_start:
                return None
        read.told_watermark, read.told_log_start = watermark, log_start
        return FetchedPartition(
            read.key[1],
            NONE,
            watermark,
            watermark,
            log_start,
            None,
            NO_FOLLOWER,
            records,
            diverging,
        )


class ReplicaSessions:
    """One for each follower: a new one ends what the follower had before."""

    def __init__(self, surroundings: Surroundings, new_session_id: Callable[[], int]) -> None:
        self._surroundings = surroundings
        self._new_session_id = new_session_id
        self._sessions: dict[int, ReplicaSession] = {}
        self.is_eager = False

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, now_ms: int) -> ReplicaSession | int:
        """The session that a request belongs to, new if it asks for that, or an error code."""
        replica_id = request.replica_id
        session = self._sessions.get(replica_id)
        if request.session_epoch <= 0:
            fresh = ReplicaSession(
                replica_id, request.replica_epoch, self._fresh_id(), self._surroundings, now_ms
            )
            if session is not None:
                fresh.follow_up(session)
            self.end(replica_id)
            fresh.is_eager = self.is_eager
            self._sessions[replica_id] = fresh
            return fresh
        if session is None or session.session_id != request.session_id:
            return FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch or session.broker_epoch != request.replica_epoch:
            return INVALID_FETCH_SESSION_EPOCH
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        return session

    def end(self, replica_id: int) -> None:
        session = self._sessions.pop(replica_id, None)
        if session is not None:
            session.close()
            if session.is_parked:
                session.is_parked = False
                session.wake()

    def set_eager(self, is_eager: bool) -> None:
        """Whether consumers read from followers, which then should hear of commits at once."""
        self.is_eager = is_eager
        for session in self._sessions.values():
            session.is_eager = is_eager

    def _fresh_id(self) -> int:
        session_id = self._new_session_id()
        while session_id <= 0:
            session_id = self._new_session_id()
        return session_id


def _let_go(read: ReplicaRead) -> None:
    if read.partition is not None:
        read.partition.remove_reader(read)
        read.partition = None


def _failed(index: int, code: int, log_start: int) -> FetchedPartition:
    return FetchedPartition(index, code, -1, -1, log_start, None, NO_FOLLOWER, None)


def _divergence(
    partition: Partition, log: PartitionLog, asked: FetchPartition
) -> tuple[int, int] | None:
    """Where the follower's log and ours part, if its end is not in ours."""
    last_epoch = asked.last_fetched_epoch
    if last_epoch >= 0:
        epoch, end_offset = partition.end_offset_for_epoch(last_epoch)
        if epoch < 0:
            return partition.leader_epoch, log.log_end_offset
        if epoch < last_epoch or end_offset < asked.fetch_offset:
            return epoch, end_offset
    if asked.fetch_offset > log.log_end_offset:
        # It has more than there ever was here: an unclean election.
        return partition.leader_epoch, log.log_end_offset
    return None
