"""Goal: requests of a peer that has several under way are handled together, and none waits long.
Method: real sockets; the low-water mark is asked of the kernel, the ticks are the test's own.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from ottla.net.connection import Connection
from ottla.net.gathering import AT_ONCE
from tests.unit.net.test_connection import Noting, Server, framed, next_answer, scenario, seen
from tests.unit.net.test_patience import Ticks

BODY = b"now" + bytes(997)
FRAME = framed(BODY)
THREE = 5 * len(FRAME) // 2
"""Bytes that are waited for where three requests came at once."""


def ticks_of(server: Server) -> Ticks:
    """Ticks that take the place of the loop's timer."""
    ticks = Ticks()
    server.processor.patience = ticks.patience
    return ticks


def low_mark(server: Server) -> int:
    return server.connection()._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


async def send_and_hear(writer: Any, reader: Any, requests: int) -> None:
    writer.write(FRAME * requests)
    for _ in range(requests):
        assert await next_answer(reader) == BODY


async def turns() -> None:
    """Long enough for the loop to have read what there is to read."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def test_what_came_at_once_is_waited_for() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        ticks_of(server)
        await send_and_hear(writer, reader, 1)
        assert low_mark(server) == AT_ONCE
        await send_and_hear(writer, reader, 3)
        assert low_mark(server) == THREE
        writer.write(FRAME * 2)
        await turns()
        assert len(server.seen) == 4
        writer.write(FRAME)
        for _ in range(3):
            await next_answer(reader)
        assert len(server.seen) == 7

    scenario(play)


def test_less_than_that_is_handled_after_a_tick() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        ticks = ticks_of(server)
        await send_and_hear(writer, reader, 3)
        ticks.tick()
        writer.write(FRAME)
        await turns()
        ticks.tick()
        assert await next_answer(reader) == BODY
        assert low_mark(server) == AT_ONCE
        await send_and_hear(writer, reader, 1)

    scenario(play)


def test_a_pause_ends_the_wait_and_the_timer() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        ticks = ticks_of(server)
        await send_and_hear(writer, reader, 3)
        ticks.tick()
        assert low_mark(server) == AT_ONCE
        assert ticks.due == []
        await send_and_hear(writer, reader, 1)
        assert low_mark(server) == THREE

    scenario(play)


def test_who_is_owed_an_answer_is_not_waited_for() -> None:
    """It may have as many requests under way as it wants to."""

    async def play(server: Server, reader: Any, writer: Any) -> None:
        ticks_of(server)
        await send_and_hear(writer, reader, 3)
        writer.write(FRAME * 2 + framed(b"later" + bytes(995)))
        await seen(server, 6)
        assert low_mark(server) == AT_ONCE
        writer.write(FRAME)
        await seen(server, 7)

    scenario(play)


def test_the_end_of_a_peer_is_noticed_while_more_is_waited_for() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        ticks = ticks_of(server)
        await send_and_hear(writer, reader, 3)
        writer.close()
        while server.processor.count():
            await asyncio.sleep(0.001)
        ticks.tick()
        assert ticks.due == []

    scenario(play)


def test_a_peer_that_is_not_read_from_is_not_read_late() -> None:
    """What it is owed does not leave: its next request has to wait, whatever the tick says."""

    async def play(server: Server, reader: Any, writer: Any) -> None:
        ticks = ticks_of(server)
        await send_and_hear(writer, reader, 3)
        server.connection()._pause_reading()
        writer.write(FRAME)
        await turns()
        ticks.tick()
        assert len(server.seen) == 3
        assert low_mark(server) == AT_ONCE
        server.connection()._resume_reading()
        assert await next_answer(reader) == BODY

    scenario(play)


def test_nobody_looks_for_what_is_gathered() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        ticks_of(server)
        server.processor.lookout = noting = Noting()
        await send_and_hear(writer, reader, 2)
        assert noting.came == 2
        await send_and_hear(writer, reader, 2)
        assert noting.came == 2

    scenario(play)


def test_without_patience_nothing_is_gathered() -> None:
    async def play(server: Server, reader: Any, writer: Any) -> None:
        await send_and_hear(writer, reader, 3)
        assert low_mark(server) == AT_ONCE

    scenario(play)


def test_requests_that_can_be_answered_together_are() -> None:
    """And what is left of them is handled singly, in its turn."""

    async def play(server: Server, reader: Any, writer: Any) -> None:
        runs: list[int] = []

        def two_at_a_time(connection: Connection, frames: list[memoryview]) -> list[bytes]:
            runs.append(len(frames))
            fit = frames[:2] if bytes(frames[0]) == BODY else []
            return [framed(bytes(frame) + b" together") for frame in fit]

        ticks_of(server)
        server.processor.dispatch_run = two_at_a_time
        await send_and_hear(writer, reader, 2)
        assert not runs, "nothing was gathered before"
        writer.write(FRAME * 3)
        heard = [await next_answer(reader) for _ in range(3)]
        assert heard == [BODY + b" together"] * 2 + [BODY]
        assert runs == [3]
        assert server.connection().answered == 5
        # Behind what waits for its answer nothing is answered together.
        later = b"later" + BODY
        writer.write(framed(later) + FRAME * 2)
        await turns()
        writer.write(FRAME * 2)
        await turns()
        assert runs == [3, 3]
        server.answer()
        assert await next_answer(reader) == later
        for _ in range(4):
            assert await next_answer(reader) == BODY

    scenario(play)
