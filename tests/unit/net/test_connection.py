"""Goal: answers in the order of requests, bounds on what waits, and an end for peers that stall.
Method: real sockets on a real loop; the test plays the dispatcher and decides when to answer.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.base.limits import (
    FIRST_REQUEST_MS_MAX,
    FRAME_BYTES_PER_SECOND_MIN,
    FRAME_STALL_MS_MAX,
    PIPELINED_REQUESTS_MAX,
    TURN_ANSWER_BYTES_MAX,
    TURN_REQUESTS_MAX,
    WRITE_BUFFER_BYTES_MAX,
    WRITE_STALL_MS_MAX,
)
from ottla.handlers.reply import OrderedDeferred, ParkedDeferred
from ottla.net.acceptor import Acceptor, ConnectionLimits
from ottla.net.connection import Connection
from ottla.net.incoming import FrameMemory
from ottla.net.lookout import Lookout
from ottla.net.outgoing import Outgoing
from ottla.net.processor import Processor
from ottla.net.turn import Turn
from ottla.runtime.clocks import SystemClock
from ottla.runtime.timers import LoopTimers
from tests.patience import SECONDS_MAX

IDLE_MS_MAX = 600_000


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Server:
    """A processor whose dispatcher is the test: `waiting` are the requests without an answer."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.timers = LoopTimers(loop, SystemClock())
        self.processor = Processor(
            loop=loop,
            pool=_NoPool(),
            timers=self.timers,
            memory=FrameMemory(1 << 23, 1 << 25, 1 << 23),
            idle_ms_max=lambda: IDLE_MS_MAX,
        )
        self.processor.dispatch = self._dispatch
        self.seen: list[bytes] = []
        self.abandoned: list[bytes] = []
        self.waiting: list[tuple[bytes, Deferred[Any]]] = []
        limits = ConnectionLimits(lambda: 10, lambda _: 10, lambda: 10_000)
        self.acceptor = Acceptor(
            name="TEST", loop=loop, timers=self.timers, processor=self.processor, limits=limits
        )
        self.port = self.acceptor.bind("127.0.0.1", 0, 10, (-1, -1))
        self.acceptor.start()

    def _dispatch(self, connection: Connection, frame: memoryview) -> Any:
        body = bytes(frame)
        self.seen.append(body)
        if body.startswith(b"now"):
            return framed(body)
        if body.startswith(b"records"):
            return [framed(body)]
        deferred: Deferred[Any]
        if body.startswith(b"ordered"):
            deferred = OrderedDeferred()
        elif body.startswith(b"parked"):
            deferred = ParkedDeferred(lambda: self.abandoned.append(body))
        else:
            deferred = Deferred()
        self.waiting.append((body, deferred))
        return deferred

    def answer(self, index: int = 0) -> None:
        body, deferred = self.waiting.pop(index)
        deferred.resolve([framed(body)])

    def connection(self) -> Connection:
        return next(iter(self.processor._connections.values()))

    def close(self) -> None:
        self.acceptor.close()
        self.processor.close()
        self.timers.close()


class _NoPool:
    def run(self, work: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        raise AssertionError("nothing here needs a thread")


class Noting(Lookout):
    """Counts the requests after which it was to look for more."""

    came = 0

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop().call_soon, 0.0)

    def request_came(self) -> None:
        self.came += 1


def scenario(play: Callable[[Server, Any, Any], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Server()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await play(server, reader, writer)
        finally:
            writer.close()
            server.close()

    asyncio.run(main())


async def seen(server: Server, count: int) -> None:
    while len(server.seen) < count:
        await asyncio.sleep(0.001)


async def next_answer(reader: asyncio.StreamReader) -> bytes:
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


def test_answers_come_in_the_order_of_the_requests() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        writer.write(framed(b"later 1") + framed(b"later 2") + framed(b"now 3"))
        await seen(server, 3)
        server.answer(1)
        server.answer(0)
        answers = [await next_answer(reader) for _ in range(3)]
        assert answers == [b"later 1", b"later 2", b"now 3"]

    scenario(play)


def test_answers_of_one_turn_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """While others are still awaited; the last one has nothing to wait for."""
    sent: list[int] = []
    real = Outgoing.pump

    def pump(outgoing: Outgoing) -> bool:
        sent.append(len(outgoing.parts))
        return real(outgoing)

    monkeypatch.setattr(Outgoing, "pump", pump)

    async def play(server: Server, reader: Any, writer: Any) -> None:
        writer.write(b"".join(framed(b"later %d" % number) for number in range(4)))
        await seen(server, 4)
        for _ in range(3):
            server.answer()
        assert sent == []
        answers = [await next_answer(reader) for _ in range(3)]
        assert sent == [3]
        server.answer()
        assert sent == [3, 1]
        assert [*answers, await next_answer(reader)] == [b"later %d" % one for one in range(4)]

    scenario(play)


def test_the_loop_looks_for_requests_after_all_but_those_that_get_records() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        server.processor.lookout = noting = Noting()
        for body, count in ((b"now", 1), (b"records", 1), (b"later", 2)):
            before = len(server.seen)
            writer.write(framed(body))
            await seen(server, before + 1)
            assert noting.came == count

    scenario(play)


def test_no_more_than_so_many_requests_wait_at_once() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        bodies = [b"later %d" % number for number in range(3 * PIPELINED_REQUESTS_MAX)]
        writer.write(b"".join(framed(body) for body in bodies))
        await seen(server, PIPELINED_REQUESTS_MAX)
        await asyncio.sleep(0.02)
        assert len(server.seen) == PIPELINED_REQUESTS_MAX
        for expected in bodies:
            server.answer()
            assert await next_answer(reader) == expected
        assert server.seen == bodies

    scenario(play)


def test_a_peer_with_thousands_of_small_requests_has_others_wait_for_some_of_them_only() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await connected(server, 2)
        many = [b"now %d" % number for number in range(5_000)]
        writer.write(b"".join(framed(body) for body in many))
        other_writer.write(framed(b"now the other"))
        assert await next_answer(other_reader) == b"now the other"
        assert server.seen.index(b"now the other") <= 2 * TURN_REQUESTS_MAX
        for expected in many:
            assert await next_answer(reader) == expected
        writer.write(framed(b"now the last"))
        assert await next_answer(reader) == b"now the last"
        other_writer.close()

    scenario(play)


def test_nothing_overtakes_an_answer_that_must_keep_its_order() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        writer.write(framed(b"ordered 1") + framed(b"now 2"))
        await seen(server, 1)
        await asyncio.sleep(0.02)
        assert server.seen == [b"ordered 1"]
        server.answer()
        assert await next_answer(reader) == b"ordered 1"
        assert await next_answer(reader) == b"now 2"

    scenario(play)


def test_an_answer_to_a_peer_that_left_is_dropped() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        writer.write(framed(b"later"))
        await seen(server, 1)
        writer.close()
        while server.processor.count():
            await asyncio.sleep(0.001)
        server.answer()

    scenario(play)


@pytest.mark.parametrize(
    ("sent", "after_ms", "reason"),
    [
        (b"\0\0", FIRST_REQUEST_MS_MAX + 1, "no whole request"),
        (framed(b"now") + b"\0\0", FIRST_REQUEST_MS_MAX + 1, None),
        (framed(b"now") + b"\0\0", FRAME_STALL_MS_MAX + 1, "half a request"),
        (framed(b"now"), IDLE_MS_MAX - 1_000, None),
        (framed(b"now"), IDLE_MS_MAX + 1, "idle"),
        (framed(b"later"), IDLE_MS_MAX + 1, None),
    ],
)
def test_when_a_peer_has_stalled(sent: bytes, after_ms: int, reason: str | None) -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        writer.write(sent)
        while server.processor.count() == 0:
            await asyncio.sleep(0.001)
        await seen(server, sent.count(b"now") + sent.count(b"later"))
        await asyncio.sleep(0.02)
        connection = server.connection()
        verdict = connection.overdue(connection.last_read_ms + after_ms, IDLE_MS_MAX)
        assert (verdict is None) == (reason is None)
        assert reason is None or reason in (verdict or "")

    scenario(play)


def test_a_peer_that_reads_nothing_is_not_read_from_and_ends() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        reader._transport.pause_reading()
        body = b"now" + bytes(200_000)
        for _ in range(200):
            writer.write(framed(body))
        await connected(server, 1)
        connection = server.connection()
        quiet_turns = 0
        while quiet_turns < 50:  # until the sockets have taken what they can
            await asyncio.sleep(0.001)
            quiet_turns = 0 if connection._reading else quiet_turns + 1
        assert connection._outgoing
        assert connection._outgoing.bytes_queued < 4 << 20
        stalled_ms = connection.last_progress_ms + WRITE_STALL_MS_MAX + 1
        assert "read its answers" in (connection.overdue(stalled_ms, IDLE_MS_MAX) or "")

    scenario(play)


def test_what_waits_for_a_peer_that_left_is_let_go() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        writer.write(framed(b"parked 1") + framed(b"parked 2") + framed(b"later 3"))
        await seen(server, 3)
        server.answer(0)
        assert await next_answer(reader) == b"parked 1"
        writer.close()
        while server.processor.count():
            await asyncio.sleep(0.001)
        assert server.abandoned == [b"parked 2"]

    scenario(play)


def test_answers_behind_one_that_waits_are_bounded() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        large = b"now" + bytes(300_000)
        count = 30
        writer.write(framed(b"later") + framed(large) * count)
        enough = WRITE_BUFFER_BYTES_MAX // len(large) + 2
        await seen(server, enough)
        await asyncio.sleep(0.05)
        assert len(server.seen) == enough
        connection = server.connection()
        assert not connection._reading
        server.answer()
        assert await next_answer(reader) == b"later"
        for _ in range(count):
            assert await next_answer(reader) == large
        assert connection._bytes_held == 0

    scenario(play)


def test_a_frame_that_drips_has_an_end() -> None:
    """It never stalls: there was a byte a moment ago."""

    async def play(server: Server, reader: Any, writer: Any) -> None:
        size = 10 * FRAME_BYTES_PER_SECOND_MIN
        writer.write(framed(b"now") + struct.pack(">i", size) + bytes(10))
        await seen(server, 1)
        await asyncio.sleep(0.02)
        connection = server.connection()
        began_ms = connection.incoming.began_ms
        allowed_ms = FRAME_STALL_MS_MAX + 10_000
        for passed_ms, is_over in ((allowed_ms - 100, False), (allowed_ms + 100, True)):
            connection.last_read_ms = began_ms + passed_ms
            verdict = connection.overdue(began_ms + passed_ms, IDLE_MS_MAX)
            assert (verdict == "its request comes too slowly") == is_over

    scenario(play)


def test_a_peer_that_is_not_read_from_has_not_stalled() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        writer.write(framed(b"ordered") + struct.pack(">i", 100) + bytes(10))
        await seen(server, 1)
        await asyncio.sleep(0.02)
        connection = server.connection()
        late_ms = connection.last_read_ms + 10 * FRAME_STALL_MS_MAX
        assert connection.overdue(late_ms, IDLE_MS_MAX) is None
        server.answer()
        assert await next_answer(reader) == b"ordered"
        assert connection._reading

    scenario(play)


def test_the_oldest_unfinished_request_makes_room_for_others() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        size = 3 * (1 << 20)
        writers, begun = [writer], writer
        await connected(server, 1)
        try:
            while server.processor.count() == len(writers):
                begun = writers[-1]
                begun.write(struct.pack(">i", size) + bytes(size // 2))
                while not await is_held(server, len(writers)):
                    pass
                if server.processor.count() == len(writers):
                    # What has begun grows meanwhile, and the first may have to go for it.
                    writers.append((await asyncio.open_connection("127.0.0.1", server.port))[1])
                    await connected(server, len(writers))
            # Gone with or without what it had sent: then the connection is reset.
            with suppress(ConnectionResetError):
                assert await reader.read() == b"", "the first of them is gone"
            begun.write(bytes(size - size // 2))
            await seen(server, 1)
        finally:
            for one in writers:
                one.close()

    scenario(play)


async def connected(server: Server, count: int) -> None:
    """So many have been let in, whether they are still there or not."""
    while server.processor.opened_total() < count:
        await asyncio.sleep(0.001)


async def is_held(server: Server, count: int) -> bool:
    """Whether so many have begun with a large frame, or one had to go."""
    await asyncio.sleep(0.001)
    holding = [one for one in server.processor._connections.values() if one.incoming.holds_memory()]
    return len(holding) == count or server.processor.count() < count


# -- busy turns -----------------------------------------------------------------------------------


def test_connections_of_a_busy_turn_get_their_answers_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[bool] = []
    keeps = Turn.keeps

    def noted(turn: Turn, peer: Any) -> bool:
        kept.append(keeps(turn, peer))
        return kept[-1]

    monkeypatch.setattr(Turn, "keeps", noted)

    async def play(server: Server, reader: Any, writer: Any) -> None:
        peers = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(8)]
        for number in range(20):
            body = b"now %d" % number
            for _, peer_writer in peers:
                peer_writer.write(framed(body))
            gone = peers.pop() if number == 10 else None
            if gone is not None:
                gone[1].transport.abort()
            for peer_reader, _ in peers:
                assert await next_answer(peer_reader) == body
        large = b"now" + bytes(TURN_ANSWER_BYTES_MAX)
        before = len(kept)
        for _, peer_writer in peers:
            peer_writer.write(framed(large))
        for peer_reader, _ in peers:
            assert await next_answer(peer_reader) == large
        assert len(kept) == before, "what is large is sent at once"
        for _, peer_writer in peers:
            peer_writer.close()

    scenario(play)
    assert kept.count(True) > 20


def test_one_that_fails_at_the_end_of_a_turn_costs_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        await seen(server, 0)
        connection = server.connection()
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "_flush", lambda _: 1 // 0)
            connection.send_now()
        assert await reader.read() == b""

    scenario(play)
    assert "ZeroDivisionError" in caplog.text
