"""Goal: no number of clients keeps the other brokers out, where those have a listener of their own.
Method: real sockets at the ports of a `Listening` that accepts two connections.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import cast

import pytest

from ottla.broker import listening as listening_room
from ottla.broker.listening import Listening
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.net.processor import Processor
from ottla.runtime.clocks import SystemClock
from ottla.runtime.handler_pool import HandlerPool
from ottla.runtime.timers import LoopTimers

TWO = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}
ONE = {"listeners": "PLAINTEXT://127.0.0.1:0"}


async def refused(settings: dict[str, str]) -> list[bool]:
    """For each port, whether a connection is closed at once where two of clients are open."""
    loop = asyncio.get_running_loop()
    config = BrokerConfig(settings)
    listening = Listening(lambda: config)
    timers = LoopTimers(loop, SystemClock())
    listening.bind(loop, cast(HandlerPool, None), timers)
    listening.start()
    writers = []
    closed = []
    try:
        (_, of_clients), *_ = listening.bound
        for count in range(1, 3):
            writers.append((await asyncio.open_connection("127.0.0.1", of_clients))[1])
            while listening.processor.count() < count:
                await asyncio.sleep(0.001)
        for _, port in listening.bound:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            while not reader.at_eof() and listening.processor.count() == 2:
                await asyncio.sleep(0.001)
            closed.append(reader.at_eof())
    finally:
        for writer in writers:
            writer.close()
        listening.close()
        timers.close()
    return closed


@pytest.mark.parametrize("limit", ["max.connections", "max.connections.per.ip"])
def test_brokers_get_through_on_a_listener_of_their_own(limit: str) -> None:
    assert asyncio.run(refused({**TWO, limit: "2"})) == [True, False]


@pytest.mark.parametrize("limit", ["max.connections", "max.connections.per.ip"])
def test_one_listener_for_all_has_one_limit_for_all(limit: str) -> None:
    assert asyncio.run(refused({**ONE, limit: "2"})) == [True]


async def processor_of(settings: dict[str, str]) -> Processor:
    config = BrokerConfig({**ONE, **settings})
    listening = Listening(lambda: config)
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop, SystemClock())
    listening.bind(loop, cast(HandlerPool, None), timers)
    try:
        return listening.processor
    finally:
        listening.close()
        timers.close()


@pytest.mark.parametrize(
    ("settings", "looks"),
    [
        ({}, True),
        ({"ottla.look.before.sleep.us": "0"}, False),
        ({"zookeeper.connect": "127.0.0.1:2181"}, False),
        ({"zookeeper.connect": "127.0.0.1:2181", "ottla.look.before.sleep.us": "50"}, True),
    ],
)
def test_a_broker_alone_looks_before_it_sleeps(settings: dict[str, str], looks: bool) -> None:
    assert (asyncio.run(processor_of(settings)).lookout is not None) == looks


@pytest.mark.parametrize(
    ("settings", "gathers"), [({}, True), ({"ottla.gather.requests.ms": "0"}, False)]
)
def test_requests_are_gathered_unless_it_is_turned_off(
    settings: dict[str, str], gathers: bool
) -> None:
    assert (asyncio.run(processor_of(settings)).patience is not None) == gathers


async def send_buffer(settings: dict[str, str]) -> int:
    """Of a connection that was taken."""
    loop = asyncio.get_running_loop()
    config = BrokerConfig({**ONE, **settings})
    listening = Listening(lambda: config)
    timers = LoopTimers(loop, SystemClock())
    listening.bind(loop, cast(HandlerPool, None), timers)
    opened: list[int] = []

    def take(connected: socket.socket, listener_name: str) -> None:
        opened.append(connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
        connected.close()

    listening.processor.open = take  # type: ignore[method-assign]
    listening.start()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", listening.bound[0][1])
        while not opened:
            await asyncio.sleep(0.001)
        writer.close()
    finally:
        listening.close()
        timers.close()
    return opened[0]


def test_a_send_buffer_that_suits_readers_unless_it_was_set_or_is_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "wmem_max"
    monkeypatch.setattr(listening_room, "SEND_BUFFER_LIMIT", limit)
    monkeypatch.setattr(listening_room, "SEND_BUFFER_BYTES", 60_000)
    by_the_kernel = asyncio.run(send_buffer({"socket.send.buffer.bytes": "-1"}))
    limit.write_text("60000\n")
    assert asyncio.run(send_buffer({})) == 120_000  # the kernel doubles it, for its own needs
    assert asyncio.run(send_buffer({"socket.send.buffer.bytes": "30000"})) == 60_000
    limit.write_text("59999\n")
    assert asyncio.run(send_buffer({})) == by_the_kernel
    limit.unlink()
    assert asyncio.run(send_buffer({})) == by_the_kernel
