"""Goal: whoever asks another broker gets its answer or hears that it is lost, once, in order.
Method: real sockets on a real loop; the test plays the peer and sends what it likes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import PeerLost
from ottla.base.limits import PEER_ANSWER_BYTES_MAX, PEER_REQUESTS_MAX
from ottla.net.peer_client import PeerClient
from ottla.protocol.headers import read_request_header
from ottla.runtime.clocks import SystemClock
from ottla.runtime.timers import LoopTimers

FETCH, VERSION = 1, 17
DEADLINE_S = 60


class Peer:
    """A server that hands its requests to the test, and a client of it."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []
        self.timeout_ms = 60_000

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.timers = LoopTimers(asyncio.get_running_loop(), SystemClock())
        self.client = self.client_of("127.0.0.1", self.port)

    def client_of(self, host: str, port: int) -> PeerClient:
        return PeerClient(
            loop=asyncio.get_running_loop(),
            timers=self.timers,
            now_ms=SystemClock().monotonic_ms,
            address=(host, port),
            client_id="broker-2",
            timeout_ms=lambda: self.timeout_ms,
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header = read_request_header(memoryview(frame))
                assert (header.api_key, header.api_version) == (FETCH, VERSION)
                assert header.client_id == "broker-2"
                await self.requests.put((header.correlation_id, frame[header.body_position :]))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def next(self) -> tuple[int, bytes]:
        return await asyncio.wait_for(self.requests.get(), DEADLINE_S)

    def answer(self, correlation_id: int, body: bytes) -> None:
        frame = struct.pack(">iix", len(body) + 5, correlation_id) + body
        self.writers[-1].write(frame)

    async def stop(self) -> None:
        self.client.close()
        self.server.close()
        for _ in range(10):
            await asyncio.sleep(0)  # who was accepted a moment ago gets its writer
        for writer in self.writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        self.timers.close()


def run(test: Callable[[Peer], Awaitable[None]]) -> None:
    async def within() -> None:
        peer = Peer()
        await peer.start()
        try:
            await test(peer)
        finally:
            await peer.stop()

    asyncio.run(within())


class Asked:
    """A question; the answer is copied when it comes, as it is good no longer than that."""

    def __init__(self, peer: Peer, body: bytes, client: PeerClient | None = None) -> None:
        self._future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        (client or peer.client).request(FETCH, VERSION, body).when_done(self._done)

    def _done(self, outcome: Deferred[memoryview]) -> None:
        try:
            self._future.set_result(bytes(outcome.result()))
        except PeerLost as lost:
            self._future.set_exception(lost)

    async def result(self) -> bytes:
        return await asyncio.wait_for(self._future, DEADLINE_S)

    async def loss(self) -> str:
        with pytest.raises(PeerLost) as lost:
            await self.result()
        return str(lost.value)


def test_an_answer() -> None:
    async def test(peer: Peer) -> None:
        asked = Asked(peer, b"question")
        correlation_id, body = await peer.next()
        assert body == b"question"
        peer.answer(correlation_id, b"answer")
        assert await asked.result() == b"answer"

    run(test)


def test_several_at_once_are_answered_in_order() -> None:
    async def test(peer: Peer) -> None:
        asked = [Asked(peer, bytes([one])) for one in range(5)]
        for _ in range(5):
            correlation_id, body = await peer.next()
            peer.answer(correlation_id, body * 3)
        assert [await one.result() for one in asked] == [bytes([one]) * 3 for one in range(5)]

    run(test)


def test_large_questions_and_answers() -> None:
    async def test(peer: Peer) -> None:
        for size in (10, 5_000_000, 200_000, 20, 3_000_000):
            asked = Asked(peer, b"q" * size)
            correlation_id, body = await peer.next()
            assert len(body) == size
            peer.answer(correlation_id, b"a" * size)
            assert await asked.result() == b"a" * size

    run(test)


def test_a_lost_connection_is_told_and_made_again() -> None:
    async def test(peer: Peer) -> None:
        asked = [Asked(peer, b"x") for _ in range(2)]
        await peer.next()
        await peer.next()
        peer.writers[-1].close()
        for one in asked:
            await one.loss()
        again = Asked(peer, b"y")
        correlation_id, _ = await peer.next()
        peer.answer(correlation_id, b"here")
        assert await again.result() == b"here"
        assert len(peer.writers) == 2

    run(test)


def test_nobody_listens() -> None:
    async def test(peer: Peer) -> None:
        peer.server.close()
        await peer.server.wait_closed()
        for host in ("127.0.0.1", "localhost"):
            client = peer.client_of(host, peer.port)
            assert "cannot connect" in await Asked(peer, b"x", client).loss()

    run(test)


def test_a_name_is_looked_up() -> None:
    async def test(peer: Peer) -> None:
        async def answer() -> None:
            correlation_id, _ = await peer.next()
            peer.answer(correlation_id, b"found")

        client = peer.client_of("localhost", peer.port)
        asked = Asked(peer, b"x", client)
        task = asyncio.create_task(answer())
        assert await asked.result() == b"found"
        await task
        client.close()
        nowhere = peer.client_of("no.such.host.invalid", 1)
        assert "no address" in await Asked(peer, b"x", nowhere).loss()

    run(test)


def test_no_answer_in_time() -> None:
    async def test(peer: Peer) -> None:
        peer.timeout_ms = 50
        assert "no answer" in await Asked(peer, b"x").loss()

    run(test)


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">iix", 5, 99),
        struct.pack(">ii", -1, 1),
        struct.pack(">ii", PEER_ANSWER_BYTES_MAX + 1, 1),
        struct.pack(">ii", 0, 1),
    ],
)
def test_what_is_no_answer_ends_the_connection(sent: bytes) -> None:
    async def test(peer: Peer) -> None:
        asked = Asked(peer, b"x")
        await peer.next()
        peer.writers[-1].write(sent)
        await asked.loss()

    run(test)


def test_too_many_wait() -> None:
    async def test(peer: Peer) -> None:
        asked = [Asked(peer, b"") for _ in range(PEER_REQUESTS_MAX)]
        assert "wait" in await Asked(peer, b"").loss()
        peer.client.close()
        for one in asked:
            await one.loss()

    run(test)


def test_asking_while_an_answer_is_taken() -> None:
    async def test(peer: Peer) -> None:
        second: list[Asked] = []

        def ask_again(outcome: Deferred[memoryview]) -> None:
            second.append(Asked(peer, bytes(outcome.result())))

        peer.client.request(FETCH, VERSION, b"one").when_done(ask_again)
        correlation_id, _ = await peer.next()
        peer.answer(correlation_id, b"two")
        correlation_id, body = await peer.next()
        assert body == b"two"
        peer.answer(correlation_id, b"three")
        assert await second[0].result() == b"three"

    run(test)


def test_closing_while_an_answer_is_taken() -> None:
    async def test(peer: Peer) -> None:
        first = peer.client.request(FETCH, VERSION, b"one")
        second = Asked(peer, b"two")
        first.when_done(lambda outcome: peer.client.close())
        for body in (b"1", b"2"):
            correlation_id, _ = await peer.next()
            peer.answer(correlation_id, body)
        assert "closed" in await second.loss()

    run(test)
