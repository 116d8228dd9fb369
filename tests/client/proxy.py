"""A proxy between clients and one broker that loses, delays, doubles and garbles by chance.

It takes whole frames, so that a fault hits a request or an answer and not some bytes of it. Faults
come from a seed and a rate; `quiet()` ends them. The broker must advertise the proxy's address.
Answers stay in order on their connection, as a broker's do: what is delayed delays those behind it.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

CUT_BEFORE = "cut before"  # the request never arrives
CUT_AFTER = "cut after"  # it arrives, its answer does not
HALF = "half"  # half an answer, then the end
SWALLOWED = "swallowed"  # the answer is lost, the connection stays: its next answer is out of order
DELAYED = "delayed"
TWICE = "twice"
GARBLED = "garbled"
FAULTS = (CUT_BEFORE, CUT_AFTER, HALF, SWALLOWED, DELAYED, TWICE, GARBLED)

_DELAY_S_MAX = 0.05


class Proxy:
    def __init__(self) -> None:
        self.faults: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self.open_connections = 0
        self._upstream_port = 0
        self._rate = 0.0
        self._chance = random.Random(0)
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server: asyncio.Server = self._call(asyncio.start_server, self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def lead_to(self, port: int) -> None:
        self._upstream_port = port

    def misbehave(self, seed: int, rate: float) -> None:
        self._chance = random.Random(seed)
        self._rate = rate

    def quiet(self) -> None:
        self._rate = 0.0

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._call(end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        async def run() -> Any:
            return await function(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    # --------------------------------------------------------------------------- connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open_connections += 1
        try:
            await self._connect(reader, writer)
        finally:
            self.open_connections -= 1
            self._tasks.discard(task)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_in, upstream_out = await asyncio.open_connection(
                "127.0.0.1", self._upstream_port
            )
        except OSError:
            return
        ways = [
            asyncio.ensure_future(self._requests(reader, upstream_out)),
            asyncio.ensure_future(self._answers(upstream_in, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            upstream_out.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                frame = await _frame(reader)
                if self._draw((CUT_BEFORE,)):
                    return
                writer.write(frame)
                await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                frame = await _frame(reader)
                fault = self._draw(FAULTS[1:])
                if fault == CUT_AFTER:
                    return
                if fault == HALF:
                    writer.write(frame[: len(frame) // 2])
                    await writer.drain()
                    return
                if fault == SWALLOWED:
                    continue
                if fault == DELAYED:
                    await asyncio.sleep(self._chance.uniform(0, _DELAY_S_MAX))
                if fault == GARBLED:
                    frame = self._garbled(frame)
                writer.write(frame * 2 if fault == TWICE else frame)
                await writer.drain()

    def _draw(self, faults: tuple[str, ...]) -> str | None:
        if self._chance.random() >= self._rate * len(faults) / len(FAULTS):
            return None
        fault = self._chance.choice(faults)
        self.faults[fault] += 1
        return fault

    def _garbled(self, frame: bytes) -> bytes:
        """Another size, another correlation id, or other bytes in front of the rest."""
        begin = self._chance.choice([0, 4])
        return frame[:begin] + self._chance.randbytes(4) + frame[begin + 4 :]


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))
