"""Which leader epoch starts at which offset: `leader-epoch-checkpoint`, in memory and as text.

Kept in step with the batches (L3): an entry is assigned by the first batch of an epoch, cut when
the log is truncated and moved up when the log start moves. It writes nothing itself. A flush
writes it before the recovery point moves on; what starts at or above the recovery point is found
again in the batches after a crash, so no append ever waits for this file.
"""

from __future__ import annotations

from bisect import bisect_right

NO_EPOCH = -1
UNDEFINED = (-1, -1)


class EpochCache:
    __slots__ = ("_epochs", "_starts", "latest", "version")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = NO_EPOCH
        self.version = 0
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.version = 0

    def assign(self, epoch: int, start_offset: int) -> None:
        """The batch at `start_offset` is the first of `epoch`; an epoch known already stays.

        An entry that contradicts it, of a later epoch or a later start, is from a log that was
        not this one any more: it goes.
        """
        if epoch < 0 or (epoch == self.latest and self._starts[-1] <= start_offset):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._changed()

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of the batch at `offset`, -1 if unknown."""
        slot = bisect_right(self._starts, offset)
        return self._epochs[slot - 1] if slot else NO_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch at most `epoch` and where it ends (features 6.3, KIP-279)."""
        if epoch < 0 or not self._epochs or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        slot = bisect_right(self._epochs, epoch)
        if slot == 0:
            # Older than all we know: whatever it wrote ends where our first epoch starts.
            return epoch, self._starts[0]
        return self._epochs[slot - 1], self._starts[slot]

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: epochs that start there or later are gone."""
        changed = False
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            changed = True
        if changed:
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts at `start_offset` now: the epoch there starts there, older ones go."""
        slot = bisect_right(self._starts, start_offset) - 1
        if slot < 0 or (slot == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:slot]
        del self._starts[:slot]
        self._starts[0] = start_offset
        self._changed()

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH


def encode(entries: list[tuple[int, int]]) -> bytes:
    """The text of the file: version 0, the number of entries, `epoch start` a line."""
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return ("\n".join(lines) + "\n").encode()


def decode(content: bytes) -> list[tuple[int, int]] | None:
    """The entries in the file; None if it is not such a file, or a torn one."""
    try:
        lines = content.decode("ascii").splitlines()
        if lines[0] != "0":
            return None
        entries = [(int(epoch), int(start)) for epoch, start in map(str.split, lines[2:])]
        if len(entries) != int(lines[1]):
            return None
    except (ValueError, IndexError):
        return None
    return entries if all(min(entry) >= 0 for entry in entries) else None
