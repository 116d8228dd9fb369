"""The broker of a test: a node on an event loop of its own, in a thread of the test's process."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from types import TracebackType

from ottla.broker.config_file import load_broker_config
from ottla.broker.node import Node
from ottla.net.held_port import HeldPort
from ottla.runtime.clocks import MovableClock
from ottla.testing.loop_thread import LoopThread, step_ms, text_of


class Broker:
    """`settings` are broker settings under Kafka's names; `data_dir` None is a temporary one."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
    ) -> None:
        self._settings = dict(settings or {})
        self._own_data_dir = data_dir is None
        self.data_dir = os.fspath(data_dir or tempfile.mkdtemp(prefix="ottla-test-"))
        self._port = port
        self._held: HeldPort | None = None
        self._clock = MovableClock()
        self._thread: LoopThread | None = None
        self._node: Node | None = None

    # -- life -------------------------------------------------------------------------------

    def start(self) -> Broker:
        if self._thread is not None:
            raise RuntimeError("this broker is running already")
        if self._port == 0:
            # A restart comes back on the same port, as a client expects of a broker.
            self._held = HeldPort("127.0.0.1")
            self._port = self._held.port
        overrides = [
            "ottla.metrics.listener=",
            "ottla.look.before.sleep.us=0",  # the test has a thread in this process, too
            *(f"{name}={text_of(value)}" for name, value in self._settings.items()),
        ]
        loaded = load_broker_config(
            None, overrides, data_dir=self.data_dir, listen=f"127.0.0.1:{self._port}"
        )
        for warning in loaded.warnings:
            warnings.warn(warning, stacklevel=2)
        node = Node(loaded.config, self._clock)
        thread = LoopThread("ottla-test-broker")
        thread.start()
        try:
            thread.run(node.start())
        except BaseException:
            thread.stop()
            raise
        self._thread, self._node = thread, node
        return self

    def stop(self) -> None:
        """A clean stop; the data stays until the context ends."""
        if self._node is not None and self._thread is not None:
            self._thread.run(self._node.stop())
            self._thread.stop()
            self._node = self._thread = None

    def restart(self) -> Broker:
        self.stop()
        return self.start()

    def close(self) -> None:
        self.stop()
        if self._held is not None:
            self._held.close()
        if self._own_data_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Broker:
        try:
            return self.start()
        except BaseException:
            self.close()  # nobody else will: there is no end of a `with` that has not begun
            raise

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
        if self._node is None or self._thread is None:
            raise RuntimeError("this broker is not running")
        self._clock.advance(step_ms(days, hours, minutes, seconds, milliseconds))
        self._thread.call(self._node.timers.poke)
