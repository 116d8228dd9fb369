"""One Produce request on its way: its batches, how they are said, and who hears the answer.

The way of a single batch is short, since a producer that waits for each answer takes no other: its
request is put together from pieces that stay the same, and its usual answer is read in one step.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import OttlaError
from ottla.base.ports import Buffer
from ottla.client.connection import Request
from ottla.client.produce_wire import (
    FIRST_FLEXIBLE,
    FIRST_WITH_TOPIC_ID,
    ProduceAnswer,
    decode_produce,
    encode_produce,
)
from ottla.client.producer_batch import ProducerBatch
from ottla.protocol.api_keys import PRODUCE
from ottla.protocol.error_codes import NONE
from ottla.protocol.primitives import uvarint

_pack_index = struct.Struct(">i").pack
# The end of an answer for one partition: how many there are, its fields, no record errors, no
# message, no tags; the topic's tags, the throttle time, the answer's tags.
_END = struct.Struct(">Bihqqq9s")
_END_BYTES = _END.size
_NOTHING_ELSE = b"\1" + bytes(8)
_read_end = _END.unpack_from
# A batch up to here is copied into its request; a larger one goes out as a buffer of its own.
_JOINED_BYTES_MAX = 2048


class Wording(NamedTuple):
    """What all requests of a producer have in common."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    # Of requests with one partition, by version and topic, for the id that the topic had then.
    beginnings: dict[tuple[int, str], tuple[uuid.UUID, bytes]]


AnswerHandler = Callable[["ProduceRequest", ProduceAnswer | None, OttlaError | None], None]


class ProduceRequest(Request):
    __slots__ = (
        "_wording",
        "append_time_ms",
        "base_offset",
        "batches",
        "ids",
        "node_id",
    )

    def __init__(
        self,
        node_id: int,
        batches: Sequence[ProducerBatch],
        ids: Mapping[str, uuid.UUID],
        wording: Wording,
        on_answer: AnswerHandler,
        *,
        deadline_ms: float,
        version_min: int | None,
        version_max: int | None,
    ) -> None:
        self.api_key = PRODUCE
        self.node_id = node_id
        self.batches = batches
        self.ids = ids
        self.settle = on_answer
        self.deadline_ms = deadline_ms
        self.version_min = version_min
        self.version_max = version_max
        self.has_answer = wording.acks != 0
        self.version = -1
        self.base_offset = -1
        self.append_time_ms = -1
        self._wording = wording

    def encode(self, version: int) -> Sequence[Buffer]:
        batches, wording = self.batches, self._wording
        if len(batches) == 1 and version >= FIRST_FLEXIBLE:
            batch = batches[0]
            encoded = batch.encoded
            assert encoded is not None
            topic = batch.lane.topic
            topic_id = self.ids[topic]
            known = wording.beginnings.get((version, topic))
            # The very same object: to compare ids takes longer than all of this.
            if known is None or known[0] is not topic_id:
                known = wording.beginnings[version, topic] = topic_id, self._beginning(version)
            size = len(encoded)
            index = _pack_index(batch.lane.partition)
            if size < _JOINED_BYTES_MAX:
                whole = b"".join((known[1], index, uvarint(size + 1), encoded, b"\0\0\0"))
                return (whole,)
            return b"".join((known[1], index, uvarint(size + 1))), encoded, b"\0\0\0"
        return self._encode(version)

    def _beginning(self, version: int) -> bytes:
        whole = self._encode(version)[0]
        encoded = self.batches[0].encoded or b""
        return bytes(whole[: len(whole) - 4 - len(uvarint(len(encoded) + 1))])

    def _encode(self, version: int) -> Sequence[Buffer]:
        by_topic: dict[str, list[tuple[int, Any]]] = {}
        for batch in self.batches:
            lane = batch.lane
            by_topic.setdefault(lane.topic, []).append((lane.partition, (batch.encoded,)))
        return encode_produce(
            version,
            by_topic,
            self.ids,
            transactional_id=self._wording.transactional_id,
            acks=self._wording.acks,
            timeout_ms=self._wording.timeout_ms,
        )

    def read_usual(self, frame: bytes | bytearray) -> bool:
        """One topic of one partition that worked: nothing else has this length and these counts."""
        begin = len(frame) - _END_BYTES
        if len(self.batches) != 1 or self.version < FIRST_FLEXIBLE or begin < 7:
            return False
        count, index, code, self.base_offset, self.append_time_ms, _, zeros = _read_end(
            frame, begin
        )
        named = 16 if self.version >= FIRST_WITH_TOPIC_ID else frame[6]
        return (
            count == 2
            and code == NONE
            and zeros == _NOTHING_ELSE
            and index == self.batches[0].lane.partition
            and frame[4:6] == b"\0\2"
            and begin == 6 + named
        )

    def decode(self, version: int, body: Buffer) -> ProduceAnswer:
        return decode_produce(version, body)
