"""acks=all: a batch that is stored waits until enough others have it."""

from __future__ import annotations

from collections.abc import Callable

from ottla.handlers.context import Context
from ottla.protocol.error_codes import (
    NONE,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.partition import Partition


class CommitWait:
    """Parked until the high watermark has passed the batch, the partition is gone, or time is up;
    then `ended` hears the code, once."""

    __slots__ = ("_context", "_ended", "_partition", "_timer", "last_offset")

    def __init__(
        self,
        context: Context,
        partition: Partition,
        last_offset: int,
        timeout_ms: int,
        ended: Callable[[int], None],
    ) -> None:
        self.last_offset = last_offset
        self._context = context
        self._partition = partition
        self._ended = ended
        self._timer = context.services.timers.call_later(max(timeout_ms, 0), self._timed_out)
        partition.add_commit_waiter(self)

    def on_committed(self, partition: Partition) -> None:
        # Committed by a set that has become too small since: Kafka says so.
        self._end(NONE if partition.has_enough_in_sync() else NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def on_gone(self, partition: Partition) -> None:
        code = partition.check_leader(-1) or NOT_LEADER_OR_FOLLOWER
        if self._context.services.image.topic_by_id(partition.topic_id) is None:
            code = UNKNOWN_TOPIC_OR_PARTITION  # deleted: nobody will ever lead it again
        self._end(code)

    def _timed_out(self) -> None:
        self._partition.remove_commit_waiter(self)
        self._end(REQUEST_TIMED_OUT)

    def _end(self, code: int) -> None:
        self._timer.cancel()
        self._ended(code)
