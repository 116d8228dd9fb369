"""When a pipeline that fails is started again. Pure; time is an argument."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """A second after the first failure, twice as long after each further one, at most a minute.
    A run that went well for five minutes makes the next failure a first one again."""

    first_ms: int = 1_000
    most_ms: int = 60_000
    healthy_ms: int = 300_000
    failures: int = 0

    def on_failure(self, ran_ms: int) -> int:
        """How long to wait before the next attempt."""
        if ran_ms >= self.healthy_ms:
            self.failures = 0
        self.failures += 1
        return int(min(self.most_ms, self.first_ms * 2 ** min(self.failures - 1, 16)))
