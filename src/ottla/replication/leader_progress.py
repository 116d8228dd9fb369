"""The leader's view of one partition: who has how much of the log, and how much is committed.

Owns the followers' log ends, as learned from their fetches, and the high watermark derived from
them. Never moves the watermark back, never counts on a replica outside the maximal in-sync set,
and knows no clock, socket or store. The leader of a single-replica partition runs through the same
rules: its in-sync set is itself.

Invariants, by their names in the reliability notes:
  R5  the watermark never goes back within an epoch
  R7  it never passes the log end of a member of the committed or the proposed in-sync set
  R8  it stands still while the committed set is smaller than min.insync.replicas
"""

from __future__ import annotations

from collections.abc import Iterable


class LeaderProgress:
    __slots__ = (
        "_epoch_start",
        "_in_sync",
        "_in_sync_min",
        "_leader",
        "_log_ends",
        "_proposed",
        "_replica_count",
        "epoch",
        "high_watermark",
        "is_alone",
    )

    def __init__(
        self,
        *,
        leader: int,
        epoch: int,
        epoch_start: int,
        high_watermark: int,
        in_sync: Iterable[int],
        replica_count: int,
        in_sync_min: int,
    ) -> None:
        self.epoch = epoch
        self.high_watermark = high_watermark
        self._leader = leader
        self._epoch_start = epoch_start
        self._in_sync = frozenset(in_sync)
        self._proposed: frozenset[int] = frozenset()
        self._replica_count = replica_count
        self._in_sync_min = in_sync_min
        self._log_ends: dict[int, int] = {leader: epoch_start}
        self.is_alone = False
        self._settle()

    def on_min_in_sync(self, in_sync_min: int) -> bool:
        """The topic's min.insync.replicas has changed."""
        self._in_sync_min = in_sync_min
        self._settle()
        return self._maybe_advance()

    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be taken. The replica count caps the setting, as in Kafka."""
        return len(self._in_sync) >= min(self._in_sync_min, self._replica_count)

    def on_appended(self, log_end: int) -> bool:
        """True if the watermark has moved."""
        if self.is_alone:
            # The only member of the set: what is appended is committed. The general rule gives
            # the same answer; this is the produce path of every single-replica topic.
            self._log_ends[self._leader] = log_end
            self.high_watermark = log_end
            return True
        self._log_ends[self._leader] = log_end
        return self._maybe_advance()

    def on_follower_fetch(self, replica: int, fetch_offset: int, epoch: int) -> bool:
        """A follower that asks for `fetch_offset` holds everything below it (KIP-101)."""
        if epoch != self.epoch:
            return False  # the caller has answered with a fence; nothing was learned
        self._log_ends[replica] = fetch_offset
        return self._maybe_advance()

    def may_join(self, replica: int) -> bool:
        """Whether `replica` has what it needs to be proposed for the in-sync set (R6)."""
        log_end = self._log_ends.get(replica, -1)
        return log_end >= self.high_watermark and log_end >= self._epoch_start

    def on_in_sync_proposed(self, members: Iterable[int]) -> None:
        """Until the store answers, either set may be the true one: count both (KIP-497)."""
        self._proposed = frozenset(members)
        self._settle()

    def on_in_sync_stored(self, members: Iterable[int]) -> bool:
        """The store holds a *newer version* of the set. A mere refusal must not come here (R7)."""
        self._in_sync = frozenset(members)
        self._proposed = frozenset()
        self._settle()
        return self._maybe_advance()

    def _settle(self) -> None:
        counted = self._in_sync | self._proposed
        self.is_alone = counted == {self._leader} and self.has_enough_in_sync()

    def _maybe_advance(self) -> bool:
        if not self.has_enough_in_sync():
            return False
        # A member that has not fetched in this epoch yet may have nothing of it.
        unknown = min(self.high_watermark, self._epoch_start)
        counted = self._in_sync | self._proposed
        reached = min(self._log_ends.get(member, unknown) for member in counted)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True
