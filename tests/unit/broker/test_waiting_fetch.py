"""Goal: a long poll ends with its connection, through all of a broker."""

from __future__ import annotations

import socket
import struct
import time

from ottla.protocol.messages import encode_request
from ottla.replication.partition import Partition
from ottla.testing import Broker
from tests.compat.confluent import create_topic
from tests.patience import SECONDS_MAX

VERSION = 12


def a_fetch_of_an_hour(topic: str) -> bytes:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    fields = {
        "max_wait_ms": 3_600_000,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    header = struct.pack(">hhih", 1, VERSION, 7, 4) + b"test" + b"\0"
    frame = header + encode_request(1, VERSION, fields)
    return struct.pack(">i", len(frame)) + frame


def wait_for_waiters(partition: Partition, count: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while len(partition._waiters) != count:
        assert time.monotonic() < deadline, f"{len(partition._waiters)} wait instead of {count}"
        time.sleep(0.005)


def test_it_is_let_go() -> None:
    with Broker() as broker:
        topic = create_topic(broker.bootstrap)
        assert broker._node is not None
        assert broker._node.parts is not None
        partition = broker._node.parts.replicas.find(topic, 0)
        assert partition is not None
        with socket.create_connection(("127.0.0.1", broker.port), timeout=SECONDS_MAX) as peer:
            peer.sendall(a_fetch_of_an_hour(topic) * 3)
            wait_for_waiters(partition, 3)
        wait_for_waiters(partition, 0)
