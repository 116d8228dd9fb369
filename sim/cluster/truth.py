"""What must hold, looked at after every event, in the logs and in the store as they truly are.

For each replica there is a copy of what its log says (the epoch and the checksum of each record;
every batch here has one), kept up to date from the log's own bytes; for each partition the list of
what was ever committed. Names are those of the reliability notes:

  L1 L3  offsets without gaps, epochs that do not go back
  L5     log start <= watermark <= log end
  L6     a killed process loses nothing that it wrote
  R1 R2  one leader for an epoch; nobody acts on less than what it has seen
  R3     every member of the stored in-sync set has all that any leader holds for committed
  R4 R5  what was committed, and what was acknowledged, stays
  R6     who joins has the watermark and the start of the epoch, in the life that caught up
  R7 R8  no watermark beyond a member, nor while there are too few
  R9     equal epoch and offset, equal bytes
  P1     a batch of an idempotent producer is stored once
  Z1-Z3  how the store is written, see `states`

Only an election that is recorded as unclean may take back what was committed.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ottla.log.partition_log import PartitionLog
from ottla.records.batch_header import HEADER
from ottla.replication.partition import Partition
from sim.cluster.states import State, States, Violation

if TYPE_CHECKING:
    from sim.cluster.broker import Broker, Life
    from sim.cluster.process import Process
    from sim.cluster.world import World

Key = tuple[uuid.UUID, int]
Entry = tuple[int, int]
"""Leader epoch and checksum of one record."""
READ_BYTES = 1 << 20


class Copy:
    """What the log of one replica says."""

    __slots__ = ("entries", "is_doubtful", "log", "lost_epoch", "may_be_short", "version")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.log: PartitionLog | None = None
        self.is_doubtful = False
        """Since a power cut that may have taken what was not synced, until it has all again."""
        self.lost_epoch = -1
        """Its broker's, in the last life of which a power cut may have taken what was not synced: a
        leader that was paused may hear only later what that life had fetched, and counts it."""
        self.may_be_short = False
        """Since a power cut: what was not yet synced, and told to nobody, may be missing."""
        self.version = -1
        """Of the newest state of its partition that its broker has acted on with this log."""


class Led:
    """One replica in the role of the leader of one epoch."""

    __slots__ = ("epoch", "watermark")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.watermark = -1


class Truth:
    def __init__(self, world: World) -> None:
        self._world = world
        self.states = States(world.ensemble, self._on_state, self._on_removed)
        self.copies: dict[tuple[int, Key], Copy] = {}
        self.committed: dict[Key, list[Entry]] = {}
        self._removed: dict[tuple[int, Key], int] = {}
        """Replicas that were moved away, and in which version of their partition's state."""
        self._bytes: dict[tuple[Key, int, int], int] = {}
        """Checksums by epoch and offset, wherever they were first seen."""
        self._leaders: dict[tuple[Key, int], tuple[int, int]] = {}
        self._led: dict[Partition, Led] = {}
        self._seen: dict[Partition, Copy] = {}
        self._stored: set[tuple[Key, int]] = set()
        self.acked = 0
        self.lost_cleanly = 0
        """Committed records that a recorded unclean election took."""

    # -- after each event -------------------------------------------------------------------

    def look(self, process: Process | None) -> None:
        if process is None:
            return
        broker = self._world.brokers[process.broker_id]
        life = broker.life
        if life is None or broker.process is not process:
            return
        for partition in life.replicas._partitions.values():
            log = partition.log
            if log is None:
                if partition.broken is not None:
                    raise Violation(f"alarm at broker {broker.broker_id}: {partition.broken}")
                continue
            end = log.log_end_offset
            copy = self._seen.get(partition)
            if copy is None or copy.log is not log:
                copy = self._seen[partition] = self._copy_of(broker, partition, log)
            copy.version = max(copy.version, partition.partition_epoch)
            if end != len(copy.entries):
                self._read(broker, partition, log, copy)
            if not log.log_start_offset <= partition.high_watermark <= end:
                raise Violation(
                    f"L5: {self._name(broker, partition)}: watermark {partition.high_watermark} "
                    f"is not in [{log.log_start_offset}, {end}]"
                )
            if partition._progress is not None:
                self._look_at_leader(broker, life, partition, copy)

    def _copy_of(self, broker: Broker, partition: Partition, log: PartitionLog) -> Copy:
        key = (partition.topic_id, partition.partition)
        place = (broker.broker_id, key)
        copy = self.copies.get(place)
        if copy is None:
            copy = self.copies[place] = Copy()
        if copy.log is not log:
            # Another life, another log: everything is read again.
            before, copy.entries = copy.entries, []
            copy.log = log
            self._read(broker, partition, log, copy)
            if copy.may_be_short:
                before = before[: len(copy.entries)]
                self._check_member(broker.broker_id, key, copy, "has lost its power")
            may_differ = copy.is_doubtful or copy.version < self._removed.get(place, -1)
            copy.may_be_short = False
            copy.version = partition.partition_epoch
            if not may_differ and copy.entries != before:
                raise Violation(
                    f"L6: {self._name(broker, partition)} had {len(before)} records "
                    f"and comes back with {len(copy.entries)}"
                )
            self._check_doubt(key, copy)
        return copy

    def _check_doubt(self, key: Key, copy: Copy) -> None:
        if copy.is_doubtful and not copy.may_be_short:
            committed = self.committed.get(key, [])
            copy.is_doubtful = copy.entries[: len(committed)] != committed

    def _read(self, broker: Broker, partition: Partition, log: PartitionLog, copy: Copy) -> None:
        entries, key = copy.entries, (partition.topic_id, partition.partition)
        end = log.log_end_offset
        if end < len(entries):
            del entries[end:]
            self._check_member(broker.broker_id, key, copy, "was cut")
            return
        latest = entries[-1][0] if entries else -1
        at = len(entries)
        first = at
        while at < end:
            read = log.read(at, READ_BYTES, end)
            if read is None:
                raise Violation(f"L1: {self._name(broker, partition)} has nothing at {at}")
            content = read.file.read_at(read.position, read.size)
            position = 0
            while position < len(content):
                header = HEADER.unpack_from(content, position)
                if header[0] != at or header[6] != 0:
                    raise Violation(f"L1: {self._name(broker, partition)}: {header[0]} at {at}")
                epoch, checksum = header[2], header[4]
                if epoch < latest:
                    raise Violation(
                        f"L3: {self._name(broker, partition)}: epoch {epoch} after {latest}"
                    )
                latest = epoch
                if self._bytes.setdefault((key, epoch, at), checksum) != checksum:
                    raise Violation(
                        f"R9: {self._name(broker, partition)}: other bytes at {at} of epoch {epoch}"
                    )
                entries.append((epoch, checksum))
                at += 1
                position += 12 + header[1]
        if log.leader_epochs.latest != latest:
            raise Violation(
                f"L3: {self._name(broker, partition)}: the cache ends with epoch "
                f"{log.leader_epochs.latest}, the log with {latest}"
            )
        self._check_appended(broker.broker_id, key, copy, first)

    def _check_appended(self, broker_id: int, key: Key, copy: Copy, first: int) -> None:
        if copy.is_doubtful:
            self._check_doubt(key, copy)
            return
        state = self.states.by_key.get(key)
        if state is None or broker_id not in state.in_sync:
            return
        committed = self.committed.get(key, [])
        if first < len(committed) and copy.entries[first : len(committed)] != committed[first:]:
            raise Violation(f"R3: broker {broker_id} in sync appends other than committed: {key}")

    def _check_member(self, broker_id: int, key: Key, copy: Copy, what: str) -> None:
        state = self.states.by_key.get(key)
        committed = self.committed.get(key, ())
        if state is None or broker_id not in state.in_sync or copy.is_doubtful:
            return
        if len(copy.entries) < len(committed):
            raise Violation(
                f"R3: broker {broker_id}, in sync, {what}: it has {len(copy.entries)} records of "
                f"{len(committed)} that are committed, in {state}"
            )

    # -- leaders ----------------------------------------------------------------------------

    def _look_at_leader(self, broker: Broker, life: Life, partition: Partition, copy: Copy) -> None:
        led = self._led.get(partition)
        if led is None or led.epoch != partition.leader_epoch:
            led = self._led[partition] = Led(partition.leader_epoch)
            self._begins_to_lead(broker, partition, copy)
        watermark = partition.high_watermark
        if watermark == led.watermark:
            return
        if watermark < led.watermark:
            raise Violation(
                f"R5: {self._name(broker, partition)}: watermark {watermark} after {led.watermark}"
            )
        # What it knew before it was elected uncleanly was committed by others.
        is_from_before = led.watermark < 0 and partition.unclean_epoch >= led.epoch - 1
        led.watermark = watermark
        self._commits(broker, partition, copy, is_from_before)

    def _begins_to_lead(self, broker: Broker, partition: Partition, copy: Copy) -> None:
        key = (partition.topic_id, partition.partition)
        me = (broker.broker_id, broker.lives)
        place = (key, partition.leader_epoch)
        other = self._leaders.setdefault(place, me)
        if other != me:
            raise Violation(f"R1: epoch {partition.leader_epoch} of {key} is led by {other}, {me}")
        state = self.states.by_key.get(key)
        if state is not None and partition.leader_epoch > state.leader_epoch:
            raise Violation(f"R2: {self._name(broker, partition)} is ahead of the store")
        if state is None or partition.leader_epoch < max(state.unclean_epoch, state.leader_epoch):
            return
        committed = self.committed.get(key, [])
        if copy.entries[: len(committed)] != committed:
            raise Violation(
                f"R4: {self._name(broker, partition)} leads epoch {partition.leader_epoch} with "
                f"{len(copy.entries)} records, not all of {len(committed)} that are committed"
            )

    def _commits(
        self, broker: Broker, partition: Partition, copy: Copy, is_from_before: bool
    ) -> None:
        """The leader holds everything below its watermark for committed."""
        key = (partition.topic_id, partition.partition)
        state = self.states.by_key.get(key)
        if state is None or partition.leader_epoch < state.unclean_epoch:
            return
        watermark = partition.high_watermark
        committed = self.committed.setdefault(key, [])
        known = len(committed)
        if copy.entries[: min(known, watermark)] != committed[:watermark]:
            raise Violation(f"R5: {self._name(broker, partition)} holds other than committed")
        if watermark <= known:
            return
        assert partition.log is not None
        enough = min(partition.log.config.min_insync_replicas, len(partition.replicas))
        if len(partition.in_sync) < enough and not is_from_before:
            raise Violation(
                f"R8: {self._name(broker, partition)} commits with {partition.in_sync} of {enough}"
            )
        for entry in copy.entries[known:watermark]:
            if (key, entry[1]) in self._stored:
                raise Violation(f"P1: {self._name(broker, partition)} commits a record twice")
            self._stored.add((key, entry[1]))
            committed.append(entry)
        progress = partition._progress
        proposed = () if progress is None else progress._proposed
        followers = {} if progress is None else progress.followers
        for member in sorted({*state.in_sync, *proposed}):
            theirs = self.copies.get((member, key))
            counted = followers[member].broker_epoch if member in followers else -1
            if theirs is None or not (theirs.is_doubtful or 0 <= counted <= theirs.lost_epoch):
                self._check_has(member, theirs, key, known, watermark)

    def _check_has(
        self, member: int, copy: Copy | None, key: Key, known: int, watermark: int
    ) -> None:
        entries = [] if copy is None else copy.entries
        if entries[known:watermark] != self.committed[key][known:watermark]:
            raise Violation(
                f"R3/R7: {watermark} records are committed, member {member} has {len(entries)}; "
                f"{self.states.by_key[key]}"
            )

    # -- the store --------------------------------------------------------------------------

    def _on_state(self, key: Key, old: State | None, new: State) -> None:
        """A newer state of a partition is in the store."""
        committed = self.committed.setdefault(key, [])
        self._world.note(f"{key} {new}")
        if old is None:
            return
        if new.leader >= 0 and old.leader_epoch < new.unclean_epoch <= new.leader_epoch:
            self._give_up(key, new)
            return
        for member in new.in_sync:
            if member in old.in_sync and not (member == new.leader != old.leader):
                continue
            copy = self.copies.get((member, key))
            # Without a leader the set only says who is waited for: the store may not have heard yet
            # that the power was lost there, too.
            is_joining = member not in old.in_sync and new.leader >= 0
            if copy is not None and copy.is_doubtful and is_joining:
                self._check_doubt(key, copy)
                if copy.is_doubtful and not copy.may_be_short:
                    raise Violation(f"R6: member {member} joins {new} and lost records")
            entries = [] if copy is None else copy.entries
            if copy is not None and copy.is_doubtful:
                continue
            if entries[: len(committed)] != committed:
                raise Violation(
                    f"R6: {member} becomes a member or leader with {len(entries)} records, "
                    f"{len(committed)} are committed; {old} -> {new}"
                )
            if new.leader == old.leader and new.leader_epoch == old.leader_epoch:
                self._check_epoch_start(key, member, new, len(entries))

    def _check_epoch_start(self, key: Key, member: int, state: State, end: int) -> None:
        broker = self._world.brokers.get(state.leader)
        if broker is None or broker.life is None or broker.process is None:
            return
        for partition in broker.life.replicas._partitions.values():
            if (partition.topic_id, partition.partition) == key and partition.is_leader:
                if partition.leader_epoch != state.leader_epoch:
                    return
                if end < partition.epoch_start_offset:
                    raise Violation(
                        f"R6: {member} joins with {end} records, the epoch begins at "
                        f"{partition.epoch_start_offset}"
                    )

    def _give_up(self, key: Key, state: State) -> None:
        """An unclean election: what the new leader has not is not promised any more."""
        committed = self.committed[key]
        place = (state.leader, key)
        copy = self.copies.get(place)
        entries = [] if copy is None else copy.entries
        if copy is not None and copy.version < self._removed.get(place, -1):
            entries = []  # moved away and back while it was down: it may begin with nothing
        common = 0
        for mine, theirs in zip(committed, entries, strict=False):
            if mine != theirs:
                break
            common += 1
        self.lost_cleanly += len(committed) - common
        for _, checksum in committed[common:]:
            self._stored.discard((key, checksum))
        del committed[common:]

    def _on_removed(self, key: Key, replica: int) -> None:
        """It is moved away, and may begin with nothing if it comes back. Its broker may not even
        have begun to copy: it hears of its part in this, and of its end, when it does."""
        state = self.states.by_key.get(key)
        self._removed[replica, key] = -1 if state is None else state.version + 1

    def on_power_cut(self, broker_id: int, *, is_flushed: bool) -> None:
        life = self._world.brokers[broker_id].life
        known = None if life is None else life.metadata.image.brokers.get(broker_id)
        for (replica, _), copy in self.copies.items():
            if replica == broker_id:
                copy.may_be_short = True
                if not is_flushed:
                    copy.is_doubtful = True
                    copy.lost_epoch = copy.lost_epoch if known is None else known.epoch

    # -- the end ----------------------------------------------------------------------------

    def check_end(self) -> None:
        """At rest: every log is the same, is what was committed, and knows its epochs."""
        for topic in self.states.topics.values():
            for index, replicas in topic.replicas.items():
                key = (topic.topic_id, index)
                for replica in replicas:
                    self._check_at_rest(replica, key, self.copies[replica, key])

    def _check_at_rest(self, replica: int, key: Key, copy: Copy) -> None:
        if copy.entries != self.committed[key]:
            raise Violation(f"R9: broker {replica} has not what was committed: {key}")
        starts: list[tuple[int, int]] = []
        for offset, (epoch, _) in enumerate(copy.entries):
            if not starts or starts[-1][0] != epoch:
                starts.append((epoch, offset))
        assert copy.log is not None
        known = [(epoch, start) for epoch, start in copy.log.leader_epochs.entries()]
        if known != starts:
            raise Violation(f"L3: broker {replica} knows the epochs {known}, its log {starts}")

    # -- clients ----------------------------------------------------------------------------

    def on_acked(
        self, topic_id: uuid.UUID, index: int, epoch: int, offset: int, checksum: int
    ) -> None:
        key = (topic_id, index)
        state = self.states.by_key.get(key)
        if state is None or epoch < state.unclean_epoch:
            return
        committed = self.committed.get(key, [])
        if offset >= len(committed) or committed[offset][1] != checksum:
            raise Violation(f"R4: offset {offset} of {key} was acknowledged, and is not committed")
        self.acked += 1
        self._world.note(f"{key} {offset} acked")

    def _name(self, broker: Broker, partition: Partition) -> str:
        return f"broker {broker.broker_id}, {partition.topic}-{partition.partition}"
