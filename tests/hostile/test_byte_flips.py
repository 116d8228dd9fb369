"""Goal: whatever bytes arrive, the broker neither crashes nor hangs nor grows, and serves others.
Method: frames caught from three real clients, each with a few bytes changed, cut or added, sent by
the ten thousand; after them a well-behaved client still gets what it is owed.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hostile.conftest import LimitedNode
from tests.hostile.tap import captured_frames, tapped
from tests.hostile.well_behaved import produce_and_read_back
from tests.patience import SECONDS_MAX
from tests.seeds import seed_for

FRAMES = int(os.environ.get("OTTLA_FLIPPED_FRAMES", "100000"))
GROWTH_BYTES_MAX = 20 << 20
CREATE_TOPICS = struct.pack(">h", 19)
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@pytest.fixture
def flipped_node(tmp_path: Path) -> Iterator[LimitedNode]:
    node = LimitedNode(tmp_path)
    yield node
    node.close()


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """The header stays mostly whole, so that the bodies are looked at and not only refused."""
    body = bytearray(frame)
    kind = rng.random()
    if kind < 0.1:
        return bytes(body[: rng.randrange(1, len(body) + 1)])
    if kind < 0.2:
        at = rng.randrange(len(body) + 1)
        body[at:at] = rng.randbytes(rng.randrange(1, 9))
        return bytes(body)
    start = 0 if kind < 0.3 else min(8, len(body) - 1)
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(start, len(body))] = rng.choice(
            (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
        )
    return bytes(body)


def send(port: int, frame: bytes) -> None:
    """On a connection of its own, since a refused frame ends one, with a good request behind it:
    what comes back is thrown away, but something must come, or the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame + API_VERSIONS)
        with suppress(OSError):  # not connected any more: the end has come
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while connection.recv(1 << 16):
                pass


def test_changed_bytes_do_no_harm(flipped_node: LimitedNode) -> None:
    rng = random.Random(seed_for("byte flips"))
    node = flipped_node

    def start(tap_port: int) -> None:
        node.overrides["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{tap_port}"
        node.start()

    with tapped(node.port) as tap:
        frames = [frame for frame in captured_frames(start, tap) if len(frame) < 4096]
    node.stop()
    del node.overrides["advertised.listeners"]
    node.overrides["auto.create.topics.enable"] = "false"
    node.overrides["max.connection.creation.rate"] = "1000000"
    node.start()
    assert len({frame[:4] for frame in frames}) > 15, "too few kinds of requests were caught"
    # The first quarter imports, compiles and makes topics, which are owed their memory; from then
    # on it must stay flat.
    resident = 0
    sent = 0
    while sent < FRAMES:
        send(node.port, mutated(rng.choice(frames), rng))
        sent += 1
        if resident == 0 and sent >= FRAMES // 4:
            resident = node.resident_bytes()
            frames = [frame for frame in frames if frame[:2] != CREATE_TOPICS]
    assert node.resident_bytes() - resident < GROWTH_BYTES_MAX
    produce_and_read_back(node.bootstrap)
