"""The copy job that tests of transactions kill: `transaction_copier`, started again when gone."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from tests.compat.confluent import new_name

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
