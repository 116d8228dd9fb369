"""Goal: bad input gets a typed answer or a closed connection, and nobody else notices.
Method: each kind, over a real socket, to a broker process with little memory; afterwards a
well-behaved client, the broker's memory, and its log (no traceback; the fixture looks).
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ottla.handlers.registry import SERVED
from ottla.protocol.messages import decode_response, encode_request
from tests.compat.confluent import create_topic, new_name, send_values
from tests.compat.wire import Wire
from tests.hostile.conftest import LimitedNode
from tests.hostile.well_behaved import produce_and_read_back
from tests.patience import SECONDS_MAX
from tests.seeds import seed_for
from tests.unit.protocol.kio_messages import (
    FULL,
    hostile_bodies,
    random_message,
    schema_of,
    written,
)

GROWTH_BYTES_MAX = 20 << 20


@pytest.fixture
def node(hostile_node: LimitedNode) -> Iterator[LimitedNode]:
    """The shared broker; whatever the test did, it must serve and must not have grown."""
    produce_and_read_back(hostile_node.bootstrap)
    before = hostile_node.resident_bytes()
    yield hostile_node
    produce_and_read_back(hostile_node.bootstrap)
    assert hostile_node.resident_bytes() - before < GROWTH_BYTES_MAX


def connect(node: LimitedNode) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=SECONDS_MAX)


def is_closed(connection: socket.socket) -> bool:
    """Whether the broker ends the connection; what it still answers is thrown away."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def request_header(api_key: int, version: int, *, flexible: bool) -> bytes:
    header = struct.pack(">hhih", api_key, version, 1, 4) + b"test"
    return header + b"\0" if flexible else header


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 104_857_601, 2**31 - 1])
def test_a_frame_of_an_impossible_size_closes(node: LimitedNode, size: int) -> None:
    with connect(node) as connection:
        with suppress(OSError):
            connection.sendall(struct.pack(">i", size) + bytes(2000))
        assert is_closed(connection)


def test_a_large_request_other_than_produce_closes_before_it_is_sent(node: LimitedNode) -> None:
    with connect(node) as connection:
        connection.sendall(struct.pack(">ihh", 9 << 20, 3, 12))
        assert is_closed(connection)


@pytest.mark.parametrize(
    "junk", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + bytes(64)]
)
def test_another_protocol_closes(node: LimitedNode, junk: bytes) -> None:
    with connect(node) as connection:
        with suppress(OSError):
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
        assert is_closed(connection)


@pytest.mark.parametrize(
    ("api_key", "version"), [(9999, 0), (-1, 0), (0, 2), (1, 3), (3, 99), (4, 0)]
)
def test_a_key_or_version_that_is_not_served_closes(
    node: LimitedNode, api_key: int, version: int
) -> None:
    with connect(node) as connection:
        frame = request_header(api_key, version, flexible=False) + bytes(16)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert is_closed(connection)


def test_a_lie_in_any_count_of_any_request_closes(node: LimitedNode) -> None:
    """The unit tests lie in every count of every version; here one of each request, on the wire."""
    rng = random.Random(seed_for("lies"))
    for api_key, (_, lowest, highest) in SERVED.items():
        version = rng.randrange(lowest, highest + 1)
        schema = schema_of(api_key, version, True)
        body = written(random_message(schema, rng, FULL))
        lies = list(hostile_bodies(schema, body))
        for _, hostile, _ in rng.sample(lies, min(4, len(lies))):
            with connect(node) as connection:
                frame = request_header(api_key, version, flexible=schema.__flexible__) + hostile
                connection.sendall(struct.pack(">i", len(frame)) + frame)
                assert is_closed(connection), f"{schema.__name__} v{version}"


def test_half_requests_do_not_hold_others_up(node: LimitedNode) -> None:
    with ExitStack() as open_connections:
        for _ in range(100):
            connection = open_connections.enter_context(connect(node))
            connection.sendall(struct.pack(">i", 100) + b"\0\x12\0\0")
        produce_and_read_back(node.bootstrap)


def test_a_flood_of_connections_is_bounded_and_ends(node: LimitedNode) -> None:
    with ExitStack() as open_connections:
        held = [open_connections.enter_context(connect(node)) for _ in range(590)]
        refused = 0
        for _ in range(100):
            extra = open_connections.enter_context(connect(node))
            try:
                extra.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
                refused += not extra.recv(4)
            except ConnectionError:
                refused += 1  # closed with what was sent still unread
        assert refused > 50
        held[0].sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        assert held[0].recv(4), "a connection from before the flood is served"
        # The broker hears of the ends one by one, and closes in turn when it has: a well-behaved
        # client comes next, which must find room for all of its connections.
        for connection in held:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        assert all(is_closed(connection) for connection in held)
    with connect(node) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        assert connection.recv(4), "connections that were closed do not count any more"


def test_a_reader_that_never_reads_costs_no_memory(node: LimitedNode) -> None:
    topic = create_topic(node.bootstrap)
    send_values(node.bootstrap, topic, [bytes(900_000)] * 8)
    body = encode_request(
        1,
        11,
        {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 50 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "fetch_offset": 0,
                            "log_start_offset": -1,
                            "partition_max_bytes": 50 << 20,
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        },
    )
    frame = request_header(1, 11, flexible=False) + body
    with ExitStack() as open_connections:
        for _ in range(20):
            connection = open_connections.enter_context(connect(node))
            connection.settimeout(0.5)
            with suppress(TimeoutError):
                for _ in range(2000):
                    connection.sendall(struct.pack(">i", len(frame)) + frame)
        produce_and_read_back(node.bootstrap)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a b", "", "x" * 250, "ümlaut", "a\nb"])
def test_topic_names_that_could_be_paths_are_refused(node: LimitedNode, name: str) -> None:
    from kio.schema.metadata.v8.request import MetadataRequest, MetadataRequestTopic

    with Wire(node.bootstrap) as wire:
        answer = wire.call(
            MetadataRequest(
                topics=(MetadataRequestTopic(name=name),),  # type: ignore[arg-type]
                allow_auto_topic_creation=True,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
        )
    assert [int(topic.error_code) for topic in answer.topics] == [17]
    assert not (Path(node.data).parent / "b").exists()


def test_a_topic_of_billions_of_partitions_is_refused(node: LimitedNode) -> None:
    topic = new_name()
    fields = {"name": topic, "num_partitions": 2_000_000_000, "replication_factor": 1}
    body = encode_request(
        19, 4, {"topics": [{**fields, "assignments": [], "configs": []}], "timeout_ms": 1000}
    )
    with Wire(node.bootstrap) as wire:
        wire.send_frame(request_header(19, 4, flexible=False) + body)
        frame = wire.receive_frame()
    assert frame is not None
    answer = decode_response(19, 4, frame[4:])
    assert [found.error_code for found in answer.topics] not in ([], [0])
