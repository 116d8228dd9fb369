"""The broker of a test: a node on an event loop of its own, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from ottla.broker.config_file import load_broker_config
from ottla.broker.node import Node
from ottla.runtime.clocks import MovableClock

R = TypeVar("R")
START_SECONDS_MAX = 30.0


class Broker:
    """`settings` are broker settings under Kafka's names; `data_dir` None is a temporary one."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | None = None,
        port: int = 0,
    ) -> None:
        self._settings = dict(settings or {})
        self._own_data_dir = data_dir is None
        self.data_dir = data_dir or tempfile.mkdtemp(prefix="ottla-test-")
        self._port = port
        self._clock = MovableClock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: Node | None = None

    # -- life -------------------------------------------------------------------------------

    def start(self) -> Broker:
        if self._thread is not None:
            raise RuntimeError("this broker is running already")
        overrides = [
            "ottla.metrics.listener=",
            *(f"{name}={_text(value)}" for name, value in self._settings.items()),
        ]
        loaded = load_broker_config(
            None, overrides, data_dir=self.data_dir, listen=f"127.0.0.1:{self._port}"
        )
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ottla-test-broker", daemon=True
        )
        self._thread.start()
        self._node = Node(loaded.config, self._clock)
        try:
            self._run(self._node.start())
        except BaseException:
            self._end_loop()
            raise
        # A restart comes back on the same port, as a client expects of a broker.
        self._port = next(iter(self._node.endpoints.values()))[1]
        return self

    def stop(self) -> None:
        """A clean stop; the data stays until the context ends."""
        if self._node is not None:
            self._run(self._node.stop())
            self._node = None
            self._end_loop()

    def restart(self) -> Broker:
        self.stop()
        return self.start()

    def close(self) -> None:
        self.stop()
        if self._own_data_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- use --------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return self._port

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return f"127.0.0.1:{self._port}"

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Move the broker's clock forward; what has become due has begun when this returns."""
        step = timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        self._clock.advance(round(step.total_seconds() * 1000))
        node = self._running()

        async def poke() -> None:
            node.timers.poke()

        self._run(poke())

    # -- inside -----------------------------------------------------------------------------

    def _running(self) -> Node:
        if self._node is None:
            raise RuntimeError("this broker is not running")
        return self._node

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS_MAX)

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
