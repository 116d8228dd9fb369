"""DeleteRecords 0-2: move the start of a partition's log forward (v2 flexible).

Offset -1 stands for the high watermark. A partition named twice is done once, by its last mention,
as in Kafka. Internal topics and topics that are only compacted are refused. The answer waits until
every replica that lives has let go of the records, or until its time is up; and until the new log
start is on this broker's disk, so that a crash does not bring back what was said to be gone.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError, StorageError
from ottla.base.ports import Timer
from ottla.handlers.context import Context
from ottla.handlers.group_requests import gather
from ottla.handlers.local_partitions import find_leader, is_known
from ottla.metadata import topic_names
from ottla.protocol.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.partition import Partition

API_KEY = 21
VERSIONS = (0, 2)

NO_LOW_WATERMARK = -1

Fields = dict[str, Any]
Answer = Fields | Deferred[Fields]


def handle(context: Context, request: Any) -> Answer:
    wanted: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            wanted[topic.name, partition.partition_index] = partition.offset
    begun = [
        _delete_before(context, name, index, offset) for (name, index), offset in wanted.items()
    ]
    # One write for all that lie in one place.
    log_dirs = {one.log_dir for one in begun if isinstance(one, _Deletion)}
    saved = {path: context.services.save_log_starts(path) for path in log_dirs}
    answers = [
        one.wait(request.timeout_ms, saved[one.log_dir]) if isinstance(one, _Deletion) else one
        for one in begun
    ]

    def combine(partitions: list[Fields]) -> Fields:
        topics: dict[str, list[Fields]] = {}
        for (name, _), fields in zip(wanted, partitions, strict=True):
            topics.setdefault(name, []).append(fields)
        listed = [{"name": name, "partitions": of_topic} for name, of_topic in topics.items()]
        return {"throttle_time_ms": 0, "topics": listed}

    return gather(answers, combine)


def _answer(index: int, code: int, low_watermark: int = NO_LOW_WATERMARK) -> Fields:
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": code}


def _delete_before(context: Context, topic: str, index: int, offset: int) -> Fields | _Deletion:
    services = context.services
    if not is_known(services, topic, index):
        return _answer(index, UNKNOWN_TOPIC_OR_PARTITION)
    if topic in topic_names.INTERNAL:
        return _answer(index, INVALID_TOPIC_EXCEPTION)
    partition = find_leader(services, topic, index)
    if isinstance(partition, int):
        return _answer(index, partition)
    try:
        log_start = partition.delete_records_before(offset)
    except ProtocolError as refused:
        return _answer(index, refused.code)
    except StorageError as failure:
        services.storage_failed(failure)
        return _answer(index, KAFKA_STORAGE_ERROR)
    return _Deletion(context, partition, log_start)


class _Deletion:
    """Parked until every replica that lives has the new log start, and this disk."""

    __slots__ = (
        "_answer",
        "_context",
        "_is_saved",
        "_log_start",
        "_partition",
        "_timer",
        "log_dir",
    )

    def __init__(self, context: Context, partition: Partition, log_start: int) -> None:
        self._context = context
        self._partition = partition
        self._log_start = log_start
        self._is_saved = False
        self._timer: Timer | None = None
        self._answer: Deferred[Fields] = Deferred()
        self.log_dir = partition.log_dir

    def wait(self, timeout_ms: int, saved: Deferred[None]) -> Answer:
        if not self._is_everywhere():
            timers = self._context.services.timers
            self._timer = timers.call_later(max(timeout_ms, 0), self._on_time)
        self._partition.add_log_start_waiter(self)
        saved.when_done(self._on_saved)
        return self._answer.result() if self._answer.done else self._answer

    def _is_everywhere(self) -> bool:
        return self._low_watermark() >= self._log_start

    def _on_saved(self, outcome: Deferred[None]) -> None:
        if self._answer.done:
            return
        if isinstance(outcome.error(), StorageError):
            self._finish(KAFKA_STORAGE_ERROR)
            return
        outcome.result()
        self._is_saved = True
        self.on_log_start(self._partition)

    def on_log_start(self, partition: Partition) -> None:
        if self._is_saved and self._is_everywhere():
            self._finish(NONE)

    def on_gone(self, partition: Partition) -> None:
        self._finish(partition.check_leader(-1) or NOT_LEADER_OR_FOLLOWER)

    def _on_time(self) -> None:
        # What is asked of the own disk is soon done, or the disk has failed.
        if not self._is_everywhere():
            self._finish(REQUEST_TIMED_OUT)

    def _finish(self, code: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._partition.remove_log_start_waiter(self)
        is_led = code in (NONE, REQUEST_TIMED_OUT)
        low_watermark = self._low_watermark() if is_led else NO_LOW_WATERMARK
        self._answer.resolve(_answer(self._partition.partition, code, low_watermark))

    def _low_watermark(self) -> int:
        return self._partition.low_watermark(self._context.services.image.is_live)
