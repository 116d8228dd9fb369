"""The leader's view of one partition: who has how much of the log, and how much is committed.

Owns the followers' log ends, as learned from their fetches, and the high watermark derived from
them. Never moves the watermark back, never counts on a replica outside the maximal in-sync set,
and knows no clock, socket or store. The leader of a single-replica partition runs through the same
rules: its in-sync set is itself.

Invariants, by their names in the reliability notes:
  R5  the watermark never goes back within an epoch
  R7  it never passes the log end of a member of the committed or a proposed in-sync set, nor what
      the leader itself counts of its log: where records count once they are synced, those that are
  R8  it stands still while the committed set is smaller than min.insync.replicas
"""

from __future__ import annotations

from collections.abc import Iterable

UNKNOWN_OFFSET = -1


class Pulse:
    """When a replica last asked for anything: it still has all that it had when it last named a
    partition, which it does only when something about it has changed."""

    __slots__ = ("fetched_ms",)

    def __init__(self, fetched_ms: int) -> None:
        self.fetched_ms = fetched_ms


class Follower:
    """What the leader knows of one other replica, from its fetches in this leader epoch."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetched_ms",
        "is_caught_up",
        "is_member",
        "leader_end",
        "log_end",
        "log_start",
        "pulse",
        "replica",
    )

    def __init__(self, replica: int, caught_up_ms: int) -> None:
        self.replica = replica
        self.log_end = UNKNOWN_OFFSET
        self.log_start = UNKNOWN_OFFSET
        self.broker_epoch = -1
        self.is_member = False
        """Of the committed in-sync set."""
        self.is_caught_up = False
        """At its last fetch it had all that the leader had at the fetch before."""
        self.caught_up_ms = caught_up_ms
        """When it last had everything that the leader had at that moment."""
        self.fetched_ms = caught_up_ms
        self.pulse = Pulse(caught_up_ms)
        self.leader_end = UNKNOWN_OFFSET
        """Where the leader's log ended at its last fetch."""

    def on_fetch(self, offset: int, leader_end: int, now_ms: int) -> None:
        """It asks for `offset`, so it holds everything below (KIP-101)."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
            self.is_caught_up = True
        elif offset >= self.leader_end >= 0:
            # It has all that there was when it asked the last time.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
            self.is_caught_up = True
        else:
            self.is_caught_up = False
        self.log_end = offset
        self.leader_end = leader_end
        self.fetched_ms = now_ms


class LeaderProgress:
    __slots__ = (
        "_awaited",
        "_counted",
        "_has_eligible",
        "_has_enough",
        "_in_sync_min",
        "_is_resting",
        "_leader",
        "_leader_end",
        "_own_end",
        "_proposed",
        "epoch",
        "epoch_start",
        "followers",
        "high_watermark",
        "in_sync",
        "is_alone",
    )

    def __init__(
        self,
        *,
        leader: int,
        epoch: int,
        epoch_start: int,
        high_watermark: int,
        replicas: Iterable[int],
        in_sync: Iterable[int],
        in_sync_min: int,
        own_end: int = UNKNOWN_OFFSET,
        has_eligible: bool = False,
        now_ms: int = 0,
    ) -> None:
        """`own_end`: up to where the leader counts its own log, if that is not all of it."""
        self.epoch = epoch
        self.epoch_start = epoch_start
        self.high_watermark = high_watermark
        self.in_sync = tuple(in_sync)
        self._leader = leader
        self._leader_end = epoch_start
        self._own_end = epoch_start if own_end == UNKNOWN_OFFSET else own_end
        self._proposed: frozenset[int] = frozenset()
        self._awaited: frozenset[int] = frozenset()
        self._in_sync_min = in_sync_min
        self._has_eligible = has_eligible
        self._has_enough = False
        self._is_resting = False
        self.is_alone = False
        # In sync by the store: each has its time before it is found to lag.
        self.followers = {
            replica: Follower(replica, now_ms) for replica in replicas if replica != leader
        }
        self._counted: tuple[Follower, ...] = ()
        self._settle()

    # -- who counts ---------------------------------------------------------------------------

    def on_min_in_sync(self, in_sync_min: int) -> bool:
        """The topic's min.insync.replicas has changed."""
        self._in_sync_min = in_sync_min
        self._settle()
        return self.advance()

    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be taken. The replica count caps the setting, as in Kafka."""
        return self._has_enough

    def on_in_sync_proposed(self, members: Iterable[int]) -> None:
        """Until the store answers, any of the sets may be the true one: count all (KIP-497)."""
        self._proposed = self._proposed.union(members)
        self._settle()

    def on_in_sync_stored(
        self,
        members: Iterable[int],
        replicas: Iterable[int] | None = None,
        now_ms: int = 0,
        *,
        has_eligible: bool = False,
    ) -> bool:
        """The store holds a *newer version* of the set. A mere refusal must not come here (R7)."""
        self.in_sync = tuple(members)
        self._has_eligible = has_eligible
        self._proposed = frozenset()
        if replicas is not None:
            known = self.followers
            self.followers = {
                replica: known.get(replica) or Follower(replica, now_ms)
                for replica in replicas
                if replica != self._leader
            }
        self._settle()
        return self.advance()

    def on_rest(self) -> None:
        """It is not known whether this one leads: nothing is committed until that is settled, and
        then by the rules of that moment (R8)."""
        self._is_resting = True
        self._settle()

    def on_resumed(self, in_sync_min: int, now_ms: int) -> bool:
        """It leads, by what min.insync.replicas is now. Nobody could fetch meanwhile: each member
        has its time again before it lags."""
        self._is_resting = False
        for follower in self.followers.values():
            if follower.is_member:
                follower.caught_up_ms = now_ms
        return self.on_min_in_sync(in_sync_min)

    def on_awaited(self, members: frozenset[int]) -> None:
        """Replicas that are about to join: without this a busy leader would outrun them for ever.
        Counting more of them is always safe."""
        if members != self._awaited:
            self._awaited = members
            self._settle()

    def is_unsettled(self) -> bool:
        """Whether a proposal may still be accepted, as far as is known here."""
        return bool(self._proposed)

    # -- how far they are ---------------------------------------------------------------------

    def on_appended(self, log_end: int, own_end: int = UNKNOWN_OFFSET) -> bool:
        """True if the watermark has moved. `own_end` as at the beginning."""
        end_before, self._leader_end = self._leader_end, log_end
        if own_end == UNKNOWN_OFFSET:
            self._own_end = log_end
        elif own_end > self._own_end:
            self._own_end = own_end
        if self.is_alone:
            # The only member of the set: what it counts is committed. The general rule gives
            # the same answer; this is the produce path of every single-replica topic.
            if self._own_end <= self.high_watermark:
                return False
            self.high_watermark = self._own_end
            return True
        for follower in self._counted:
            if follower.log_end == end_before:
                follower.caught_up_ms = max(follower.caught_up_ms, follower.pulse.fetched_ms)
        return False  # no follower that counts has it yet

    def on_counted(self, own_end: int) -> bool:
        """The leader counts more of its own log, without having more. True if the watermark has
        moved."""
        self._own_end = max(self._own_end, own_end)
        return self.advance()

    def on_follower_fetch(self, follower: Follower, offset: int, now_ms: int) -> bool:
        """`offset` was found to be within this log, and its last epoch to be one of ours."""
        follower.on_fetch(offset, self._leader_end, now_ms)
        if offset <= self.high_watermark:
            return False
        return self.advance()

    def may_join(self, follower: Follower) -> bool:
        """Whether it has what it needs to be proposed for the in-sync set (R6)."""
        return follower.log_end >= self.high_watermark and follower.log_end >= self.epoch_start

    def is_behind(self, follower: Follower, now_ms: int, lag_ms_max: int) -> bool:
        """Whether a member has to leave. One at the log end stays, however long it is idle."""
        if follower.log_end == self._leader_end:
            return False
        return now_ms - follower.caught_up_ms > lag_ms_max

    def lag_max(self) -> int:
        """How far the slowest replica is behind, in offsets."""
        ends = [follower.log_end for follower in self.followers.values()]
        return max((self._leader_end - max(end, 0) for end in ends), default=0)

    def advance(self) -> bool:
        """True if the watermark has moved, as far as every counted replica lets it."""
        if not self._has_enough:
            return False
        reached = self._own_end
        for follower in self._counted:
            # One that has not fetched in this epoch yet may have nothing of it.
            if follower.log_end < reached:  # noqa: PLR1730 (a call costs more on this path)
                reached = follower.log_end
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def _settle(self) -> None:
        in_sync = self.in_sync
        replica_count = len(self.followers) + 1
        # Who is eligible may lead next without a word from here: as long as the store says so
        # nothing is committed, even if min.insync.replicas has been lowered meanwhile.
        self._has_enough = not (self._has_eligible or self._is_resting) and (
            len(in_sync) >= min(self._in_sync_min, replica_count)
        )
        for follower in self.followers.values():
            follower.is_member = follower.replica in in_sync
        counted = self._proposed.union(in_sync, self._awaited)
        self._counted = tuple(
            follower for follower in self.followers.values() if follower.replica in counted
        )
        self.is_alone = counted <= {self._leader} and self._has_enough
