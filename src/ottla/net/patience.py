"""Ends the wait of peers whose requests are gathered, when what was waited for does not come.

One timer for all of them, and only while there are any: who was not read from between two ticks is
read from now. So nobody waits for longer than two ticks, and who keeps sending costs no timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Gathered(Protocol):
    """A peer whose requests are gathered."""

    reads: int
    """How often something was read from it."""

    def is_gathered(self) -> bool:
        """Whether more than the first byte is waited for."""

    def read_late(self) -> None: ...


class Patience:
    def __init__(
        self, call_later: Callable[[float, Callable[[], None]], object], tick_s: float
    ) -> None:
        self._call_later = call_later
        self._tick_s = tick_s
        self._is_ticking = False
        self._watched: dict[Gathered, int] = {}  # with the reads that the last tick knew of

    def watch(self, peer: Gathered) -> None:
        self._watched.setdefault(peer, peer.reads)
        if not self._is_ticking:
            self._is_ticking = True
            self._call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        watched = self._watched
        for peer, reads in list(watched.items()):
            if peer.reads == reads and peer.is_gathered():
                peer.read_late()
            if peer.is_gathered():
                watched[peer] = peer.reads
            else:
                del watched[peer]
        self._is_ticking = bool(watched)
        if watched:
            self._call_later(self._tick_s, self._tick)
