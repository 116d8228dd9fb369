"""Goal: bytes and slices arrive in order and whole, through sockets that take little at a time.
Method: a socket pair, real files, a pool that runs at once or when told.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.log.partition_log import LogSlice
from ottla.net import outgoing
from ottla.net.outgoing import (
    COLD_CHUNK_BYTES,
    SENDFILE_CHUNK_BYTES,
    TURN_BYTES_MAX,
    Outgoing,
)
from ottla.runtime.posix_files import PosixFile, PosixFiles


class PoolAtHand:
    """Runs work when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Deferred[Any], Callable[[], Any]]] = []

    def run(self, work: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        self.waiting.append((deferred, lambda: work(*arguments)))
        return deferred

    def work(self) -> None:
        waiting, self.waiting = self.waiting, []
        for deferred, work in waiting:
            deferred.resolve(work())


class Peer:
    """The other end: reads all the time, and keeps what it read."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.received = bytearray()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        while part := self.theirs.recv(1 << 16):
            self.received += part

    def close(self) -> bytes:
        self.ours.close()
        self._reading.join()
        self.theirs.close()
        return bytes(self.received)


def a_file(path: Path, content: bytes) -> Any:
    path.write_bytes(content)
    return PosixFiles().open(str(path))


def pump_all(sending: Outgoing, pool: PoolAtHand) -> int:
    """Also what the page cache does not have: the kernel may need its memory at any time."""
    turns = 1
    while not sending.pump():
        pool.work()
        turns += 1
    return turns


def test_bytes_and_slices_go_out_in_order(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(3 << 20)
    file = a_file(tmp_path / "segment", content)
    peer, pool = Peer(), PoolAtHand()
    sending = Outgoing(peer.ours, pool, lambda: None)
    sending.put([b"head", LogSlice(file, 10, 100), b"middle", LogSlice(file, 1000, 2 << 20)])
    sending.put([b"tail"])
    pump_all(sending, pool)
    assert sending.bytes_queued == 0
    expected = b"head" + content[10:110] + b"middle" + content[1000 : 1000 + (2 << 20)] + b"tail"
    assert peer.close() == expected


def test_a_large_answer_gives_others_their_turn(tmp_path: Path) -> None:
    file = a_file(tmp_path / "segment", bytes(8 << 20))
    peer, pool = Peer(), PoolAtHand()
    sending = Outgoing(peer.ours, pool, lambda: None)
    sending.put([LogSlice(file, 0, 8 << 20)])
    assert pump_all(sending, pool) >= (8 << 20) // TURN_BYTES_MAX
    assert len(peer.close()) == 8 << 20


def test_what_is_not_in_the_page_cache_is_sent_by_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_file(tmp_path / "segment", bytes(100_000))
    monkeypatch.setattr(PosixFile, "is_cached", lambda *_: False)
    peer, pool, ready = Peer(), PoolAtHand(), []
    sending = Outgoing(peer.ours, pool, lambda: ready.append(True))
    sending.put([LogSlice(file, 0, 100_000)])
    assert not sending.pump()
    assert sending.waiting
    assert ready == []
    pool.work()
    assert ready == [True]
    pump_all(sending, pool)
    assert len(peer.close()) == 100_000


def test_a_small_slice_that_is_not_in_the_page_cache_is_sent_by_the_pool_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = os.preadv

    def not_now(*arguments: Any) -> int:
        if outgoing.RWF_NOWAIT in arguments[3:]:
            raise BlockingIOError
        return patient(*arguments)

    file = a_file(tmp_path / "segment", b"x" * 1000)
    monkeypatch.setattr(os, "preadv", not_now)
    peer, pool = Peer(), PoolAtHand()
    sending = Outgoing(peer.ours, pool, lambda: None)
    sending.put([b"head", LogSlice(file, 0, 1000), b"tail"])
    assert not sending.pump()
    assert sending.waiting
    pool.work()
    pump_all(sending, pool)
    assert peer.close() == b"head" + b"x" * 1000 + b"tail"


@pytest.mark.parametrize("is_cold_from", [0, 1, SENDFILE_CHUNK_BYTES + 1])
def test_the_loop_sends_nothing_that_was_not_found_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cold_from: int
) -> None:
    """A socket that takes little at a time must not shift what is sent past what was looked at."""
    size = 3 * COLD_CHUNK_BYTES + 1000
    content = random.Random(2).randbytes(size)
    file = a_file(tmp_path / "segment", content)
    looked_at = 0
    sendfile = os.sendfile

    def is_cached(_: PosixFile, position: int, count: int) -> bool:
        nonlocal looked_at
        looked_at = position + count
        return looked_at <= is_cold_from + SENDFILE_CHUNK_BYTES

    def sent(to: int, source: int, position: int, count: int) -> int:
        if to == peer.ours.fileno():
            assert position + count <= looked_at <= is_cold_from + SENDFILE_CHUNK_BYTES
        return sendfile(to, source, position, min(count, 100_000))

    monkeypatch.setattr(PosixFile, "is_cached", is_cached)
    peer, pool = Peer(), PoolAtHand()
    monkeypatch.setattr(os, "sendfile", sent)
    sending = Outgoing(peer.ours, pool, lambda: None)
    sending.put([b"head", LogSlice(file, 0, size), b"tail"])
    try:
        pump_all(sending, pool)
    finally:
        received = peer.close()
    assert received == b"head" + content + b"tail"


def test_the_rest_of_what_was_cold_is_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of its pages are on their way, and the two that a look sees may have come first."""
    size = COLD_CHUNK_BYTES + 1000
    file = a_file(tmp_path / "segment", bytes(size))
    looks: list[int] = []

    def is_cached(_: PosixFile, position: int, count: int) -> bool:
        looks.append(position)
        return position > 0

    monkeypatch.setattr(PosixFile, "is_cached", is_cached)
    peer, pool = Peer(), PoolAtHand()
    sending = Outgoing(peer.ours, pool, lambda: None)
    sending.put([LogSlice(file, 0, size)])
    pump_all(sending, pool)
    assert len(peer.close()) == size
    assert looks == [0]


def test_who_does_not_read_what_is_cold_keeps_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool sends what the socket takes; then the socket is waited for, and not by a thread."""
    size = 8 << 20
    file = a_file(tmp_path / "segment", bytes(size))
    monkeypatch.setattr(PosixFile, "is_cached", lambda *_: False)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    pool = PoolAtHand()
    with ours, theirs:
        sending = Outgoing(ours, pool, lambda: None)
        sending.put([LogSlice(file, 0, size)])
        assert not sending.pump()
        pool.work()
        left = sending.parts[0].size  # type: ignore[union-attr]
        assert 0 < left < size
        assert not sending.pump()
        assert not sending.waiting, "it is the socket that has to be waited for"
        received = 0
        while received < size:
            try:
                received += len(theirs.recv(1 << 20))
            except BlockingIOError:
                sending.pump()
                pool.work()
        assert sending.pump()


def test_a_connection_that_ends_while_the_pool_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may have its descriptor by then: it gets none of what was meant for this one."""
    file = a_file(tmp_path / "segment", b"x" * 50_000)
    monkeypatch.setattr(PosixFile, "is_cached", lambda *_: False)
    peer, pool = Peer(), PoolAtHand()
    sending = Outgoing(peer.ours, pool, lambda: None)
    sending.put([LogSlice(file, 0, 50_000)])
    is_sent = sending.pump()
    descriptor = peer.ours.fileno()
    peer.ours.close()
    other, its_peer = socket.socketpair()
    with other, its_peer:
        is_taken = other.fileno() == descriptor
        pool.work()
        its_peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            its_peer.recv(1)
    assert peer.close() == b"x" * 50_000
    assert is_taken
    assert not is_sent


@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_file_system_that_cannot_tell_what_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    def unsupported(*_: Any) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    file = a_file(tmp_path / "segment", b"x" * size)
    monkeypatch.setattr(os, "preadv", unsupported)
    peer, pool = Peer(), PoolAtHand()
    sending = Outgoing(peer.ours, pool, lambda: None)
    sending.put([LogSlice(file, 0, size)])
    pump_all(sending, pool)
    assert peer.close() == b"x" * size


def test_a_small_slice_of_a_file_that_was_cut_meanwhile(tmp_path: Path) -> None:
    """Fewer bytes than its head has promised must not be followed by the next answer."""
    file = a_file(tmp_path / "segment", bytes(500))
    peer, pool = Peer(), PoolAtHand()
    sending = Outgoing(peer.ours, pool, lambda: None)
    sending.put([LogSlice(file, 0, 1000), b"next answer"])
    with pytest.raises(ConnectionAbortedError):
        pump_all(sending, pool)
    peer.close()


def test_a_file_that_was_cut_meanwhile_ends_the_connection(tmp_path: Path) -> None:
    file = a_file(tmp_path / "segment", bytes(100_000))
    peer, pool = Peer(), PoolAtHand()
    sending = Outgoing(peer.ours, pool, lambda: None)
    sending.put([LogSlice(file, 0, 100_000)])
    file.truncate(0)
    with pytest.raises(ConnectionAbortedError):
        pump_all(sending, pool)
    peer.close()


def test_a_peer_that_is_gone_is_an_error() -> None:
    peer, pool = Peer(), PoolAtHand()
    sending = Outgoing(peer.ours, pool, lambda: None)
    peer.theirs.shutdown(socket.SHUT_RDWR)
    sending.put([b"anything"])
    with pytest.raises(OSError, match="pipe"):
        pump_all(sending, pool)
    peer.close()
