"""A caller that waits for its answer looks for it first, but not where that has been in vain."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ottla.client import plain_link
from ottla.client.plain_link import Link

LOOKS, SLEEPS = "looks", "sleeps"


class Counted:
    """A socket whose answers are there at once, or come only to one who sleeps."""

    def __init__(self, raw: socket.socket, peer: socket.socket) -> None:
        self.raw = raw
        self.peer = peer
        self.is_slow = False
        self.calls: list[str] = []

    def recv_into(self, buffer: memoryview, size: int = 0, flags: int = 0) -> int:
        self.calls.append(LOOKS if flags else SLEEPS)
        if not (self.is_slow and flags):
            self.peer.send(b"x")
        return self.raw.recv_into(buffer, size, flags)

    def fileno(self) -> int:
        return self.raw.fileno()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    monkeypatch.setattr(plain_link, "_LOOK_S", -1.0)  # one look only
    raw, peer = socket.socketpair()
    with raw, peer:
        yield Counted(raw, peer)


def received(counted: Counted, times: int) -> list[list[str]]:
    """The calls that each answer took."""
    link = Link(counted.raw, [], None)
    link.sock = counted  # type: ignore[assignment]
    found = []
    for _ in range(times):
        counted.calls = []
        assert link.receive(memoryview(bytearray(10))) == 1
        found.append(counted.calls)
    return found


def test_an_answer_that_is_there_is_taken_without_sleeping(counted: Counted) -> None:
    assert received(counted, 3) == [[LOOKS]] * 3


def test_where_looking_is_in_vain_it_is_done_more_and_more_seldom(counted: Counted) -> None:
    counted.is_slow = True
    found = received(counted, 1000)
    looked = [number for number, calls in enumerate(found) if LOOKS in calls]
    assert looked[:6] == [0, 2, 6, 14, 30, 62]
    # At last every 64th, so that a broker which is quick again is noticed.
    assert looked[6:9] == [126, 190, 254]
    assert all(calls[-1] == SLEEPS for calls in found)
