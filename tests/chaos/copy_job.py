"""The copy job that tests of transactions kill: `transaction_copier`, started again when gone."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from tests.compat.confluent import new_name

STUCK_S = 30.0
COPIER = Path(__file__).with_name("transaction_copier.py")


class Brokers(Protocol):
    @property
    def bootstrap(self) -> str: ...


class Job:
    """`name` is its group and its transactional id."""

    def __init__(self, brokers: Brokers, source: str, target: str, dice: random.Random) -> None:
        self.name = new_name("copier")
        self._brokers = brokers
        self._arguments = (source, target, self.name)
        self._dice = dice
        self._process: subprocess.Popen[bytes] | None = None
        self._copied = -1
        self._moved_s = 0.0

    def keep_on_copying(self, copied: int) -> None:
        """As `keep_going`, and one that copies no more is killed, as whoever runs such a job would:
        librdkafka was seen to wait in send_offsets_to_transaction and to send nothing when its
        coordinator had gone away at that moment."""
        now_s = time.monotonic()
        if copied != self._copied:
            self._copied, self._moved_s = copied, now_s
        elif now_s - self._moved_s > STUCK_S:
            self._moved_s = now_s
            self.kill()
        self.keep_going()

    def keep_going(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def _command(self) -> list[str]:
        seed = str(self._dice.randrange(2**32))
        return [sys.executable, str(COPIER), self._brokers.bootstrap, *self._arguments, seed]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
