"""Three brokers and a ZooKeeper for one story: `ottla cluster up` in a directory that goes with it.

What happens to a broker happens by the commands that people have for it (`ottla cluster kill 1`).
"""

from __future__ import annotations

import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

from ottla.base.errors import OttlaError
from ottla.cli.cluster_control import ask_state, call
from ottla.cli.demos.own_broker import OTTLA
from ottla.cli.failure import Failure
from ottla.client import Admin
from ottla.client.admin_values import NewTopic, PartitionDescription

BROKERS = 3
START_SECONDS_MAX = 120.0
STEP_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
POLL_S = 0.1
SESSION_TIMEOUT_MS = 6_000

SETTINGS = {
    # So that a story is not long; less would take a busy broker for a dead one.
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.initial.rebalance.delay.ms": "500",
    "offsets.topic.num.partitions": "3",
}


class OwnCluster:
    """Runs while it is entered; brokers are 1, 2 and 3."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
        self.data = self.directory / "cluster"
        self.bootstrap = ""
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: Admin | None = None

    def __enter__(self) -> OwnCluster:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self) -> None:
        overrides = [part for pair in SETTINGS.items() for part in ("--override", "=".join(pair))]
        command = ["cluster", "up", "--brokers", str(BROKERS), "--data", str(self.data)]
        self._process = subprocess.Popen(  # noqa: S603 (our own command)
            [*OTTLA, *command, "--listen", "127.0.0.1:0", *overrides],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the story, which ends its processes in order.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.said or not self.said[-1].startswith(f"{BROKERS} brokers up"):
            line = self._next_line(deadline - time.monotonic())
            if line is None:
                reason = self.said[-1:] or ["it said nothing"]
                why = reason[0].removeprefix("ottla: ")
                raise Failure(f"the demo's cluster did not start: {why}")
            self.said.append(line)
        addresses = [broker.address for broker in ask_state(self.data).brokers]
        self.bootstrap = ",".join(addresses)
        self._admin = Admin(bootstrap_servers=self.bootstrap)

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._lines.put(line.decode(errors="replace").rstrip("\n"))
        self._lines.put(None)

    def _next_line(self, timeout_s: float) -> str | None:
        try:
            return self._lines.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._admin is not None:
            self._admin.close()
        if self._process is not None:
            # It stops its brokers and its ZooKeeper; killed, it would leave them behind.
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                subprocess.run(  # noqa: S603 (our own command)
                    [*OTTLA, "cluster", "down", "--data", str(self.data)], check=False
                )
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- what is done to it -----------------------------------------------------------------

    def tell(self, command: str, broker_id: int) -> None:
        """`kill`, `stop`, `start`, `pause` or `resume`; done when it returns."""
        call(self.data, command, broker_id)

    def create_topic(
        self, name: str, replicas: list[list[int]], configs: dict[str, str] | None = None
    ) -> None:
        error = self.admin.create_topics([NewTopic(name, -1, -1, replicas, configs or {})])[name]
        if error is not None:
            raise Failure(str(error))

    # -- what can be seen -------------------------------------------------------------------

    @property
    def admin(self) -> Admin:
        assert self._admin is not None
        return self._admin

    def partitions(self, topic: str) -> list[PartitionDescription]:
        """Any broker answers, and one may not have heard of a new topic yet, or be on its way down
        or up: it is asked again for a while."""
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while True:
            try:
                (found,) = self.admin.describe_topics([topic])
            except OttlaError as cause:
                if time.monotonic() > deadline:
                    raise Failure(f"topic {topic}: {cause}") from cause
                time.sleep(POLL_S)
            else:
                return sorted(found.partitions)


def until_true(holds: Callable[[], bool], what: str) -> None:
    """Polls a condition; a Failure says what did not come to hold."""
    deadline = time.monotonic() + STEP_SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise Failure(f"the demo waited in vain for {what}")
        time.sleep(POLL_S)
