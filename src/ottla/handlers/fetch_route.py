"""The short way of a fetch: straight to the partition that the connection's last one read.

A reader of one partition asks again and again, and its requests differ in nothing but the offset
and, in a session, the epoch. So what was looked up for one is kept as a route, and the next request
that is otherwise the same, byte for byte, takes it: about half the cost of the long way through
`api_01_fetch`.

It serves only records, at once or when they come. For everything else, a refusal included, it does
nothing and returns None; the long way then finds the reason and gives the answer. So does it where
a fetch has waited in vain.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError, StorageError
from ottla.handlers.context import Context
from ottla.handlers.fetch_wait import FetchWait
from ottla.handlers.local_partitions import ANY_EPOCH
from ottla.handlers.reply import Part, Reply
from ottla.log.partition_log import LogSlice
from ottla.protocol.api_keys import FETCH
from ottla.protocol.error_codes import NONE
from ottla.protocol.fetch import (
    USUAL_BYTES,
    FetchRequest,
    is_usual,
    read_fetch_request,
    split_usual,
)
from ottla.protocol.primitives import uvarint
from ottla.replication.fetch_sessions import FINAL_EPOCH, SessionAnswer
from ottla.replication.partition import Partition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1

# Size, correlation id, no tags; throttle time, error code, session; one topic, its id; one
# partition, its index, error code, watermark, last stable offset, log start; the count of aborted
# transactions, of which none or null are told; no preferred replica.
START = struct.Struct(">ii B ihi B 16s B ihqqq B i")
# No tags of the partition, the topic and the answer.
END = b"\0\0\0"
SIZE_AND_CORRELATION_ID = struct.Struct(">ii").pack
ONE = 2
NULL, EMPTY = 0, 1

TellAtLast = Callable[[Context, FetchRequest, SessionAnswer], Reply]
"""The long way's answer from what there is."""


class _LongWay(OttlaError):
    """There is something to tell that this way has no words for."""


_TO_THE_LONG_WAY = (_LongWay, ProtocolError, StorageError)


class FetchRoute:
    """Where requests go that differ from `body` in nothing but epoch and offset."""

    __slots__ = (
        "_answer",
        "_bytes_max",
        "_bytes_min",
        "_head",
        "_is_committed",
        "_leader_epoch",
        "_middle",
        "_tail",
        "_tell",
        "_topic_id",
        "_wait_ms",
        "_wanted",
        "partition",
    )

    api_key = FETCH

    def __init__(
        self,
        body: memoryview,
        request: FetchRequest,
        answer: SessionAnswer,
        partition: Partition,
        bytes_max: int,
        tell: TellAtLast,
    ) -> None:
        self._head, _, self._middle, _, self._tail = split_usual(body)
        self._answer = answer
        self._tell = tell
        self.partition = partition
        self._bytes_min = request.min_bytes
        self._wait_ms = request.max_wait_ms
        self._is_committed = request.isolation_level == READ_COMMITTED
        self._wanted = wanted = request.topics[0][2][0]
        self._topic_id = partition.topic_id.bytes
        self._leader_epoch = max(wanted.current_leader_epoch, ANY_EPOCH)
        self._bytes_max = max(min(wanted.partition_max_bytes, bytes_max), 0)

    def answer(
        self, context: Context, body: memoryview, correlation_id: int
    ) -> list[Part] | Deferred[Any] | None:
        if len(body) != USUAL_BYTES:
            return None
        head, epoch, middle, offset, tail = split_usual(body)
        if head != self._head or middle != self._middle or tail != self._tail:
            return None
        if not self._is_next(context, epoch):
            return None
        try:
            records = self.find(offset)
        except _TO_THE_LONG_WAY:
            return None
        self._go_on(context, offset)
        missing_bytes = self.missing_bytes(records)
        if records is not None and missing_bytes <= 0:
            return self.tell(correlation_id, records)
        return _RoutedFetch(self, context, bytes(body), offset, correlation_id).waiting(
            missing_bytes, self._wait_ms
        )

    def _is_next(self, context: Context, epoch: int) -> bool:
        """Whether it is due in its session, if it has one, which reads nothing but this."""
        session = self._answer.session
        if session is None:
            return epoch == FINAL_EPOCH
        (_, known) = self._answer.partitions[0]
        return (
            context.services.fetch_sessions.is_next(session, epoch)
            and len(session.partitions) == 1
            and known in session.partitions.values()
        )

    def _go_on(self, context: Context, offset: int) -> None:
        session = self._answer.session
        if session is not None:
            session.advance(context.services.clock.monotonic_ms())
            (_, known) = self._answer.partitions[0]
            known.request = self._wanted
            known.request.fetch_offset = offset

    def find(self, offset: int) -> LogSlice | None:
        """What there is to be read from there on; whatever has to be told otherwise is raised."""
        partition = self.partition
        log = partition.log
        if log is None or partition.check_replica(self._leader_epoch) != NONE:
            raise _LongWay
        if not self._is_committed:
            return log.read(offset, self._bytes_max, partition.high_watermark)
        upper_bound = partition.last_stable_offset
        records = log.read(offset, self._bytes_max, upper_bound)
        if records is not None and log.aborted_transactions(offset, upper_bound, records):
            raise _LongWay
        return records

    def missing_bytes(self, records: LogSlice | None) -> int:
        found = 0 if records is None else records.bytes_for(self._bytes_max)
        return self._bytes_min - found

    def tell(self, correlation_id: int, records: LogSlice) -> list[Part]:
        partition = self.partition
        log = partition.log
        if log is None:
            raise _LongWay
        watermark, log_start, size = partition.high_watermark, log.log_start_offset, records.size
        answer = self._answer
        session_id = 0
        if answer.session is not None:
            session_id = answer.session.session_id
            answer.partitions[0][1].told(watermark, log_start)
        length = uvarint(size + 1)
        start = START.pack(
            START.size - 4 + len(length) + size + len(END),
            correlation_id,
            0,
            0,
            NONE,
            session_id,
            ONE,
            self._topic_id,
            ONE,
            partition.partition,
            NONE,
            watermark,
            partition.last_stable_offset,
            log_start,
            EMPTY if self._is_committed else NULL,
            -1,
        )
        return [start + length, records, END]

    def tell_at_last(self, context: Context, body: bytes, correlation_id: int) -> list[Part]:
        """The long way's answer to a request that has gone this way so far."""
        request = read_fetch_request(context.api_version, memoryview(body))
        session = self._answer.session
        if session is None:
            answer = context.services.fetch_sessions.resolve(request, True, 0)
            answer.partitions[0][1].name = self.partition.topic  # as when it came, if it has gone
        else:
            answer = SessionAnswer(NONE, session, True, session.partitions.items())
        reply = self._tell(context, request, answer)
        start = SIZE_AND_CORRELATION_ID(5 + reply.size, correlation_id) + b"\0"
        return [start, *reply.parts]


class _RoutedFetch(FetchWait):
    """One request that waits."""

    __slots__ = ("_body", "_context", "_correlation_id", "_offset", "_route")

    def __init__(
        self, route: FetchRoute, context: Context, body: bytes, offset: int, correlation_id: int
    ) -> None:
        self._route = route
        self._context = context
        self._body = body
        self._offset = offset
        self._correlation_id = correlation_id

    def waiting(self, missing_bytes: int, wait_ms: int) -> Deferred[Any]:
        return self.wait(self._context.services, (self._route.partition,), missing_bytes, wait_ms)

    def enough(self) -> list[Part] | None:
        route = self._route
        try:
            records = route.find(self._offset)
            missing_bytes = route.missing_bytes(records)
            if records is not None and missing_bytes <= 0:
                return route.tell(self._correlation_id, records)
        except _TO_THE_LONG_WAY:
            return self.at_last()
        self.missing_bytes = missing_bytes
        return None

    def at_last(self) -> list[Part]:
        return self._route.tell_at_last(self._context, self._body, self._correlation_id)


def learn(
    context: Context,
    body: memoryview,
    request: FetchRequest,
    answer: SessionAnswer,
    partition: Partition,
    tell: TellAtLast,
) -> None:
    """Keep the route of a request that went the long way and found its partition in order."""
    if not is_usual(context.api_version, body) or len(answer.partitions) != 1:
        return
    if answer.session is None:
        # With an id it would end that session, each time.
        if request.session_epoch != FINAL_EPOCH or request.session_id:
            return
    elif not answer.incremental or answer.session.session_id != request.session_id:
        return
    wanted = request.topics[0][2][0]
    # Who tells its last epoch wants to hear of a divergence; who does not wait, of nothing.
    if wanted.last_fetched_epoch >= 0 or request.min_bytes < 1 or request.max_wait_ms <= 0:
        return
    bytes_max = min(request.max_bytes, context.services.config.get_int("fetch.max.bytes"))
    context.route = FetchRoute(body, request, answer, partition, bytes_max, tell)
