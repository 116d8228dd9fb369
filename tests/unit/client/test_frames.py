"""Frames come out the same however the bytes come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.limits import ANSWER_BYTES_MAX
from ottla.client.errors import MalformedAnswerError
from ottla.client.frames import FrameReader


def fed(reader: FrameReader, data: bytes, chunk: int) -> list[bytes]:
    frames: list[bytes] = []
    while data:
        room = reader.buffer()
        count = min(len(room), len(data), chunk)
        room[:count] = data[:count]
        data = data[count:]
        frames += map(bytes, reader.received(count))
    return frames


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@given(
    st.lists(st.integers(1, 300), max_size=20),
    st.integers(1, 400),
)
def test_small_frames_in_any_chunks(sizes: list[int], chunk: int) -> None:
    bodies = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    assert fed(FrameReader(), framed(bodies), chunk) == bodies


@given(
    st.lists(st.sampled_from([1, 65_530, 65_532, 65_533, 65_540, 300_000]), max_size=5),
    st.sampled_from([1_000, 65_536, 1_000_000]),
)
def test_large_frames_in_any_chunks(sizes: list[int], chunk: int) -> None:
    bodies = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    assert fed(FrameReader(), framed(bodies), chunk) == bodies


@pytest.mark.parametrize("size", [0, -1, -(2**31), ANSWER_BYTES_MAX + 1, 2**31 - 1])
def test_a_size_out_of_bounds_is_no_frame(size: int) -> None:
    with pytest.raises(MalformedAnswerError):
        fed(FrameReader(), size.to_bytes(4, "big", signed=True), 10)
