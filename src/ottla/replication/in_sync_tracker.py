"""Who is to be in the in-sync set of a partition that this broker leads: what to propose, and when.

Owns the one proposal that may be under way, and what is known of earlier ones. Never changes the
set itself: it asks, the store decides, and the newer state comes back as an assignment. Knows no
clock: the time comes with each event.

Invariants:
  R6  who is proposed to join has everything up to the watermark and to the start of this epoch,
      and is the same life of a broker that fetched
  R7  a proposed member is counted until a newer version of the state is seen, whatever the answer
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.replication.effects import InSyncProposal, Outcome
from ottla.replication.leader_progress import Follower, LeaderProgress

MayBeMember = Callable[[int, int], bool]
"""Whether this life (broker id, broker epoch) may be in an in-sync set, by the newest image."""


class InSyncTracker:
    __slots__ = (
        "_joinable",
        "_leader",
        "_partition",
        "_partition_epoch",
        "_progress",
        "_topic",
        "_under_way",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        leader: int,
        progress: LeaderProgress,
        partition_epoch: int,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._leader = leader
        self._progress = progress
        self._partition_epoch = partition_epoch
        self._under_way: InSyncProposal | None = None
        self._joinable: set[int] = set()
        """Outside of the set, caught up a moment ago, and allowed in: the watermark waits."""

    def on_fetch(self, follower: Follower, may_be_member: MayBeMember) -> InSyncProposal | None:
        """After each fetch of a replica that is not in the set, or that has fallen behind it."""
        progress = self._progress
        if follower.is_member:
            if follower.log_end < progress.high_watermark:
                # It had what is committed and has it no more: its disk lost something.
                return self._without({follower.replica})
            return None
        is_allowed = may_be_member(follower.replica, follower.broker_epoch)
        self._await(follower.replica, is_allowed and follower.is_caught_up)
        if not is_allowed or self._under_way is not None or not progress.may_join(follower):
            return None
        return self._propose((*progress.in_sync, follower.replica), (_life_of(follower),))

    def on_check(
        self, now_ms: int, lag_ms_max: int, may_be_member: MayBeMember
    ) -> InSyncProposal | None:
        """From time to time, and when brokers have come or gone: who has not been caught up for too
        long has to leave, and who could not join at its last fetch may do so now."""
        progress = self._progress
        leaving = set()
        joining = []
        for follower in progress.followers.values():
            replica = follower.replica
            if follower.is_member:
                if progress.is_behind(follower, now_ms, lag_ms_max):
                    leaving.add(replica)
                continue
            is_fetching = now_ms - follower.pulse.fetched_ms <= lag_ms_max
            is_allowed = is_fetching and may_be_member(replica, follower.broker_epoch)
            if is_allowed and progress.may_join(follower):
                joining.append(follower)
            elif replica in self._joinable and (
                not is_allowed or progress.is_behind(follower, now_ms, lag_ms_max)
            ):
                self._await(replica, False)
        if self._under_way is not None or not (leaving or joining):
            return None
        members = [one for one in progress.in_sync if one not in leaving]
        members += [follower.replica for follower in joining]
        return self._propose(tuple(members), tuple(_life_of(follower) for follower in joining))

    def on_outcome(self, proposal: InSyncProposal, outcome: Outcome) -> bool:
        """Whether to ask `again` after a while: the state is not known to have changed."""
        if proposal is not self._under_way:
            return False
        if outcome is Outcome.STORED:
            return False  # the newer state is on its way
        self._under_way = None
        return True

    def again(self) -> InSyncProposal | None:
        """A proposal was refused or lost and no newer state was seen since. Another one, of the set
        as it is stored, makes the version grow: then the lost one can't be accepted any more."""
        if self._under_way is not None or not self._progress.is_unsettled():
            return None
        return self._propose(self._progress.in_sync, ())

    def on_newer_state(self, partition_epoch: int) -> None:
        """The progress has been told of its set already."""
        self._partition_epoch = partition_epoch
        self._under_way = None
        self._joinable.intersection_update(self._progress.followers)
        self._joinable.difference_update(self._progress.in_sync)
        self._progress.on_awaited(frozenset(self._joinable))

    def _await(self, replica: int, wanted: bool) -> None:
        if wanted == (replica in self._joinable):
            return
        if wanted:
            self._joinable.add(replica)
        else:
            self._joinable.discard(replica)
        self._progress.on_awaited(frozenset(self._joinable))

    def _without(self, leaving: set[int]) -> InSyncProposal | None:
        if not leaving or self._under_way is not None:
            return None
        in_sync = self._progress.in_sync
        return self._propose(tuple(one for one in in_sync if one not in leaving), ())

    def _propose(
        self, in_sync: tuple[int, ...], joining: tuple[tuple[int, int], ...]
    ) -> InSyncProposal:
        proposal = InSyncProposal(
            self._topic,
            self._partition,
            self._progress.epoch,
            self._partition_epoch,
            in_sync,
            joining,
        )
        self._under_way = proposal
        self._progress.on_in_sync_proposed(in_sync)
        return proposal


def _life_of(follower: Follower) -> tuple[int, int]:
    return follower.replica, follower.broker_epoch
