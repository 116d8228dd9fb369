"""Goal: frames come out as they were sent, however the stream is cut; nothing is taken on trust.
Method: random frames over a socket pair in random pieces; directed cases for each refusal.
"""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.net.incoming import (
    OWN_BUFFER_BYTES_MIN,
    OWN_BUFFER_ROOM,
    FrameError,
    FrameMemory,
    Incoming,
)

PRODUCE = b"\0\0"
METADATA = b"\0\3"


def an_incoming(scratch_bytes: int = 64 * 1024, memory: FrameMemory | None = None) -> Incoming:
    return Incoming(bytearray(scratch_bytes), memory or FrameMemory(64 << 20, 32 << 20, 8 << 20))


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def received(incoming: Incoming, pieces: list[bytes], now_ms: int = 0) -> list[bytes]:
    """What comes out when `pieces` arrive one after the other."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    frames: list[bytes] = []
    with ours, theirs:
        for piece in pieces:
            theirs.sendall(piece)
            while True:
                try:
                    incoming.receive(ours)
                except BlockingIOError:
                    break
                while (frame := incoming.next_frame()) is not None:
                    frames.append(bytes(frame))
                incoming.put_aside(now_ms)
    return frames


@given(
    st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=20),
    st.lists(st.integers(1, 200), max_size=30),
)
def test_frames_do_not_depend_on_how_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(framed(body) for body in bodies)
    pieces, position = [], 0
    for cut in cuts:
        pieces.append(stream[position : position + cut])
        position += cut
    pieces.append(stream[position:])
    assert received(an_incoming(), [piece for piece in pieces if piece]) == bodies


def test_byte_by_byte() -> None:
    stream = framed(b"one") + framed(b"two")
    assert received(an_incoming(), [bytes([byte]) for byte in stream]) == [b"one", b"two"]


def test_a_frame_larger_than_the_scratch_buffer_gets_memory_of_its_own() -> None:
    memory = FrameMemory(64 << 20, 32 << 20, 8 << 20)
    body = PRODUCE + bytes(range(256)) * 1200
    stream = framed(body) + framed(b"next")
    pieces = [stream[at : at + 50_000] for at in range(0, len(stream), 50_000)]
    assert received(an_incoming(memory=memory), pieces) == [body, b"next"]
    assert memory.bytes_used == 0


def test_a_buffer_grows_with_what_has_come_not_with_what_is_declared() -> None:
    memory = FrameMemory(1 << 30, 1 << 30, 8 << 20)
    incoming = an_incoming(memory=memory)
    start = struct.pack(">i", 1 << 29) + PRODUCE + bytes(40_000)
    received(incoming, [start])
    assert memory.bytes_used == OWN_BUFFER_ROOM * len(start)
    assert incoming.is_partial()
    incoming.release()
    assert memory.bytes_used == 0


def test_who_has_sent_little_of_a_large_frame_takes_nothing_from_others() -> None:
    memory = FrameMemory(64 << 20, 32 << 20, 8 << 20)
    body = PRODUCE + bytes(range(256)) * 1200
    start, rest = framed(body)[:3_000], framed(body)[3_000:]
    incoming = an_incoming(memory=memory)
    assert received(incoming, [start]) == []
    assert memory.bytes_used == 0
    assert incoming.is_partial()
    assert received(incoming, [rest[:OWN_BUFFER_BYTES_MIN]]) == []
    assert 0 < memory.bytes_used <= OWN_BUFFER_ROOM * 2 * OWN_BUFFER_BYTES_MIN
    rest = rest[OWN_BUFFER_BYTES_MIN:]
    assert received(incoming, [rest[:150_000], rest[150_000:]]) == [body]


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 2**31 - 1])
def test_a_size_that_no_client_sends_is_refused(size: int) -> None:
    with pytest.raises(FrameError):
        received(an_incoming(), [struct.pack(">i", size) + PRODUCE])


def test_requests_other_than_produce_have_a_smaller_limit() -> None:
    size = 9 << 20
    with pytest.raises(FrameError, match="API key 3"):
        received(an_incoming(), [struct.pack(">i", size) + METADATA])
    assert received(an_incoming(), [struct.pack(">i", size) + PRODUCE]) == []


def test_memory_for_frames_in_pieces_is_bounded_over_all_connections() -> None:
    start = struct.pack(">i", 2 << 20) + PRODUCE + bytes(40_000)
    memory = FrameMemory(3 * OWN_BUFFER_ROOM * len(start), 32 << 20, 8 << 20)
    held = [an_incoming(memory=memory) for _ in range(3)]
    for incoming in held:
        received(incoming, [start])
    with pytest.raises(FrameError, match="memory"):
        received(an_incoming(memory=memory), [start])
    held[0].release()
    received(an_incoming(memory=memory), [start])


def test_who_needs_memory_may_get_that_of_another() -> None:
    start = struct.pack(">i", 2 << 20) + PRODUCE + bytes(40_000)
    memory = FrameMemory(2 * OWN_BUFFER_ROOM * len(start), 32 << 20, 8 << 20)
    oldest, other = an_incoming(memory=memory), an_incoming(memory=memory)
    asked: list[Incoming] = []

    def make_room(asking: Incoming) -> bool:
        asked.append(asking)
        oldest.release()
        return len(asked) == 1

    memory.make_room = make_room
    for incoming in (oldest, other):
        received(incoming, [start])
    newcomer = an_incoming(memory=memory)
    received(newcomer, [start])
    assert asked == [newcomer]
    assert [one.holds_memory() for one in (oldest, other, newcomer)] == [False, True, True]
    with pytest.raises(FrameError, match="memory"):
        received(an_incoming(memory=memory), [start])


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_frame_begins_with_its_first_byte(size: int) -> None:
    incoming = an_incoming()
    body = PRODUCE + bytes(size - 2)
    stream = framed(body)
    received(incoming, [stream[:3]], now_ms=1_000)
    assert (incoming.began_ms, incoming.declared_bytes()) == (1_000, 0)
    received(incoming, [stream[3:50]], now_ms=2_000)
    received(incoming, [stream[50:-1]], now_ms=3_000)
    assert incoming.began_ms == 1_000
    assert incoming.declared_bytes() in (size, size + 4)
    assert received(incoming, [stream[-1:] + stream[:7]], now_ms=4_000) == [body]
    assert incoming.began_ms == 4_000


@given(
    st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=8),
    st.integers(0, 250),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_whole_frames_are_the_next_ones_until_they_are_skipped(
    bodies: list[bytes], cut: int, count_max: int, done: int
) -> None:
    stream = b"".join(framed(body) for body in bodies)
    stream = stream[: max(1, len(stream) - cut)]
    incoming = an_incoming()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(stream)
        incoming.receive(ours)
    frames = incoming.whole_frames(count_max)
    seen = [bytes(frame) for frame in frames]
    incoming.skip(frames[:done])
    rest = []
    while (frame := incoming.next_frame()) is not None:
        rest.append(bytes(frame))
    alone = received(an_incoming(), [stream])
    assert seen == alone[:count_max]
    assert seen[:done] + rest == alone


def test_what_is_wrong_with_a_frame_is_said_when_it_is_next() -> None:
    incoming = an_incoming()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(framed(b"one") + struct.pack(">i", -1) + b"more")
        incoming.receive(ours)
    frames = incoming.whole_frames(5)
    assert [bytes(frame) for frame in frames] == [b"one"]
    incoming.skip(frames)
    with pytest.raises(FrameError):
        incoming.next_frame()
