"""What each broker holds of each partition, and how far it is behind (DescribeLogDirs).

The client library has no call for it, so this asks each broker itself: one plain request over one
connection. It is worth showing, never worth failing for: what a broker holds that cannot be asked
(TLS, no answer, not allowed, away) stays unknown.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import MalformedRequest
from ottla.base.ids import TopicPartition
from ottla.cli.model import Address, TopicPlace
from ottla.protocol import api_keys

if TYPE_CHECKING:
    from ottla.cli.connection import Connection

# The first version that today's brokers speak, and the last one with the plain headers.
VERSION = 1
CORRELATION_ID = 1
CLIENT_ID = b"ottla-cli"
REQUEST_HEADER = struct.Struct(f">hhih{len(CLIENT_ID)}s")
ANSWER_BYTES_MAX = 256 * 1024 * 1024


class HeldReplica(NamedTuple):
    size_bytes: int
    lag: int
    """Records below the watermark, as far as it has heard of that, which it does not have yet."""


Held = dict[TopicPartition, dict[int, HeldReplica]]
"""By partition, then by broker; who could not be asked is missing."""


def held_replicas(connection: Connection, places: Sequence[TopicPlace]) -> Held:
    if not connection.plaintext:
        return {}
    wanted: dict[int, set[TopicPartition]] = {}
    for topic in places:
        for partition in topic.partitions:
            for broker in partition.replicas:
                wanted.setdefault(broker, set()).add((topic.name, partition.partition))
    addresses = connection.broker_addresses()
    held: Held = {}
    for broker, partitions in sorted(wanted.items()):
        if broker in addresses and broker not in connection.silent:
            found = held_by(addresses[broker], partitions, connection.timeout_s)
            for one in partitions & found.keys():
                held.setdefault(one, {})[broker] = found[one]
    return held


def held_by(
    address: Address, partitions: set[TopicPartition], timeout_s: float
) -> dict[TopicPartition, HeldReplica]:
    # The schemas take 60 ms to load: only for those who ask.
    from ottla.protocol import messages  # noqa: PLC0415

    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    body = messages.encode_request(
        api_keys.DESCRIBE_LOG_DIRS,
        VERSION,
        {"topics": [{"topic": name, "partitions": held} for name, held in by_topic.items()]},
    )
    try:
        answer = messages.decode_response(
            api_keys.DESCRIBE_LOG_DIRS, VERSION, ask(address, body, timeout_s)
        )
    except (OSError, MalformedRequest):
        return {}
    return {
        (topic.name, partition.partition_index): HeldReplica(
            partition.partition_size, partition.offset_lag
        )
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


def ask(address: Address, body: bytes, timeout_s: float) -> bytes:
    """The body of the answer; raises OSError."""
    header = REQUEST_HEADER.pack(
        api_keys.DESCRIBE_LOG_DIRS, VERSION, CORRELATION_ID, len(CLIENT_ID), CLIENT_ID
    )
    with socket.create_connection((address.host, address.port), timeout_s) as peer:
        peer.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        size, correlation_id = struct.unpack(">ii", _receive(peer, 8))
        if correlation_id != CORRELATION_ID or not 4 <= size <= ANSWER_BYTES_MAX:
            raise OSError("an answer that is none to the question")
        return _receive(peer, size - 4)


def _receive(peer: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = peer.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("closed in the middle of an answer")
        parts += part
    return bytes(parts)
