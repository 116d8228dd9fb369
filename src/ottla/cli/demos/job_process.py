"""A copy job as a real process, heard line by line and killed at a random moment."""

from __future__ import annotations

import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from ottla.cli.demos.own_broker import end
from ottla.cli.failure import Failure

JOB = (sys.executable, "-m", "ottla.cli.demos.copy_job")
STEP_SECONDS_MAX = 60.0
# A job is killed so long, at most, after it has begun to copy.
KILL_WITHIN_S = 0.25


class JobProcess:
    """Starts at once."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.steps = 0
        self._words: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(  # noqa: S603 (our own command)
            [*JOB, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._lines.put(line.decode(errors="replace").rstrip("\n"))
        self._lines.put(None)

    def kill_at_random(self, dice: random.Random) -> bool:
        """Somewhere in its work; False if it was done before that."""
        while self.steps < 2:
            if not self._take():
                self._check_end()
                return False
        time.sleep(dice.uniform(0.0, KILL_WITHIN_S))
        self._process.kill()
        code = self._process.wait()
        while self._take():
            pass
        self.close()
        return code != 0

    def wait_for_end(self) -> None:
        while self._take():
            pass
        self._check_end()

    def close(self) -> None:
        end(self._process)

    def _check_end(self) -> None:
        if end(self._process) != 0:
            raise Failure(f"the demo's copy job failed: {'; '.join(self._words[-1:])}")

    def _take(self) -> bool:
        """One line; False at the end."""
        try:
            line = self._lines.get(timeout=STEP_SECONDS_MAX)
        except queue.Empty:
            raise Failure("the demo's copy job does not get on") from None
        if line is None:
            return False
        if line == "copied":
            self.steps += 1
        else:
            self._words.append(line)
        return True
