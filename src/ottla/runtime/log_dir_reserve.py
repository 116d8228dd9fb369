"""Looks how much room is left in each log dir, and stops producers before there is none (F6).

A disk that is full takes its log dir offline until a restart. So producers are refused while it
still has a reserve, which is left to what must go on: copies of other brokers, offsets, markers of
transactions, checkpoints. When room is back, so are they, with nobody's help.

The disk is asked in the pool, the more often the less is left, and never by a produce.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.base.deferred import Deferred
from ottla.base.ports import Pool, Timer, Timers
from ottla.log.log_dir import LogDir
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.runtime.local_replicas import LocalReplicas

log = logging.getLogger("ottla.runtime")

RESERVE = "ottla.log.dir.reserve.bytes"
DEFAULT_BYTES_MAX = 64 << 20
DEFAULT_PART = 100
"""And no more than this part of the file system: a hundredth."""
# It ends a little above where it began, or every deleted segment would begin and end it anew.
RETURN_PART = 8

LOOK_MS_MIN, LOOK_MS_MAX = 10, 1_000
FAST_BYTES_PER_MS = 500_000
"""Hardly anybody fills a disk faster: so long there is no need to look."""
OVERRUN_PART = 4
"""So much of the reserve may go before it is noticed that it has been reached."""

Space = tuple[int, int]


class Room(NamedTuple):
    """What was found at the last look."""

    log_dir: str
    free_bytes: int
    reserve_bytes: int
    is_short: bool


class LogDirReserve:
    def __init__(
        self,
        *,
        replicas: LocalReplicas,
        timers: Timers,
        pool: Pool,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._replicas = replicas
        self._timers = timers
        self._pool = pool
        self._config = config
        self._timer: Timer | None = None
        self._is_stopped = False
        self._found: dict[str, Room] = {}

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def rooms(self) -> list[Room]:
        """Of the log dirs that are online."""
        online = [one.path for one in self._replicas.dirs() if one.error is None]
        return [self._found[path] for path in online if path in self._found]

    def _look(self) -> None:
        asked = [one for one in self._replicas.dirs() if one.error is None]
        self._pool.run(_spaces, asked).when_done(lambda outcome: self._seen(asked, outcome))

    def _seen(self, asked: list[LogDir], outcome: Deferred[list[Space]]) -> None:
        if self._is_stopped:
            return
        delays_ms = [LOOK_MS_MAX]
        for log_dir, (total, free) in zip(asked, outcome.result(), strict=True):
            if total:  # else it can not be told, and whoever writes there finds out why
                delays_ms.append(self._judge(log_dir, total, free))
        self._timer = self._timers.call_later(min(delays_ms), self._look)

    def _judge(self, log_dir: LogDir, total: int, free: int) -> int:
        """In how many milliseconds to look again."""
        reserve = self._reserve_bytes(total)
        was_short = log_dir.is_short_of_room
        enough = reserve + reserve // RETURN_PART if was_short else reserve
        is_short = free < enough
        self._found[log_dir.path] = Room(log_dir.path, free, reserve, is_short)
        if is_short != was_short:
            self._replicas.set_short_of_room(log_dir, is_short)
            _tell(self._found[log_dir.path])
        if is_short or reserve == 0:
            return LOOK_MS_MAX
        until_bytes = max(free - reserve, reserve // OVERRUN_PART)
        return max(until_bytes // FAST_BYTES_PER_MS, LOOK_MS_MIN)

    def _reserve_bytes(self, total: int) -> int:
        wanted = self._config().get_int(RESERVE)
        return min(DEFAULT_BYTES_MAX, total // DEFAULT_PART) if wanted < 0 else wanted


def _spaces(log_dirs: list[LogDir]) -> list[Space]:
    """In the pool."""
    return [log_dir.space() for log_dir in log_dirs]


def _tell(room: Room) -> None:
    if room.is_short:
        log.warning(
            "log dir %s has %d bytes left, less than its reserve of %d: produce is refused",
            *room[:3],
        )
    else:
        log.warning("log dir %s has %d bytes left: produce goes on", *room[:2])
