"""A member of a group as a real process: `ottla consume --group`, read line by line.

Its records and what it tells come through one pipe, so they are heard in the order in which they
happened. Every wait has an end.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from ottla.cli.demos.own_broker import OTTLA, end
from ottla.cli.failure import Failure

STEP_SECONDS_MAX = 30.0


@dataclass(slots=True)
class Delivery:
    """One record that a member showed."""

    partition: int
    offset: int
    value: str


class MemberProcess:
    """Starts at once.

    Its records are in `deliveries`, both records and events in `said`; `owned` are its partitions
    as far as it has told.
    """

    # Tabs, because a value may have spaces; what it tells has none.
    FORMAT = r"%p\t%o\t%v\n"

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.deliveries: list[Delivery] = []
        self.said: list[str] = []
        self.owned: set[str] = set()
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._is_open = True
        self._process = subprocess.Popen(  # noqa: S603 (our own command)
            [*OTTLA, "consume", *arguments, "--format", self.FORMAT, "--verbose"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        # A thread, because a pipe cannot be waited for with a time limit everywhere.
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._lines.put(line.decode(errors="replace").rstrip("\n"))
        self._lines.put(None)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while not condition():
            if not self._is_open or not self._take(deadline - time.monotonic()):
                said = "; ".join(self.said[-2:]) or "it said nothing"
                raise Failure(f"member {self.name} of the demo did not {what}: {said}")

    def wait_for_end(self) -> None:
        """All it says, to the end; it must have gone well."""
        self.wait_until(lambda: not self._is_open, "end by itself")
        if end(self._process) != 0:
            raise Failure(f"member {self.name} of the demo failed: {'; '.join(self.said[-1:])}")

    def catch_up(self, seconds: float) -> None:
        """Takes what comes within so long, or until it ends."""
        deadline = time.monotonic() + seconds
        while self._is_open and self._take(deadline - time.monotonic()):
            pass

    def check_is_there(self) -> None:
        if not self._is_open:
            raise Failure(f"member {self.name} of the demo has ended: {'; '.join(self.said[-2:])}")

    def kill(self) -> None:
        """SIGKILL: it has no time for anything."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        # What was in the pipe has left the process, so it was delivered.
        self.wait_until(lambda: not self._is_open, "fall silent")
        end(self._process)

    def stop(self) -> None:
        """SIGTERM: it commits, leaves its group and ends."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self.wait_for_end()

    def close(self) -> None:
        """However it stands: gone afterwards."""
        end(self._process)

    def _take(self, timeout_s: float) -> bool:
        """One line, or the end; whether there was any in time."""
        try:
            line = self._lines.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return False
        if line is None:
            self._is_open = False
        elif "\t" in line:
            partition, offset, value = line.split("\t", 2)
            self.deliveries.append(Delivery(int(partition), int(offset), value))
            self.said.append(f"{partition}@{offset} {value}")
        else:
            self._on_event(line)
        return True

    def _on_event(self, text: str) -> None:
        verb, _, rest = text.partition(" ")
        partitions = set(rest.split(", ")) - {"nothing"}
        if verb == "left" and self.said and self.said[-1].startswith("revoked "):
            # Who leaves gives up everything: no news.
            self.said.pop()
        if verb == "assigned":
            self.owned |= partitions
        elif verb in ("revoked", "lost"):
            self.owned -= partitions
        self.said.append(text)
