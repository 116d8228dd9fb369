"""Brokers that misbehave by chance, for a producer in simulated time.

`ProduceWorld` has one topic, one log for each partition and some brokers that lead them in turn.
Whatever a broker acknowledges is in the log (there is no loss here): the question is what the
client makes of answers that are lost, late, doubled or nonsense, of leaders that move and of
connections that are cut. A log knows producers as Kafka's does: the last five batches are
duplicates, anything else must go on where the last one ended.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from typing import Any, NamedTuple

from ottla.client.connection import CLOSED, Connection
from ottla.client.producer_machine import ProducerMachine
from ottla.protocol import api_keys, messages
from ottla.protocol import error_codes as codes
from ottla.protocol.headers import read_request_header, response_header
from ottla.protocol.primitives import NULL_UUID
from ottla.records.batch_header import (
    BASE_SEQUENCE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    read_header,
)
from ottla.records.batch_view import is_intact, records_of
from tests.unit.client.pure_world import FIRST_PORT, World, metadata

TOPIC = "t"
CACHED_BATCHES = 5
FAULTS = (
    "lost",  # appended, then the connection is cut before the answer
    "cut",  # cut before anything happens
    "late",
    "silent",  # appended, never answered
    "deaf",  # neither appended nor answered
    "refused",
    "stored but",  # appended, and an error that does not say so
    "twice",
    "nonsense",
    "moved",  # another broker leads from now on
)
REFUSALS = (
    codes.NOT_ENOUGH_REPLICAS,
    codes.NOT_LEADER_OR_FOLLOWER,
    codes.UNKNOWN_TOPIC_OR_PARTITION,
    codes.LEADER_NOT_AVAILABLE,
)


class Written(NamedTuple):
    first: int
    last: int
    offset: int


class Log:
    """A partition: its records, and what it knows of producers."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._producers: dict[int, tuple[int, deque[Written]]] = {}

    def append(self, batch: bytes) -> tuple[int, int]:
        """(error code, base offset)."""
        assert is_intact(batch)
        header = read_header(batch)
        producer, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        first = header[BASE_SEQUENCE]
        last = (first + header[RECORD_COUNT] - 1) & 0x7FFFFFFF
        if producer >= 0:
            code, offset = self._check(producer, epoch, first, last)
            if code != codes.NONE or offset >= 0:
                return code, offset
        offset = len(self.values)
        self.values += [record.value or b"" for record in records_of(batch, 1 << 24)]
        if producer >= 0:
            self._producers[producer][1].append(Written(first, last, offset))
        return codes.NONE, offset

    def _check(self, producer: int, epoch: int, first: int, last: int) -> tuple[int, int]:
        known = self._producers.get(producer)
        if known is None:
            self._producers[producer] = (epoch, deque(maxlen=CACHED_BATCHES))
            return codes.NONE, -1
        known_epoch, batches = known
        if epoch < known_epoch:
            return codes.INVALID_PRODUCER_EPOCH, -1
        if epoch > known_epoch:
            if first != 0:
                return codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self._producers[producer] = (epoch, deque(maxlen=CACHED_BATCHES))
            return codes.NONE, -1
        for written in batches:
            if (written.first, written.last) == (first, last):
                return codes.NONE, written.offset
        if batches and first != (batches[-1].last + 1) & 0x7FFFFFFF:
            return codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return codes.NONE, -1


class ProduceWorld(World):
    def __init__(
        self,
        machine: ProducerMachine,
        seed: int,
        *,
        partitions: int = 3,
        nodes: int = 3,
        fault_rate: float = 0.3,
        batch_bytes_max: int = 1 << 20,
    ) -> None:
        super().__init__(machine.core, {api_keys.METADATA: self._metadata})
        self.machine = machine
        self.chance = random.Random(seed)
        self.fault_rate = fault_rate
        self.batch_bytes_max = batch_bytes_max
        self.logs = [Log() for _ in range(partitions)]
        self.nodes = nodes
        self.leaders = [self.chance.randrange(nodes) for _ in range(partitions)]
        self.epochs = [0] * partitions
        self.faults: list[str] = []
        self._later: list[tuple[float, int, Connection, bytes | Exception]] = []
        self._ticks = itertools.count()
        self._producer_ids = itertools.count(7)

    # ---------------------------------------------------------------------------------- time

    def advance(self, milliseconds: float) -> None:
        end_ms = self.now_ms + milliseconds
        self.settle()
        while True:
            deadlines = [self.core.next_deadline_ms(), self._later[0][0] if self._later else None]
            due_ms = min((each for each in deadlines if each is not None), default=end_ms + 1)
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            while self._later and self._later[0][0] <= self.now_ms:
                _, _, connection, frame = heapq.heappop(self._later)
                self._deliver(connection, frame)
            self.core.on_time(self.now_ms)
            self.settle()
        self.now_ms = end_ms
        self.core.on_time(end_ms)
        self.settle()

    # ------------------------------------------------------------------------------- answers

    def _metadata(self, request: Any, version: int) -> Any:
        fields = metadata({TOPIC: list(self.leaders)}, self.nodes)
        for one in fields["topics"][0]["partitions"]:
            one["leader_epoch"] = self.epochs[one["partition_index"]]
        return fields

    def _answer(self, connection: Connection, frame: bytes) -> None:
        header = read_request_header(memoryview(frame))
        key, version = header.api_key, header.api_version
        if key not in (api_keys.PRODUCE, api_keys.INIT_PRODUCER_ID):
            super()._answer(connection, frame)
            return
        request = messages.decode_request(key, version, frame[header.body_position :])
        head = response_header(key, version, header.correlation_id)
        if key == api_keys.INIT_PRODUCER_ID:
            fields = {
                "throttle_time_ms": 0,
                "error_code": 0,
                "producer_id": next(self._producer_ids),
                "producer_epoch": 0,
            }
            self._send(connection, head + messages.encode_response(key, version, fields), 1)
            return
        fault = self._draw_fault()
        if fault == "cut":
            self._send(connection, ConnectionError("cut"), 1)
            return
        if fault == "deaf":
            return
        body = self._produce(connection, request, version, fault)
        if fault == "silent":
            return
        if fault == "lost":
            self._send(connection, ConnectionError("cut"), self.chance.uniform(0, 20))
            return
        if fault == "nonsense":
            body = self.chance.randbytes(self.chance.randrange(40))
        delay_ms = self.chance.uniform(0, 3000) if fault == "late" else self.chance.uniform(0, 5)
        self._send(connection, head + body, delay_ms)
        if fault == "twice":
            self._send(connection, head + body, delay_ms + 1)

    def _draw_fault(self) -> str | None:
        if self.chance.random() >= self.fault_rate:
            return None
        fault = self.chance.choice(FAULTS)
        self.faults.append(fault)
        if fault == "moved":
            partition = self.chance.randrange(len(self.logs))
            self.leaders[partition] = self.chance.randrange(self.nodes)
            self.epochs[partition] += 1
        return fault

    def _produce(
        self, connection: Connection, request: Any, version: int, fault: str | None
    ) -> bytes:
        responses = []
        for one in request.topic_data[0].partition_data:
            code, offset = self._append(connection, one.index, bytes(one.records), fault)
            responses.append(
                {
                    "index": one.index,
                    "error_code": code,
                    "base_offset": offset,
                    "log_append_time_ms": -1,
                    "log_start_offset": 0,
                    "record_errors": [],
                    "error_message": None,
                }
            )
        topic = {"name": TOPIC, "topic_id": NULL_UUID, "partition_responses": responses}
        fields = {"responses": [topic], "throttle_time_ms": 0, "node_endpoints": []}
        return messages.encode_response(api_keys.PRODUCE, version, fields)

    def _append(
        self, connection: Connection, partition: int, batch: bytes, fault: str | None
    ) -> tuple[int, int]:
        if connection.port - FIRST_PORT != self.leaders[partition]:
            return codes.NOT_LEADER_OR_FOLLOWER, -1
        if len(batch) > self.batch_bytes_max:
            return codes.MESSAGE_TOO_LARGE, -1
        if fault == "refused":
            return self.chance.choice(REFUSALS), -1
        code, offset = self.logs[partition].append(batch)
        if fault == "stored but" and code == codes.NONE:
            return self.chance.choice(
                (codes.REQUEST_TIMED_OUT, codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            ), -1
        return code, offset

    def _send(self, connection: Connection, frame: bytes | Exception, delay_ms: float) -> None:
        """On one connection answers keep their order, as a broker's do."""
        earliest = [due for due, _, one, _ in self._later if one is connection]
        due_ms = max([self.now_ms + delay_ms, *earliest])
        heapq.heappush(self._later, (due_ms, next(self._ticks), connection, frame))

    def _deliver(self, connection: Connection, frame: bytes | Exception) -> None:
        if connection.state != CLOSED:
            super()._deliver(connection, frame)
