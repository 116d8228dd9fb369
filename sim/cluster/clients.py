"""Producers with acks=all, one for each partition, one batch of one record at a time.

An idempotent one sends a batch again, with the same sequence, until it is acknowledged or refused
for good; the other one forgets what it got no answer to. They mostly know who leads, and sometimes
ask somebody who has led, or never did.
"""

from __future__ import annotations

import struct
import uuid
from random import Random
from typing import TYPE_CHECKING

from ottla.protocol.error_codes import NONE
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.crc32c import crc32c

if TYPE_CHECKING:
    from sim.cluster.broker import Broker
    from sim.cluster.world import World

ALL = -1
PATIENCE_MS = 1_500
"""After which a client asks again, whatever it told the broker."""
CRC_AT, CRC_FROM = 17, 21
PRODUCER_AT = 43
PRODUCER = struct.Struct(">qhi")
VALUE = struct.Struct(">q")
TEMPLATE = build_batch(
    [RecordToWrite(1_700_000_000_000, None, VALUE.pack(0), ())],
    producer_id=1,
    producer_epoch=0,
    base_sequence=0,
)
VALUE_AT = TEMPLATE.index(VALUE.pack(0), 61)
OUTCOME = struct.Struct(">hq")
FATAL = frozenset({45, 46, 47, 59, 35, 87})
"""Sequence or epoch refused, or not to be told any more: begin anew."""


def batch_of(value: int, producer_id: int, sequence: int) -> bytes:
    batch = bytearray(TEMPLATE)
    epoch = 0 if producer_id >= 0 else -1
    PRODUCER.pack_into(batch, PRODUCER_AT, producer_id, epoch, sequence)
    VALUE.pack_into(batch, VALUE_AT, value)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def checksum_of(batch: bytes) -> int:
    return int.from_bytes(batch[CRC_AT:CRC_FROM], "big")


class Producer:
    def __init__(
        self, world: World, topic: str, index: int, chance: Random, *, is_idempotent: bool
    ) -> None:
        self._world = world
        self.topic = topic
        self.index = index
        self._chance = chance
        self._is_idempotent = is_idempotent
        self._values = (index + 1) << 32
        self._timeout_ms = world.plan.timeout_ms
        name = topic.encode()
        self._head = struct.pack(
            f">hhiih{len(name)}sii", -1, ALL, self._timeout_ms, 1, len(name), name, 1, index
        )
        self._outcome_at = 4 + 2 + len(name) + 4 + 4
        self._producer_id = -1
        self._sequence = -1
        self._batch: bytes | None = None
        self._number = 0
        """Of the attempt under way: an answer to an earlier one comes too late."""
        self.is_over = False
        self.acked = 0
        self.sent = 0
        self._begin_anew()
        self._later()

    def _begin_anew(self) -> None:
        self._batch = None
        if self._is_idempotent:
            self._world.producer_ids += 1
            self._producer_id, self._sequence = self._world.producer_ids, 0

    def _later(self) -> None:
        mean_ms = self._world.plan.produce_ms
        self._world.heap.push(self._chance.expovariate(1.0) * mean_ms, self._send)

    def _send(self) -> None:
        if self.is_over:
            return
        broker = self._target()
        self._number += 1
        number = self._number
        self._world.heap.push(min(self._timeout_ms, PATIENCE_MS) * 1.2, lambda: self._lost(number))
        if broker is None or broker.process is None or not broker.is_listening:
            return
        if self._batch is None or not self._is_idempotent:
            self._values += 1
            self._batch = batch_of(self._values, self._producer_id, self._sequence)
        self.sent += 1
        batch = self._batch
        body = self._head + len(batch).to_bytes(4, "big") + batch
        process = broker.process

        def arrive() -> None:
            if broker.process is process and broker.is_listening:
                self._ask(broker, body, batch, number)

        self._world.heap.push(self._chance.uniform(0.1, 2.0), arrive, process)

    def _target(self) -> Broker | None:
        world = self._world
        if self._chance.random() < 0.12:
            return world.brokers[self._chance.choice(world.broker_ids)]
        state = world.truth.states.find(self.topic, self.index)
        return None if state is None else world.brokers.get(state.leader)

    def _ask(self, broker: Broker, body: bytes, batch: bytes, number: int) -> None:
        life = broker.life
        assert life is not None

        def answered(reply: bytes) -> None:
            code, offset = OUTCOME.unpack_from(reply, self._outcome_at)
            if code == NONE:
                partition = life.replicas.find(self.topic, self.index)
                if partition is not None and partition.log is not None:
                    self._note(broker, partition.topic_id, partition.leader_epoch, offset, batch)
            self._answered(code, batch, number)

        broker.serve_produce(body, answered)

    def _note(
        self, broker: Broker, topic_id: uuid.UUID, epoch: int, offset: int, batch: bytes
    ) -> None:
        """What the broker says is true when it says it, whether anybody hears it or not."""
        truth = self._world.truth
        truth.look(broker.process)
        truth.on_acked(topic_id, self.index, epoch, offset, checksum_of(batch))

    def _answered(self, code: int, batch: bytes, number: int) -> None:
        if number != self._number or self.is_over:
            return
        self._number += 1
        if code == NONE:
            self.acked += 1
            self._batch = None
            self._sequence += self._is_idempotent
        elif code in FATAL and batch is self._batch:
            self._begin_anew()
        self._later()

    def _lost(self, number: int) -> None:
        if number == self._number and not self.is_over:
            self._number += 1
            self._later()
