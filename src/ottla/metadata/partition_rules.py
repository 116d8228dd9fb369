"""Every change of a partition's state is made here, whoever asks for it and why.

Elections, deaths, in-sync sets that leaders propose, moves and clean stops all say what they want
of one partition in a `PartitionChange`; `built()` is the state that comes of it. Knows no image
and no store: who may lead and how many must be in sync are told.

What always holds of the result:
  Z2  the leader is -1 or in the in-sync set, which is within the replicas and never empty: the
      last member stays in it when it dies, and so do all when all die at once
  Z3  nobody becomes leader who may not lead (dead, leaving, restarted uncleanly)
  R2  a new leader, or none any more, means a new leader epoch; epochs never go back
  KIP-966: who leaves an in-sync set that is then smaller than the effective min.insync.replicas
      has everything committed, for the watermark stands still below it, and becomes `eligible`;
      once the set is large enough again nobody is. An unclean election makes `eligible` empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from ottla.base.errors import check
from ottla.base.ids import NO_BROKER
from ottla.metadata.image import PartitionState

MayLead = Callable[[int], bool]
NOBODY: frozenset[int] = frozenset()


def effective_min_in_sync(in_sync_min: int, replica_count: int) -> int:
    """`min.insync.replicas`, but never more than there are replicas."""
    return min(in_sync_min, replica_count)


@dataclass(slots=True)
class PartitionChange:
    """What is wanted of one partition.

    A move says so in the `state` it begins with: with the new replicas, and everything else as it
    was. `may_lead` knows the dead and those who stop; it need not know `unknowing`.
    """

    state: PartitionState
    may_lead: MayLead
    in_sync_min: int
    in_sync: tuple[int, ...] | None = None
    """The set that is wanted; None keeps the present one, but for who must leave it."""
    leaving: Collection[int] = NOBODY
    """Who must not stay in sync: the dead, and who stops. The last member stays."""
    unknowing: Collection[int] = NOBODY
    """Who may have lost records: out, not even eligible, unless nobody else knows anything."""
    prefer_first: bool = False
    """Whether the first replica of the list shall lead if it may, whoever leads now."""
    unclean: bool = False
    """Whether somebody may be elected who has not everything that was committed."""
    new_epoch: bool = False
    """Whether the epoch rises even if the leader stays: someone's fetches must not count."""

    def built(self) -> PartitionState:
        """The next state; equal to the present one if there is nothing to change."""
        in_sync, eligible = self._members()
        leader = self._leader_of(in_sync)
        if leader == NO_BROKER:
            leader, in_sync, eligible = self._elected_outside(in_sync, eligible)
        old = self.state
        epoch = old.leader_epoch + (leader != old.leader or self.new_epoch)
        return replace(
            old,
            leader=leader,
            leader_epoch=epoch,
            in_sync=in_sync,
            eligible=eligible,
            last_known=self._last_known(leader, in_sync),
            unclean_epoch=self._unclean_epoch(leader, epoch, in_sync),
        )

    def _unclean_epoch(self, leader: int, epoch: int, in_sync: tuple[int, ...]) -> int:
        """The epoch of an election that may take back what was committed: of this one, or of the
        next, if only those are left for it who may have lost something."""
        old = self.state
        if leader == NO_BROKER:
            doubtful = all(replica in self.unknowing for replica in in_sync)
            return epoch + 1 if doubtful else old.unclean_epoch
        if leader == old.leader:
            return old.unclean_epoch
        knew = leader in (*old.in_sync, *old.eligible) and leader not in self.unknowing
        return old.unclean_epoch if knew else epoch

    def _members(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The in-sync set without those who must leave, and who is eligible beside it."""
        old = self.state
        wanted = old.in_sync if self.in_sync is None else self.in_sync
        wanted = tuple(replica for replica in wanted if replica in old.replicas)
        in_sync = tuple(replica for replica in wanted if not self._must_go(replica))
        if not in_sync:
            in_sync = self._last_members(wanted)
        return in_sync, self._eligible((*old.eligible, *old.in_sync), in_sync)

    def _must_go(self, replica: int) -> bool:
        return replica in self.leaving or replica in self.unknowing

    def _last_members(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Who stays when all must go: all who know, for nobody writes any more without them.

        Where only those are left who may have lost records, the eligible are better, and then the
        leader, who had the most.
        """
        old = self.state
        check(bool(wanted), "an in-sync set is never empty (Z2)")
        knowing = tuple(replica for replica in wanted if replica not in self.unknowing)
        if knowing:
            return knowing
        eligible = tuple(
            replica
            for replica in old.eligible
            if replica in old.replicas and replica not in self.unknowing
        )
        if eligible:
            leader = self._first(replica for replica in old.replicas if replica in eligible)
            return eligible if leader == NO_BROKER else (leader,)
        return (old.leader,) if old.leader in wanted else wanted[:1]

    def _eligible(self, known: Iterable[int], in_sync: tuple[int, ...]) -> tuple[int, ...]:
        if self._is_enough(in_sync):
            return ()
        replicas = self.state.replicas
        return tuple(
            replica
            for replica in dict.fromkeys(known)
            if replica in replicas and replica not in in_sync and replica not in self.unknowing
        )

    def _is_enough(self, in_sync: tuple[int, ...]) -> bool:
        return len(in_sync) >= effective_min_in_sync(self.in_sync_min, len(self.state.replicas))

    def _leader_of(self, in_sync: tuple[int, ...]) -> int:
        old = self.state
        order = (*old.target_replicas(), *old.removing)
        if self.prefer_first and order[0] in in_sync and self.may_lead(order[0]):
            return order[0]
        if old.leader in in_sync and not self._must_go(old.leader):
            # A new epoch is a new election: who came back from the dead knows only of its old one.
            if not self.new_epoch or self.may_lead(old.leader):
                return old.leader
        return self._first(replica for replica in order if replica in in_sync)

    def _elected_outside(
        self, in_sync: tuple[int, ...], eligible: tuple[int, ...]
    ) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Nobody in sync can lead: leader, in-sync set and eligible replicas after all."""
        old = self.state
        leader = self._first(replica for replica in old.replicas if replica in eligible)
        if leader != NO_BROKER:
            return leader, (leader,), self._eligible((*in_sync, *eligible), (leader,))
        if self.unclean:
            known = (replica for replica in old.last_known if replica in old.replicas)
            # Who is only being added may have nothing yet.
            leader = self._first((*known, *old.original_replicas(), *old.replicas))
            if leader != NO_BROKER:
                # What the others have beyond this one is cut off when they follow it.
                return leader, (leader,), ()
        return NO_BROKER, in_sync, eligible

    def _last_known(self, leader: int, in_sync: tuple[int, ...]) -> tuple[int, ...]:
        old = self.state
        if leader == NO_BROKER and old.leader != NO_BROKER:
            return (old.leader,)
        if leader != NO_BROKER and self._is_enough(in_sync):
            return ()
        return old.last_known

    def _first(self, candidates: Iterable[int]) -> int:
        return next((replica for replica in candidates if self.may_lead(replica)), NO_BROKER)
