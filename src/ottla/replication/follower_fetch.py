"""What this broker copies from one leader: what to ask for next, and what to do with the answers.

Owns the incremental session with that leader and the partitions in it, each with the position that
was asked for. Never moves a byte and knows no clock or socket: requests are given out packed,
answers come in as bytes, and what has to happen around them is returned as `FetchEffects`.

Invariants:
  R10  an answer changes a partition only if it was asked for in the same leader epoch and from
       where the log still ends, by the last request that named it
  A partition that was cut, or that has to be on the disk first, is not asked for until `resume`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla.base.errors import ProtocolError, StorageError
from ottla.log.partition_log import PartitionLog
from ottla.log.replicated_append import OffsetsMissing
from ottla.protocol.error_codes import (
    CORRUPT_MESSAGE,
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    name_of,
)
from ottla.protocol.replica_fetch import (
    ReplicaFetched,
    pack_joining,
    pack_partition,
    pack_replica_fetch,
    pack_tail,
    read_replica_fetched,
)
from ottla.replication.counted import must_sync
from ottla.replication.follower_log import (
    begin_within,
    cut_to_common,
    follow_ends,
    start_over,
    store_fetched,
)
from ottla.replication.partition import Partition

EPOCH_MAX = 2**31 - 1
SESSION_ERRORS = (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH)

# Leader and follower learn of an election at about the same time: whoever is first is told so.
USUAL_ERRORS = (
    FENCED_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
BACKOFF_MS_FIRST = 20

GAP_REFUSALS = 3
"""How often offsets that are missing in a log that is not compacted are asked for again. The second
request is for just that offset; at the third, for the same one, the leader looks at its own data,
and by the fourth it has given up leading if that has rotted. Who sends it once more means it: the
topic was compacted in former times."""

Key = tuple[bytes, int]


@dataclass(slots=True)
class FetchLimits:
    """`replica.fetch.*`, as they are now."""

    wait_ms_max: int = 500
    bytes_min: int = 1
    bytes_max: int = 10_485_760
    partition_bytes_max: int = 1_048_576
    backoff_ms: int = 1_000


@dataclass(slots=True)
class FetchEffects:
    """What an answer asks of the driver. `cut`: write the recovery point, then `resume`. `unsafe`:
    sync the log, then `resume`. `failures`: a disk. `complaints`: lines for the log. `refusal`:
    why the leader answered nothing at all, which is a reason to leave it alone for a while."""

    cut: list[Partition] = field(default_factory=list)
    unsafe: list[Partition] = field(default_factory=list)
    failures: list[StorageError] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    refusal: str | None = None
    bytes_stored: int = 0

    def has_more_than_records(self) -> bool:
        return bool(self.cut or self.unsafe or self.failures or self.complaints)


class Followed:
    """One partition that is copied from this leader."""

    __slots__ = (
        "backoff_ms",
        "complaint",
        "due_ms",
        "gap_offset",
        "gap_refusals",
        "is_held",
        "is_in_session",
        "key",
        "leader_epoch",
        "log_start",
        "named",
        "offset",
        "partition",
        "since",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id.bytes, partition.partition)
        self.leader_epoch = partition.leader_epoch
        self.offset = -1
        """From where it was last asked for."""
        self.log_start = -1
        self.is_in_session = False
        self.since = 0
        """The number of the request that brought it into the session."""
        self.named = 0
        """The number of the last request that named it."""
        self.is_held = False
        """Until `resume`."""
        self.due_ms = 0
        self.backoff_ms = 0
        self.gap_offset = -1
        self.gap_refusals = 0
        """How often what the leader sent for `gap_offset` was refused, because it was not that."""
        self.complaint = ""
        """What was said of it last: it is tried again every second, and said once."""


class FollowerFetch:
    def __init__(
        self,
        replica_id: int,
        broker_epoch: int,
        limits: FetchLimits,
        throttle_ms: Callable[[Partition, int], int] = lambda partition, stored: 0,
    ) -> None:
        """`throttle_ms(partition, bytes stored)`: how long to leave a partition alone."""
        self.limits = limits
        self.broker_epoch = broker_epoch
        self._tail = pack_tail(replica_id, broker_epoch)
        self._throttle_ms = throttle_ms
        self._followed: dict[Key, Followed] = {}
        self._changed: dict[Followed, None] = {}
        self._delayed: dict[Followed, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._session_id = 0
        self._session_epoch = 0
        """Of the next request; 0 asks for a new session."""
        self._asked = 0
        """Requests whose answers are still to come."""
        self._number = 0
        """Of the last request that was given out."""
        self._in_session = 0
        self.session_count = 0
        """Grows when a session has ended: what was asked in it has no answer any more."""

    def __len__(self) -> int:
        return len(self._followed)

    def partitions(self) -> Iterable[Partition]:
        return [followed.partition for followed in self._followed.values()]

    # -- who is copied ------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Copy it from this leader, in the epoch that it is in now."""
        self.remove(partition)
        followed = Followed(partition)
        self._followed[followed.key] = followed
        self._changed[followed] = None

    def remove(self, partition: Partition) -> None:
        followed = self._followed.pop((partition.topic_id.bytes, partition.partition), None)
        if followed is not None:
            self._changed.pop(followed, None)
            self._delayed.pop(followed, None)
            self._leave_session(followed)

    def resume(self, partition: Partition) -> None:
        """What it was held for is done."""
        followed = self._followed.get((partition.topic_id.bytes, partition.partition))
        if followed is not None and followed.is_held:
            followed.is_held = False
            self._changed[followed] = None

    def _leave_session(self, followed: Followed) -> None:
        if followed.is_in_session:
            followed.is_in_session = False
            self._in_session -= 1
            self._forgotten[followed.key] = None

    # -- asking -------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self._asked == 0

    def wants_to_interrupt(self) -> bool:
        """Whether there is somebody to ask for that the request under way does not name."""
        return (
            self._asked == 1
            and self._session_epoch > 1
            and any(not followed.is_in_session for followed in self._changed)
        )

    def next_due_ms(self) -> int | None:
        """When a partition that was left alone is to be asked for again."""
        return min((followed.due_ms for followed in self._delayed), default=None)

    def request(self, now_ms: int) -> bytes | None:
        """The next request; None while there is nobody to ask for."""
        self.wake(now_ms)
        if self._session_epoch == 0:
            return self._full_request()
        topics: dict[bytes, list[bytes]] = {}
        for followed in self._changed:
            self._forgotten.pop(followed.key, None)
            self._put(topics, followed)
        self._changed.clear()
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        if not self._in_session:
            self._end_session()
            return None
        return self._pack(topics, forgotten)

    def _full_request(self) -> bytes | None:
        topics: dict[bytes, list[bytes]] = {}
        for followed in self._followed.values():
            if not followed.is_held and followed not in self._delayed:
                self._put(topics, followed)
        self._changed.clear()
        self._forgotten.clear()
        return self._pack(topics, {}) if topics else None

    def _put(self, topics: dict[bytes, list[bytes]], followed: Followed) -> None:
        log = followed.partition.log
        if log is None or followed.is_held:
            self._leave_session(followed)
            return
        followed.offset = log.log_end_offset
        followed.log_start = log.log_start_offset
        followed.named = self._number + 1
        topic_id, index = followed.key
        place = (
            index,
            followed.leader_epoch,
            followed.offset,
            log.leader_epochs.latest,
            followed.log_start,
            self.limits.partition_bytes_max,
        )
        if followed.is_in_session:
            packed = pack_partition(*place, 0)
        else:
            followed.is_in_session = True
            followed.since = followed.named
            self._in_session += 1
            # What answers to requests before this one told of it was not taken.
            packed = pack_joining(place, followed.partition.high_watermark)
        topics.setdefault(topic_id, []).append(packed)

    def _pack(self, topics: dict[bytes, list[bytes]], forgotten: dict[bytes, list[int]]) -> bytes:
        limits = self.limits
        epoch = self._session_epoch
        self._session_epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        self._asked += 1
        self._number += 1
        return pack_replica_fetch(
            (limits.wait_ms_max, limits.bytes_min, limits.bytes_max),
            (self._session_id, epoch),
            topics,
            forgotten,
            self._tail,
        )

    def wake(self, now_ms: int) -> None:
        """Who has rested long enough is to be asked for."""
        if self._delayed:
            for followed in list(self._delayed):
                if followed.due_ms <= now_ms:
                    del self._delayed[followed]
                    self._changed[followed] = None

    def rouse(self) -> None:
        """Whoever rests does so no longer: what it rests for may not be so any more."""
        for followed in self._delayed:
            followed.due_ms = 0

    # -- answers ------------------------------------------------------------------------------

    def on_failure(self) -> None:
        """The connection is gone, or the answer was none: nothing is under way any more."""
        self._end_session()

    def on_answer(self, body: memoryview, now_ms: int) -> FetchEffects:
        """The answer to the oldest request that is under way. MalformedRequest if it is none."""
        effects = FetchEffects()
        code, session_id, answers = read_replica_fetched(body)
        number = self._number - self._asked + 1
        self._asked -= 1
        if code != NONE:
            self._end_session()
            if code not in SESSION_ERRORS:
                effects.refusal = name_of(code)
            return effects
        if session_id == 0:
            self._session_epoch = 0  # it keeps none for us: ask for everything each time
        self._session_id = session_id
        for one in answers:
            followed = self._followed.get((one.topic_id, one.partition))
            if followed is None or not followed.is_in_session or number < followed.since:
                continue
            if number < followed.named:
                self._take_ends(followed, one, effects)
            else:
                self._take(followed, one, now_ms, effects)
        return effects

    def _end_session(self) -> None:
        self.session_count += 1
        self._session_id = self._session_epoch = self._asked = self._in_session = 0
        self._forgotten.clear()
        for followed in self._followed.values():
            followed.is_in_session = False

    def _take_ends(self, followed: Followed, one: ReplicaFetched, effects: FetchEffects) -> None:
        """Of an answer to an earlier request than the last that named it, while the leader could
        not know yet from where it is wanted now: records may be those that are stored already. It
        answers that request as well, but where its log begins and what is committed it tells once.
        """
        partition = followed.partition
        log = partition.log
        if log is None or partition.leader_epoch != followed.leader_epoch:
            return
        if one.error_code == NONE and one.diverging is None:
            try:
                follow_ends(partition, log, one.high_watermark, one.log_start_offset)
            except StorageError as failure:
                effects.failures.append(failure)
            if log.log_start_offset != followed.log_start:
                self._changed[followed] = None

    def _take(
        self, followed: Followed, one: ReplicaFetched, now_ms: int, effects: FetchEffects
    ) -> None:
        partition = followed.partition
        log = partition.log
        if log is None or partition.leader_epoch != followed.leader_epoch:
            return
        try:
            if one.error_code == NONE and one.diverging is None:
                self._follow(followed, log, one, now_ms, effects)
            elif followed.offset != log.log_end_offset:
                return
            elif one.error_code == NONE and one.diverging is not None:
                self._cut(followed, log, one.diverging, effects)
            elif (
                one.error_code == OFFSET_OUT_OF_RANGE and one.log_start_offset > log.log_end_offset
            ):
                start_over(partition, log, one.log_start_offset)
                self._hold(followed, effects.cut)
            else:
                self._delay(followed, one.error_code, now_ms, effects)
        except ProtocolError as refused:
            if partition.broken is None:
                self._delay(followed, refused.code, now_ms, effects, refused.message)
        except StorageError as failure:
            effects.failures.append(failure)

    def _follow(
        self,
        followed: Followed,
        log: PartitionLog,
        one: ReplicaFetched,
        now_ms: int,
        effects: FetchEffects,
    ) -> None:
        partition = followed.partition
        stored = 0
        went_down = False
        if one.records and followed.offset == log.log_end_offset:
            went_down = begin_within(log, one.records)
            stored = self._store(followed, log, one.records)
            effects.bytes_stored += stored
        follow_ends(partition, log, one.high_watermark, one.log_start_offset)
        followed.backoff_ms = 0
        followed.complaint = ""
        if stored and must_sync(log):
            # Its next fetch says that it has this: it has to be true after a power cut as well.
            self._hold(followed, effects.unsafe)
            return
        if went_down:
            self._hold(followed, effects.cut)
            return
        pause_ms = self._throttle_ms(partition, stored) if stored else 0
        if pause_ms:
            self._pause(followed, now_ms + pause_ms)
        elif log.log_end_offset != followed.offset or log.log_start_offset != followed.log_start:
            self._changed[followed] = None

    def _store(self, followed: Followed, log: PartitionLog, records: memoryview) -> int:
        is_sure = followed.gap_refusals >= GAP_REFUSALS
        gaps_allowed = is_sure or "compact" in log.config.cleanup_policy
        try:
            return store_fetched(followed.partition, log, records, gaps_allowed=gaps_allowed)
        except OffsetsMissing:
            if followed.gap_offset != log.log_end_offset:
                followed.gap_offset, followed.gap_refusals = log.log_end_offset, 0
            followed.gap_refusals += 1
            raise

    def _cut(
        self,
        followed: Followed,
        log: PartitionLog,
        diverging: tuple[int, int],
        effects: FetchEffects,
    ) -> None:
        partition = followed.partition
        end_before = log.log_end_offset
        went_down = cut_to_common(partition, log, *diverging)
        effects.complaints.append(
            f"{partition.topic}-{partition.partition}: cut from {end_before} to "
            f"{log.log_end_offset}, where the log of the leader is another"
        )
        if went_down:
            self._hold(followed, effects.cut)
        else:
            self._changed[followed] = None

    def _hold(self, followed: Followed, reason: list[Partition]) -> None:
        followed.is_held = True
        self._changed.pop(followed, None)
        self._leave_session(followed)
        reason.append(followed.partition)

    def _delay(
        self,
        followed: Followed,
        code: int,
        now_ms: int,
        effects: FetchEffects,
        message: str = "",
    ) -> None:
        limit_ms = self.limits.backoff_ms
        if code not in USUAL_ERRORS:
            partition = followed.partition
            complaint = f"{partition.topic}-{partition.partition}: {message or name_of(code)}"
            if complaint != followed.complaint:
                effects.complaints.append(complaint)
            followed.complaint = complaint
        backoff_ms = max(2 * followed.backoff_ms, BACKOFF_MS_FIRST)
        followed.backoff_ms = limit_ms if code == CORRUPT_MESSAGE else min(backoff_ms, limit_ms)
        self._pause(followed, now_ms + followed.backoff_ms)

    def _pause(self, followed: Followed, due_ms: int) -> None:
        followed.due_ms = due_ms
        self._changed.pop(followed, None)
        self._leave_session(followed)
        self._delayed[followed] = None
