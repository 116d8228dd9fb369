"""Goal: the short way of a produce answers what the long way answers, whatever is sent.
Method: the same requests to two topics of a real broker: once all on one connection, where routes
are learned and used, once each on a connection of its own, where there are none. Answers and the
stored bytes must be equal.
"""

from __future__ import annotations

import base64
import random
import socket
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicCollection

from ottla.protocol.messages import decode_response, encode_request
from ottla.records import compression
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import (
    BASE_SEQUENCE,
    HEADER_SIZE,
    PRODUCER_ID,
    RECORD_COUNT,
    read_header,
)
from ottla.testing import Broker
from tests.compat.confluent import admin_client, create_topic, result_of
from tests.patience import SECONDS_MAX
from tests.seeds import seed_for

PRODUCE, METADATA = 0, 3
NOW_MS = 1_790_000_000_000
REQUESTS = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"log.message.timestamp.after.max.ms": 10**15}) as broker:
        yield broker


class Line:
    """One connection that sends produce requests and decodes what comes back."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)

    def call(self, version: int, body: bytes) -> Any:
        flexible = b"\0" if version >= 9 else b""
        frame = struct.pack(">hhih", PRODUCE, version, 7, 4) + b"test" + flexible + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", self._exactly(4))[0]
        answer = self._exactly(size)
        assert answer[:4] == struct.pack(">i", 7)
        return decode_response(PRODUCE, version, answer[5 if version >= 9 else 4 :])

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            assert part, "the broker closed the connection"
            received += part
        return received


def a_batch(rng: random.Random, sequence: int) -> bytes:
    count = rng.choice((1, 1, 3, 20))
    records = [
        RecordToWrite(NOW_MS + number, rng.choice((None, b"key")), rng.randbytes(size), ())
        for number, size in enumerate(rng.choices((0, 9, 90), k=count))
    ]
    producer = rng.random() < 0.5
    batch = bytearray(
        build_batch(
            records,
            codec=rng.choice((compression.NONE, compression.NONE, compression.LZ4)),
            producer_id=77 if producer else -1,
            producer_epoch=0 if producer else -1,
            base_sequence=rng.choice((sequence, sequence, 0, 5)) if producer else -1,
            transactional=rng.random() < 0.05,
        )
    )
    if rng.random() < 0.15:
        batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05:
        del batch[max(HEADER_SIZE, len(batch) - rng.randrange(1, 10)) :]
    return bytes(batch)


def a_body(version: int, topic: str, topic_id: object, batch: bytes, rng_acks: int) -> bytes:
    entry = {"index": 0, "records": batch}
    named = {"name": topic, "topic_id": topic_id, "partition_data": [entry]}
    return encode_request(
        PRODUCE,
        version,
        {"transactional_id": None, "acks": rng_acks, "timeout_ms": 1000, "topic_data": [named]},
    )


def told(response: Any) -> list[Any]:
    """An answer without the name or id of its topic."""
    return [
        (
            one.index,
            one.error_code,
            one.base_offset,
            one.log_append_time_ms,
            one.log_start_offset,
            [(error.batch_index, error.batch_index_error_message) for error in one.record_errors],
            one.error_message,
        )
        for topic in response.responses
        for one in topic.partition_responses
    ]


def topic_id_of(broker: Broker, topic: str) -> uuid.UUID:
    described = result_of(admin_client(broker.bootstrap).describe_topics(TopicCollection([topic])))
    text = str(described.topic_id)
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


@pytest.mark.parametrize("version", [8, 9, 12, 13])
def test_both_ways_give_the_same_answers(broker: Broker, version: int) -> None:
    rng = random.Random(seed_for(f"produce route {version}"))
    topics = [create_topic(broker.bootstrap) for _ in range(2)]
    ids = [topic_id_of(broker, topic) for topic in topics]
    routed = Line(broker.port)
    sequence = 0
    for _ in range(REQUESTS):
        batch = a_batch(rng, sequence)
        acks = rng.choice((-1, -1, 1, 2))
        first = told(routed.call(version, a_body(version, topics[0], ids[0], batch, acks)))
        alone = Line(broker.port)
        second = told(alone.call(version, a_body(version, topics[1], ids[1], batch, acks)))
        alone.socket.close()
        assert first == second
        header = read_header(batch)
        if first[0][1] == 0 and header[PRODUCER_ID] == 77:
            sequence = header[BASE_SEQUENCE] + header[RECORD_COUNT]
    routed.socket.close()
    stored = [_stored(broker, topic) for topic in topics]
    assert stored[0] == stored[1]
    assert len(stored[0]) > 1000


def _stored(broker: Broker, topic: str) -> bytes:
    return (Path(broker.data_dir) / f"{topic}-0" / f"{0:020d}.log").read_bytes()
