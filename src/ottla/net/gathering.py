"""How much of a peer's next requests to wait for, so that several are handled at a time.

A peer that has several requests under way sends the next ones before it has its answers. To be
woken for each of them costs more than to handle it, on both sides (docs/internals/performance.md).
So the kernel is told how many bytes must be there before the loop is woken: as many as have come
at once before, and never more than a few requests.

Who sends less than that is read from all the same, after a tick (`net/patience.py`). If that was a
single request, it has waited for nothing: then the peer is left alone, for longer each time.
"""

from __future__ import annotations

from ottla.base.limits import GATHERED_REQUESTS_MAX, READ_BYTES_MAX

AT_ONCE = 1
"""Bytes to wait for where nothing is gathered: any."""

# So many chances to gather are let pass at most before the next attempt.
_PASSES_MAX = 1023


class Gathering:
    __slots__ = ("_passes", "_passes_next", "bytes_aimed", "bytes_wanted")

    def __init__(self) -> None:
        self.bytes_aimed = 0
        """What usually comes at once; 0 if nothing is to be gathered."""
        self.bytes_wanted = AT_ONCE
        """What to wait for now."""
        self._passes = self._passes_next = 0  # chances that are let pass: now, after this attempt

    def on_read(self, requests: int, received: int) -> None:
        """So many requests were read, and they did not come late."""
        if requests > 1:
            if self.bytes_aimed:
                self._passes_next >>= 1
                if received > self.bytes_aimed:
                    self._aim(requests, received)
            elif self._passes:
                self._passes -= 1
            else:
                self._aim(requests, received)
        self.bytes_wanted = self.bytes_aimed or AT_ONCE

    def on_late(self, requests: int, received: int) -> None:
        """A tick has passed without what was wanted, and this is what was there."""
        if not received:
            self.bytes_wanted = AT_ONCE  # it pauses: what comes first then is not to wait
        elif requests > 1:
            self._aim(requests, received)
            self.bytes_wanted = self.bytes_aimed
        else:
            self.bytes_aimed, self.bytes_wanted = 0, AT_ONCE
            self._passes = self._passes_next
            self._passes_next = min(2 * self._passes_next + 1, _PASSES_MAX)

    def _aim(self, requests: int, received: int) -> None:
        """Half a request less than came: sizes vary, and most requests arrive in one piece."""
        halves = 2 * min(requests, GATHERED_REQUESTS_MAX) - 1
        self.bytes_aimed = min(received * halves // (2 * requests), READ_BYTES_MAX)
