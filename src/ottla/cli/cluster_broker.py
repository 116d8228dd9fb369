"""One broker of a cluster on this machine: its process, and what is being done to it.

Commands for one broker come one after the other. An end that nobody asked for is told; the process
is not started again by itself, since a broker that falls over should be looked at.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ottla.cli.cluster_files import BrokerState
from ottla.cli.failure import Failure

LISTENING = re.compile(rb"listening on ")
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 120.0
PAUSE_SECONDS_MAX = 10.0
POLL_S = 0.01

STARTING, RUNNING, PAUSED, STOPPED = "starting", "running", "paused", "stopped"


class BrokerProcess:
    def __init__(
        self,
        broker_id: int,
        *,
        address: str,
        data_dir: Path,
        log_path: Path,
        command: Sequence[str],
        on_change: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        self.broker_id = broker_id
        self.address = address
        self.state = STOPPED
        self._data_dir = data_dir
        self._log_path = log_path
        self._command = command
        self._on_change = on_change
        self._tell = tell
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._expected = False
        self._watching: asyncio.Task[None] | None = None

    def describe(self) -> BrokerState:
        pid = None if self._process is None else self._process.pid
        return BrokerState(self.broker_id, self.address, pid, str(self._data_dir), self.state)

    async def start(self) -> None:
        """Returns when it serves."""
        async with self._turn:
            if self.state != STOPPED:
                raise Failure(f"broker {self.broker_id} is {self.state} already")
            await self._launch()
            try:
                async with asyncio.timeout(START_SECONDS_MAX):
                    await self._greeting()
            except TimeoutError:
                await self._end(signal.SIGKILL)
                raise Failure(
                    f"broker {self.broker_id} did not start within {START_SECONDS_MAX:g} s: "
                    f"{self.last_words()}"
                ) from None
            self._now(RUNNING)

    async def stop(self) -> None:
        """SIGTERM; returns when it has handed over and ended."""
        async with self._turn:
            self._must_run()
            await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        async with self._turn:
            self._must_run()
            await self._end(signal.SIGKILL)

    async def pause(self) -> None:
        async with self._turn:
            process = self._must_run()
            process.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(_wait_until_frozen, process.pid)
            self._now(PAUSED)

    async def resume(self) -> None:
        async with self._turn:
            self._must_run().send_signal(signal.SIGCONT)
            self._now(RUNNING)

    async def end_for_good(self) -> None:
        """As the cluster goes down: whatever state it is in."""
        async with self._turn:
            if self._process is not None:
                await self._end(signal.SIGTERM)

    def last_words(self) -> str:
        try:
            lines = self._log_path.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"

    def _must_run(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise Failure(f"broker {self.broker_id} does not run")
        return self._process

    async def _launch(self) -> None:
        self._expected = False
        with self._log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for the one in the foreground, which ends the others in order.
                start_new_session=True,
            )
        self._process = process
        self._now(STARTING)
        self._watching = asyncio.create_task(self._watch(process))

    async def _greeting(self) -> None:
        """It says one line when it serves, or it ends."""
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        line = await stdout.readline()
        if not LISTENING.search(line):
            await self._end(signal.SIGKILL)
            raise Failure(f"broker {self.broker_id} did not start: {self.last_words()}")

    async def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        self._expected = True
        try:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)  # a paused process hears nothing else
        except ProcessLookupError:
            pass  # it ended by itself
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            self._tell(f"broker {self.broker_id} does not stop: killed")
            process.kill()
            await process.wait()
        if self._watching is not None:
            await self._watching

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        self._process = None
        self._now(STOPPED)
        if not self._expected:
            how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
            self._tell(f"broker {self.broker_id} has ended {how}: {self.last_words()}")

    def _now(self, state: str) -> None:
        self.state = state
        self._on_change()


def _wait_until_frozen(pid: int) -> None:
    """The signal was sent; the kernel says T when the process has stopped."""
    deadline = time.monotonic() + PAUSE_SECONDS_MAX
    with suppress(FileNotFoundError):  # it ended instead
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > deadline:
                raise Failure(f"process {pid} does not stop")
            time.sleep(POLL_S)
