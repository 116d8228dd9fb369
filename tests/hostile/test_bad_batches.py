"""Goal: batches that no producer makes are refused each for itself, stored never, and cost nothing.
Method: every case that the unit tests of the validation know, and bombs of each codec that can make
one, in Produce requests over a real socket to a broker process with little memory.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ottla.protocol.error_codes import MESSAGE_TOO_LARGE, NONE
from ottla.protocol.messages import decode_response, encode_request
from ottla.records import compression
from ottla.records.batch_builder import RecordToWrite, build_batch
from tests.compat.confluent import create_topic, watermarks
from tests.compat.wire import Wire
from tests.hostile.conftest import LimitedNode
from tests.hostile.test_bad_input import GROWTH_BYTES_MAX, request_header
from tests.hostile.well_behaved import produce_and_read_back
from tests.unit.records.batches import NOW_MS
from tests.unit.records.test_validation import REFUSED

PRODUCE, VERSION = 0, 9
BOMB_BYTES = 100 << 20
# snappy does not get below a twentieth, which an honest batch may well reach.
BOMB_CODECS = (compression.GZIP, compression.LZ4, compression.ZSTD)
BOMBERS = 8
# As long as the longest of the bombs when it is packed, and none when it is unpacked.
HALF_PACKED = random.Random(8).randbytes(450_000) + bytes(450_000)
# Those that hang on the time of day.
CASES = {name: case for name, case in REFUSED.items() if name != "future"}
GOOD = build_batch([RecordToWrite(NOW_MS, None, b"good", ())])


@pytest.fixture
def node(hostile_node: LimitedNode) -> Iterator[LimitedNode]:
    as_many_honest_peers(hostile_node)
    produce_and_read_back(hostile_node.bootstrap)
    before = hostile_node.resident_bytes()
    yield hostile_node
    produce_and_read_back(hostile_node.bootstrap)
    assert hostile_node.resident_bytes() - before < GROWTH_BYTES_MAX


def as_many_honest_peers(node: LimitedNode) -> None:
    """Threads, their heaps and room for frames are made once for whoever comes first with so much
    at a time: they are no cost of a bomb."""
    topic = create_topic(node.bootstrap)
    for codec in BOMB_CODECS:
        batch = build_batch([RecordToWrite(NOW_MS, None, HALF_PACKED, ())], codec=codec)
        answers = at_once(node, a_produce(topic, batch), lambda: None)
        assert answers == [[NONE]] * 2 * BOMBERS


def at_once(node: LimitedNode, frame: bytes, meanwhile: Callable[[], None]) -> list[list[int]]:
    """Of many peers, each with one frame behind the other: the answers to all of them."""
    with ExitStack() as open_connections:
        wires = [open_connections.enter_context(Wire(node.bootstrap)) for _ in range(BOMBERS)]
        for wire in wires:
            wire.socket.sendall((struct.pack(">i", len(frame)) + frame) * 2)
        meanwhile()
        return [codes_of(wire) for wire in wires for _ in range(2)]


def a_produce(topic: str, *batches: bytes) -> bytes:
    """One batch for each partition."""
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [
                    {"index": index, "records": batch} for index, batch in enumerate(batches)
                ],
            }
        ],
    }
    header = request_header(PRODUCE, VERSION, flexible=True)
    return header + encode_request(PRODUCE, VERSION, fields)


def codes_of(wire: Wire) -> list[int]:
    frame = wire.receive_frame()
    assert frame is not None, "the broker closed the connection"
    (topic,) = decode_response(PRODUCE, VERSION, frame[5:]).responses
    return [one.error_code for one in topic.partition_responses]


def test_each_is_refused_and_the_others_of_its_request_go_on(node: LimitedNode) -> None:
    topic = create_topic(node.bootstrap, partitions=2)
    told = {}
    with Wire(node.bootstrap) as wire:
        for name, (batch, _) in CASES.items():
            wire.send_frame(a_produce(topic, batch, GOOD))
            told[name] = codes_of(wire)
    assert told == {name: [code, NONE] for name, (_, code) in CASES.items()}
    assert watermarks(node.bootstrap, topic, 0) == (0, 0)
    assert watermarks(node.bootstrap, topic, 1) == (0, len(CASES))


@pytest.mark.parametrize("codec", BOMB_CODECS)
def test_a_bomb_is_not_unpacked(node: LimitedNode, codec: int) -> None:
    """By eight peers at once, each with one behind the other; meanwhile others are served."""
    topic = create_topic(node.bootstrap)
    bomb = build_batch([RecordToWrite(NOW_MS, None, bytes(BOMB_BYTES), ())], codec=codec)
    assert len(bomb) < 1_000_000, "it is the size it unpacks to that is refused"
    answers = at_once(node, a_produce(topic, bomb), lambda: produce_and_read_back(node.bootstrap))
    assert answers == [[MESSAGE_TOO_LARGE]] * 2 * BOMBERS
    assert watermarks(node.bootstrap, topic) == (0, 0)
