"""One replica of one partition on this broker: its role, its log, its watermark, and who waits.

Decides whether a request may be served here (leader, epoch, disk), learns from the fetches of its
followers or from the answers of its leader, and tells who waits that there is more. It appends to
its log, which reaches the disk through its own port; it knows no clock and no socket. A partition
whose log dir has failed keeps its place with `log` None.

A broken invariant takes this replica offline with an alarm, and nothing else (L5, R1, R2, R5, R11).
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence

from ottla.base.errors import ProtocolError
from ottla.base.ports import Buffer
from ottla.log.log_config import LONG_MAX, LogConfig
from ottla.log.partition_log import Appended, PartitionLog
from ottla.protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    UNKNOWN_LEADER_EPOCH,
)
from ottla.records.batch_header import Header
from ottla.records.validation import ProduceRules
from ottla.replication.counted import counted_end
from ottla.replication.effects import Assignment, InSyncProposal, Outcome
from ottla.replication.in_sync_tracker import InSyncTracker, MayBeMember
from ottla.replication.leader_progress import LeaderProgress, Pulse
from ottla.replication.produce_rules import rules_of
from ottla.replication.waiting import CommitWaiter, LogStartWaiter, Reader, Waiter

NO_LEADER = -1


def _no_alarm(partition: Partition, reason: str) -> None:
    """Nobody listens: the partition is offline all the same."""


class Partition:
    __slots__ = (
        "_commits",
        "_log_start_waiters",
        "_progress",
        "_readers",
        "_resting",
        "_rules",
        "_rules_config",
        "_tracker",
        "_unannounced_bytes",
        "_waiters",
        "broken",
        "epoch_start_offset",
        "has_eligible",
        "high_watermark",
        "in_sync",
        "is_gone",
        "is_leader",
        "is_short_of_room",
        "leader_epoch",
        "leader_id",
        "leader_watermark",
        "log",
        "log_dir",
        "on_alarm",
        "partition",
        "partition_epoch",
        "replicas",
        "times_led",
        "topic",
        "topic_id",
        "unclean_epoch",
    )

    def __init__(self, topic: str, partition: int, topic_id: uuid.UUID, log_dir: str) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.log_dir = log_dir
        self.log: PartitionLog | None = None
        self.is_leader = False
        self.is_gone = False
        """The topic was deleted, or the replica has moved elsewhere."""
        self.is_short_of_room = False
        """What is left of the disk is for others than producers; for the caller to set."""
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.in_sync: tuple[int, ...] = ()
        self.unclean_epoch = -1
        self.has_eligible = False
        self.high_watermark = 0
        self.leader_watermark = 0
        """Of a follower: how far its leader is, by its last answer."""
        self.epoch_start_offset = 0
        self.broken: str | None = None
        """Which invariant did not hold, once one did not."""
        self.on_alarm: Callable[[Partition, str], None] = _no_alarm
        self._progress: LeaderProgress | None = None
        self._tracker: InSyncTracker | None = None
        self._resting: tuple[LeaderProgress, InSyncTracker] | None = None
        """What it knew as the leader, while it is not known whether it still is."""
        self.times_led = 0
        """Who stands on what it did as the leader has to begin anew each time, as it was deaf and
        mute in between."""
        self._waiters: dict[Waiter, None] = {}
        self._commits: deque[CommitWaiter] = deque()
        self._log_start_waiters: dict[LogStartWaiter, None] = {}
        self._readers: tuple[Reader, ...] = ()
        self._unannounced_bytes = 0
        self._rules: ProduceRules | None = None
        self._rules_config: LogConfig | None = None

    # -- role -------------------------------------------------------------------------------

    def assume(self, broker_id: int, assigned: Assignment, now_ms: int) -> bool:
        """Do what the newest state says. True if there is another leader or epoch: then whoever
        copies this replica, or copies from it, has to look again."""
        if self.broken is not None:
            return False
        if assigned.leader_epoch < self.leader_epoch or (
            assigned.leader_epoch == self.leader_epoch
            and assigned.partition_epoch < self.partition_epoch
        ):
            self.alarm(f"R2: told of {assigned} after epoch {self.leader_epoch}")
            return True
        if assigned.leader_epoch == self.leader_epoch:
            if assigned.leader != self.leader_id:
                self.alarm(f"R1: {assigned} has a second leader beside {self.leader_id}")
                return True
            self._update(assigned, now_ms)
            return False
        was_leader = self.is_leader
        self._note(assigned)
        self.leader_id = assigned.leader
        self.leader_epoch = assigned.leader_epoch
        self.is_leader = False
        self._progress = self._tracker = self._resting = None
        if assigned.leader == broker_id and self.log is not None:
            self._lead(broker_id, self.log, now_ms)
        if not (was_leader and self.is_leader):
            self._release_waiters()
        self._tell_readers()
        return True

    def _note(self, assigned: Assignment) -> None:
        self.partition_epoch = assigned.partition_epoch
        self.replicas = assigned.replicas
        self.in_sync = assigned.in_sync
        self.has_eligible = bool(assigned.eligible)
        self.unclean_epoch = assigned.unclean_epoch

    def _update(self, assigned: Assignment, now_ms: int) -> None:
        if assigned.partition_epoch == self.partition_epoch:
            return
        self._note(assigned)
        progress, tracker = self._resting or (self._progress, self._tracker)
        if progress is None or tracker is None:
            return
        moved = progress.on_in_sync_stored(
            assigned.in_sync, assigned.replicas, now_ms, has_eligible=self.has_eligible
        )
        tracker.on_newer_state(assigned.partition_epoch)
        if moved:
            self._progress_made(self._unannounced_bytes)

    def _lead(self, broker_id: int, log: PartitionLog, now_ms: int) -> None:
        """Lead from the present log end on. The watermark keeps its local value (KIP-101)."""
        self.is_leader = True
        self.times_led += 1
        self.epoch_start_offset = log.log_end_offset
        self._unannounced_bytes = 0
        self.high_watermark = max(self.high_watermark, log.log_start_offset)
        # A log that was just read knows of no watermark: it may never move again.
        log.on_high_watermark(self.high_watermark)
        self._progress = LeaderProgress(
            leader=broker_id,
            epoch=self.leader_epoch,
            epoch_start=log.log_end_offset,
            high_watermark=self.high_watermark,
            replicas=self.replicas,
            in_sync=self.in_sync,
            in_sync_min=log.config.min_insync_replicas,
            own_end=counted_end(log),
            has_eligible=self.has_eligible,
            now_ms=now_ms,
        )
        self._tracker = InSyncTracker(
            self.topic, self.partition, broker_id, self._progress, self.partition_epoch
        )
        if self._progress.advance():
            self._progress_made(0)

    def step_down(self, epoch: int) -> bool:
        """Another replica speaks of a newer epoch: whoever leads in it, this one is over. True if
        it led until now: then the store has to be asked, for if it knows of no such epoch, nobody
        else would ever lead (`resume`)."""
        if not self.is_leader or epoch <= self.leader_epoch:
            return False
        self.is_leader = False
        if self._progress is not None and self._tracker is not None:
            self._resting = self._progress, self._tracker
            self._progress.on_rest()
        self._progress = self._tracker = None
        self._release_waiters()
        self._tell_readers()
        return True

    def is_in_doubt(self) -> bool:
        """Whether it has stepped down, and no newer state has come."""
        return self._resting is not None

    def resume(self, now_ms: int) -> InSyncProposal | None:
        """The store was asked after it stepped down, and still has it as the leader in its epoch:
        nobody has led in a newer one, so what is known of the followers holds, and so does what was
        proposed (R7). Returns what is to be asked of the store, if a proposal was lost meanwhile.
        """
        log, resting = self.log, self._resting
        if log is None or resting is None:
            return None
        self._resting = None
        self._progress, self._tracker = progress, tracker = resting
        self.is_leader = True
        self.times_led += 1
        if progress.on_resumed(log.config.min_insync_replicas, now_ms):
            self._progress_made(self._unannounced_bytes)
        self._tell_readers()
        return tracker.again()

    def go_offline(self) -> None:
        """The disk under the log has failed. Who waits gets an answer, not a time-out."""
        self.log = None
        self._progress = self._tracker = self._resting = None
        self._release_waiters()
        self._tell_readers()

    def go_away(self) -> None:
        """The topic was deleted, or the replica moved elsewhere."""
        self.is_gone = True
        self.is_leader = False
        self.leader_id = NO_LEADER
        self._progress = self._tracker = self._resting = None
        self._release_waiters()
        self._tell_readers()

    def alarm(self, reason: str) -> None:
        """An invariant does not hold: nothing of this replica is to be trusted any more."""
        self.broken = reason
        self.on_alarm(self, reason)
        self.go_offline()

    def on_config_changed(self) -> None:
        progress = self._progress if self._resting is None else self._resting[0]
        if progress is not None and self.log is not None:
            if progress.on_min_in_sync(self.log.config.min_insync_replicas):
                self._progress_made(self._unannounced_bytes)

    def check_leader(self, current_leader_epoch: int) -> int:
        """The error code owed to a request that only the leader may answer (KIP-320)."""
        code = self._check_epoch(current_leader_epoch)
        if code == NONE and not self.is_leader:
            return NOT_LEADER_OR_FOLLOWER
        return code

    def check_replica(self, current_leader_epoch: int) -> int:
        """As `check_leader`, for what a follower may answer too (KIP-392). One that follows nobody
        knows nothing of what is committed."""
        code = self._check_epoch(current_leader_epoch)
        if code == NONE and self.leader_id == NO_LEADER:
            return NOT_LEADER_OR_FOLLOWER
        return code

    def _check_epoch(self, current_leader_epoch: int) -> int:
        if self.log is None:
            # Who was in the pool meanwhile is to look for the topic, not for a failed disk.
            return NOT_LEADER_OR_FOLLOWER if self.is_gone else KAFKA_STORAGE_ERROR
        if current_leader_epoch not in (-1, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                return FENCED_LEADER_EPOCH
            return UNKNOWN_LEADER_EPOCH
        return NONE

    # -- writes of a leader -----------------------------------------------------------------

    def rules_at_once(self, acks: int) -> ProduceRules | None:
        """What a batch is checked against that would be stored and acknowledged without waiting;
        None if it would not be."""
        log = self.log
        progress = self._progress
        if log is None or progress is None or self.is_short_of_room:
            return None
        config = log.config
        if config.flush_messages != LONG_MAX:
            return None
        if acks != 1 and not (acks == -1 and progress.is_alone):
            return None
        return self._rules if config is self._rules_config else self.produce_rules(True)

    def rules_with_others(self) -> ProduceRules | None:
        """As `rules_at_once`, of a batch that waits for nothing but the other replicas."""
        log = self.log
        progress = self._progress
        if log is None or progress is None or self.is_short_of_room:
            return None
        config = log.config
        if config.flush_messages != LONG_MAX or not progress.has_enough_in_sync():
            return None
        return self._rules if config is self._rules_config else self.produce_rules(True)

    def commits_at_once(self) -> bool:
        """Whether what is appended here is committed by that, and no flush is waited for."""
        log, progress = self.log, self._progress
        return (
            log is not None
            and progress is not None
            and progress.is_alone
            and log.config.flush_messages == LONG_MAX
        )

    def is_alone_in_sync(self) -> bool:
        """Whether what this leader counts of its log is committed by that."""
        return self._progress is not None and self._progress.is_alone

    def has_enough_in_sync(self) -> bool:
        return self._progress is not None and self._progress.has_enough_in_sync()

    def produce_rules(self, zstd_allowed: bool) -> ProduceRules:
        """What a produced batch is checked against; made anew only when the settings change."""
        config = self.log.config if self.log is not None else LogConfig()
        if self._rules is None or config is not self._rules_config:
            self._rules = rules_of(config, True)
            self._rules_config = config
        return self._rules if zstd_allowed else rules_of(config, False)

    def has_led_since(self, times_led: int) -> bool:
        """Whether nobody else can have led since `times_led` was read: then nothing that was
        appended has been taken out again."""
        return self.is_leader and self.times_led == times_led

    def append(
        self, batch: Buffer, header: Header, now_ms: int, *, from_client: bool = True
    ) -> Appended:
        """Append one validated batch as the leader. Errors are ProtocolError or StorageError.

        `from_client=False` is for coordinators: their batches have no sequences, and a marker is
        one of them."""
        log = self.log
        progress = self._progress
        if log is None or progress is None:
            raise ProtocolError(self.check_leader(-1) or NOT_LEADER_OR_FOLLOWER)
        appended = log.append(
            batch, header, self.leader_epoch, now_ms=now_ms, from_client=from_client
        )
        if not appended.duplicate:
            self._unannounced_bytes += len(batch)
            if progress.on_appended(log.log_end_offset, counted_end(log)):
                self._progress_made(self._unannounced_bytes)
            for reader in self._readers:
                reader.on_news()
        return appended

    def append_run(
        self, batches: Sequence[memoryview], headers: Sequence[Header], now_ms: int
    ) -> list[Appended]:
        """As `append`, for the first of several batches of a client: as many as can be stored at
        once, perhaps none."""
        log = self.log
        progress = self._progress
        if log is None or progress is None:
            return []
        before = log.size
        stored = log.append_run(batches, headers, self.leader_epoch, now_ms)
        if stored:
            self._unannounced_bytes += log.size - before
            if progress.on_appended(log.log_end_offset, counted_end(log)):
                self._progress_made(self._unannounced_bytes)
            for reader in self._readers:
                for _ in stored:  # they count what is new, batch by batch
                    reader.on_news()
        return stored

    def on_flushed(self) -> None:
        """More of its log is on the disk than before."""
        progress = self._progress if self._resting is None else self._resting[0]
        if progress is not None and self.log is not None:
            if progress.on_counted(counted_end(self.log)):
                self._progress_made(self._unannounced_bytes)

    def delete_records_before(self, offset: int) -> int:
        """DeleteRecords: -1 means up to the high watermark. Returns the new log start."""
        log = self.log
        if log is None:
            raise ProtocolError(KAFKA_STORAGE_ERROR)
        if log.config.cleanup_policy == {"compact"}:
            raise ProtocolError(
                POLICY_VIOLATION,
                "Records of a compacted topic can not be deleted before an offset.",
            )
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise ProtocolError(OFFSET_OUT_OF_RANGE, f"{target} is not within the log")
        if target > log.log_start_offset:
            log.advance_log_start(target)
            self._tell_readers()
        return log.log_start_offset

    # -- followers of a leader --------------------------------------------------------------

    def on_follower_fetch(
        self,
        replica: int,
        broker_epoch: int,
        offset: int,
        log_start: int,
        pulse: Pulse,
        may_be_member: MayBeMember,
    ) -> InSyncProposal | None:
        """A replica holds everything below `offset`, which was compared with this log. Returns what
        is to be asked of the store, if the in-sync set should change."""
        progress, tracker = self._progress, self._tracker
        if progress is None or tracker is None:
            return None
        follower = progress.followers.get(replica)
        if follower is None:
            return None
        follower.broker_epoch = broker_epoch
        follower.pulse = pulse
        if log_start != follower.log_start:
            follower.log_start = log_start
            for waiter in list(self._log_start_waiters):
                waiter.on_log_start(self)
        if progress.on_follower_fetch(follower, offset, pulse.fetched_ms):
            self._progress_made(self._unannounced_bytes)
        if follower.is_member and offset >= self.high_watermark:
            return None
        return tracker.on_fetch(follower, may_be_member)

    def has_follower(self, replica: int) -> bool:
        return self._progress is not None and replica in self._progress.followers

    def in_sync_followers(self) -> list[tuple[int, int, int]]:
        """Replica, log start and log end of each follower in the in-sync set."""
        if self._progress is None:
            return []
        return [
            (follower.replica, follower.log_start, follower.log_end)
            for follower in self._progress.followers.values()
            if follower.is_member
        ]

    def check_in_sync(
        self, now_ms: int, lag_ms_max: int, may_be_member: MayBeMember
    ) -> InSyncProposal | None:
        """Every half of replica.lag.time.max.ms, and when brokers have come or gone."""
        if self._tracker is None or self._progress is None:
            return None
        proposal = self._tracker.on_check(now_ms, lag_ms_max, may_be_member)
        if self._progress.advance():  # perhaps somebody is not waited for any more
            self._progress_made(self._unannounced_bytes)
        return proposal

    def on_proposal_outcome(self, proposal: InSyncProposal, outcome: Outcome) -> bool:
        """Whether to call `propose_again` after a while."""
        tracker = self._tracker if self._resting is None else self._resting[1]
        return tracker is not None and tracker.on_outcome(proposal, outcome)

    def propose_again(self) -> InSyncProposal | None:
        return None if self._tracker is None else self._tracker.again()

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The lowest log start of the replicas that live: what is deleted everywhere."""
        if self.log is None:
            return -1
        starts = [self.log.log_start_offset]
        if self._progress is not None:
            followers = self._progress.followers.values()
            starts += [one.log_start for one in followers if is_alive(one.replica)]
        return min(starts)

    def lag(self) -> int:
        """As a follower: offsets below the leader's watermark, as last told, that are to come."""
        return 0 if self.log is None else max(self.leader_watermark - self.log.log_end_offset, 0)

    def lag_max(self) -> int:
        return 0 if self._progress is None else self._progress.lag_max()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch at most `epoch` and where it ends; (-1, -1) if that is not known.

        The log knows epochs by their batches; the leader's own begins before its first batch. A
        follower knows no others than those that have come."""
        log = self.log
        if log is None:
            return -1, -1
        latest_written = log.leader_epochs.latest
        if epoch <= latest_written or epoch > self.leader_epoch or not self.is_leader:
            return log.end_offset_for_epoch(epoch)
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        last_before = epoch if latest_written < 0 else latest_written
        return last_before, self.epoch_start_offset

    # -- reads ------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Read_committed readers see nothing at or above this.

        Records of an open transaction may have been deleted: there is nothing to read below the
        start of the log, and whoever asks for the end must not be sent there.
        """
        log = self.log
        if log is None:
            return self.high_watermark
        unstable = log.first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return max(unstable, log.log_start_offset)

    def add_waiter(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)

    def add_commit_waiter(self, waiter: CommitWaiter) -> None:
        """In the order of their offsets, which is the order of appends."""
        self._commits.append(waiter)

    def remove_commit_waiter(self, waiter: CommitWaiter) -> None:
        if waiter in self._commits:
            self._commits.remove(waiter)

    def add_log_start_waiter(self, waiter: LogStartWaiter) -> None:
        self._log_start_waiters[waiter] = None

    def remove_log_start_waiter(self, waiter: LogStartWaiter) -> None:
        self._log_start_waiters.pop(waiter, None)

    def add_reader(self, reader: Reader) -> None:
        self._readers = (*self._readers, reader)

    def remove_reader(self, reader: Reader) -> None:
        self._readers = tuple(one for one in self._readers if one is not reader)

    def on_watermark(self, reached: int) -> None:
        """Of a follower, whose leader says so; whoever reads here may read on."""
        log = self.log
        if log is None:
            return
        self.high_watermark = reached
        log.on_high_watermark(reached)
        for waiter in list(self._waiters):
            waiter.on_progress(self, 0)

    def _progress_made(self, new_bytes: int) -> None:
        progress, log = self._progress, self.log
        if progress is None or log is None:
            return
        reached = progress.high_watermark
        if reached < self.high_watermark or reached > log.log_end_offset:
            self.alarm(
                f"L5/R5: watermark {reached} after {self.high_watermark}, "
                f"log end {log.log_end_offset}"
            )
            return
        self._unannounced_bytes = 0
        self.high_watermark = reached
        log.on_high_watermark(reached)
        for reader in self._readers:
            reader.on_watermark()
        commits = self._commits
        while commits and commits[0].last_offset < reached:
            commits.popleft().on_committed(self)
        if self._waiters:
            for waiter in list(self._waiters):
                waiter.on_progress(self, new_bytes)

    def _tell_readers(self) -> None:
        for reader in self._readers:
            reader.on_news()

    def _release_waiters(self) -> None:
        waiters, self._waiters = self._waiters, {}
        commits, self._commits = self._commits, deque()
        deletions, self._log_start_waiters = self._log_start_waiters, {}
        for deletion in deletions:
            deletion.on_gone(self)
        for commit in commits:
            commit.on_gone(self)
        for waiter in waiters:
            waiter.on_gone(self)
