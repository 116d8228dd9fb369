"""Goal: sizes and lags of replicas are read off a broker's answer, and no broker that
misbehaves makes a command fail.
Method: a socket that answers once with prepared bytes.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from ottla.cli.log_sizes import VERSION, HeldReplica, held_replicas
from ottla.cli.model import Address, PartitionPlace, TopicPlace
from ottla.protocol import api_keys, messages
from tests.patience import SECONDS_MAX

PLACES = [
    TopicPlace(
        "orders",
        "id",
        False,
        [
            PartitionPlace(0, 1, 0, [1, 2], [1]),
            PartitionPlace(1, 2, 0, [2, 1], [2]),
            PartitionPlace(2, None, 0, [1], []),
        ],
    )
]


@dataclass
class StubConnection:
    addresses: dict[int, Address] = field(default_factory=dict)
    plaintext: bool = True
    timeout_s: float = SECONDS_MAX
    silent: frozenset[int] = frozenset()

    def broker_addresses(self) -> dict[int, Address]:
        return self.addresses


@contextmanager
def a_broker(answer: Callable[[bytes], bytes]) -> Iterator[Address]:
    """Answers one request with what `answer` makes of the frame, then closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            peer.sendall(answer(stream.read(size)))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Address(*listener.getsockname())
    finally:
        thread.join()
        listener.close()


def sizes_answer(frame: bytes) -> bytes:
    api_key, version, correlation_id, client_id_size = struct.unpack_from(">hhih", frame)
    assert (api_key, version) == (api_keys.DESCRIBE_LOG_DIRS, VERSION)
    request = messages.decode_request(api_key, version, frame[10 + client_id_size :])
    assert [(topic.topic, topic.partitions) for topic in request.topics] == [("orders", [0, 1, 2])]
    body = messages.encode_response(
        api_key,
        version,
        {
            "throttle_time_ms": 0,
            "results": [
                {
                    "error_code": 0,
                    "log_dir": "/data",
                    "topics": [
                        {
                            "name": "orders",
                            "partitions": [held(0, 77, 0), held(1, 88, 5), held(9, 1, 0)],
                        }
                    ],
                }
            ],
        },
    )
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def held(partition: int, size: int, lag: int) -> dict[str, object]:
    return {
        "partition_index": partition,
        "partition_size": size,
        "offset_lag": lag,
        "is_future_key": False,
    }


def test_what_each_broker_says_of_its_replicas() -> None:
    # Broker 1 says nothing of partition 2, and something that nobody asked for; 2 is not there.
    with a_broker(sizes_answer) as address:
        found = held_replicas(StubConnection({1: address}), PLACES)  # type: ignore[arg-type]
    assert found == {
        ("orders", 0): {1: HeldReplica(77, 0)},
        ("orders", 1): {1: HeldReplica(88, 5)},
    }


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00\x00\x10\x00\x00\x00\x01",
        struct.pack(">ii", 8, 99) + b"\x00" * 4,
        struct.pack(">ii", -5, 1),
        struct.pack(">ii", 2**31 - 1, 1),
        struct.pack(">iiiI", 12, 1, 0, 2**31 - 2),
    ],
)
def test_a_broker_that_misbehaves_leaves_sizes_unknown(answer: bytes) -> None:
    with a_broker(lambda frame: answer) as address:
        assert held_replicas(StubConnection({1: address}), PLACES) == {}  # type: ignore[arg-type]


def test_nobody_is_asked_over_tls() -> None:
    connection = StubConnection({1: Address("no-such-host.invalid", 1)}, plaintext=False)
    assert held_replicas(connection, PLACES) == {}  # type: ignore[arg-type]
