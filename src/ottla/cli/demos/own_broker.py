"""A broker for one story: a process on a free port, in a directory that goes with it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from ottla.cli.failure import Failure

OTTLA = (sys.executable, "-m", "ottla.cli.main")
LISTENING = re.compile(rb"listening on (\S+)")
STOP_SECONDS_MAX = 10.0

SETTINGS = {
    # A story has no time for what is meant for large groups that start one by one.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "ottla.metrics.listener": "127.0.0.1:0",
}


class OwnBroker:
    """Runs while it is entered; `bootstrap` is where it listens, `data` where it writes."""

    def __init__(self) -> None:
        self.bootstrap = ""
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
        self.data = self.directory / "data"
        self._log = self.directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OwnBroker:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            end(self._process)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self) -> None:
        overrides = [part for pair in SETTINGS.items() for part in ("--override", "=".join(pair))]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own command)
                [*OTTLA, "serve", "--data", str(self.data), "--listen", "127.0.0.1:0", *overrides],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for the story, which ends its processes in order.
                start_new_session=True,
            )
        assert self._process.stdout is not None
        # It says one line, or it ends.
        match = LISTENING.search(self._process.stdout.readline())
        if match is None:
            self._process.wait()
            reason = self._log.read_text(errors="replace").strip().splitlines()[-1:]
            raise Failure(f"the demo's broker did not start: {' '.join(reason)}")
        self.bootstrap = match[1].decode()


def end(process: subprocess.Popen[bytes]) -> int:
    """SIGTERM, and SIGKILL if that is not heard."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        if process.stdout is not None:
            process.stdout.close()
