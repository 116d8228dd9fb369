"""The copy job that tests of transactions kill, started again when gone: `transaction_copier`, or
Kafka's TransactionalMessageCopier."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.compat.confluent import new_name
from tests.compat.nodes import java, wait_until

COPIER = Path(__file__).with_name("transaction_copier.py")
KAFKAS_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"


class Brokers(Protocol):
    @property
    def bootstrap(self) -> str: ...


class Job:
    """`name` is its group and its transactional id; what it says goes to a file in `directory`."""

    moment_s_max = 1.5
    """Within this time it is at work."""

    def __init__(
        self, brokers: Brokers, source: str, target: str, dice: random.Random, directory: Path
    ) -> None:
        self.name = new_name("copier")
        self.log_path = directory / "copier.log"
        self._brokers = brokers
        self._arguments = (source, target, self.name)
        self._dice = dice
        self._process: subprocess.Popen[bytes] | None = None

    def keep_going(self) -> None:
        if self._process is None or self._process.poll() is not None:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)

    def _command(self) -> list[str]:
        seed = str(self._dice.randrange(2**32))
        return [sys.executable, str(COPIER), self._brokers.bootstrap, *self._arguments, seed]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Keeps the job going until it has come to that."""

        def comes_to_it() -> bool:
            self.keep_going()
            return holds()

        try:
            wait_until(comes_to_it, seconds, what)
        except AssertionError as late:
            said = self.log_path.read_text(errors="replace")[-2000:]
            raise AssertionError(f"{late}; the job said {said!r}") from None


class KafkasJob(Job):
    """Each life copies what the source had when it came, and aborts one transaction in three.

    As a member of a group, so that one life is for all partitions: a JVM takes its time to begin.
    """

    moment_s_max = 5.0

    def _command(self) -> list[str]:
        source, target, name = self._arguments
        return [
            *java(KAFKAS_COPIER, heap="128m"),
            *("--broker-list", self._brokers.bootstrap),
            *("--input-topic", source, "--input-partition", "-1"),  # of no meaning in a group
            *("--group-mode", "--use-group-metadata"),
            *("--output-topic", target, "--transactional-id", name, "--consumer-group", name),
            *("--transaction-size", "2", "--enable-random-aborts"),
        ]
