"""Reading as a member of a group: what is committed when, and so what a crash loses or repeats.

`before`: commit a portion of records, then show it. A crash in between loses what was not shown
yet; nothing is ever shown twice (at most once).
`after`: show a portion, then commit it. A crash in between shows it again; nothing is ever skipped
(at least once).
`manual`: show, and commit only after every `--commit-every` records, if at all; not at the end.

A portion is what came at once. With `--commit-every` it is no more than so many, and what is shown
first is committed by exactly so many. Records count as shown when they have left this process. At
the end of a partition the commit goes behind what no reader gets to see (aborted records, markers):
else a group that has read everything would lag for ever. A clean end (a signal, `--max-records`,
the end of the partitions) shows what is committed already, commits what is shown (but for
`manual`), and leaves the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, Protocol

from ottla.base.ids import TopicPartition
from ottla.cli.failure import Failure
from ottla.cli.group_model import CommitOvertaken
from ottla.cli.model import EndReached, ReceivedRecord
from ottla.cli.output import check_somebody_reads, note
from ottla.cli.pace import keep_pace
from ottla.cli.record_format import RecordFormat

READ_TIMEOUT_S = 0.25
RECORDS_AT_ONCE_MAX = 1_000


class Commit(StrEnum):
    before = "before"
    after = "after"
    manual = "manual"


@dataclass(slots=True)
class Consumption:
    """`ends`: where each partition ends for us; None follows them for ever."""

    commit: Commit = Commit.after
    commit_every: int | None = None
    max_records: int | None = None
    ends: Mapping[TopicPartition, int] | None = None
    verbose: bool = False
    rate: float | None = None


class Reader(Protocol):
    """What is asked of `GroupReader`."""

    @property
    def connection_lost(self) -> str | None: ...

    def read(self, timeout_s: float, records_max: int) -> list[ReceivedRecord | EndReached]: ...
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None: ...


def names_of(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions) or "nothing"


class Ownership:
    """Which partitions are ours, and which of them have more to show. Hears what the group says."""

    def __init__(self, consumption: Consumption) -> None:
        self.owned: set[TopicPartition] = set()
        self.before_handover: Callable[[list[TopicPartition]], None] = lambda partitions: None
        self.after_handover: Callable[[list[TopicPartition]], None] = lambda partitions: None
        self._ends = consumption.ends
        self._ended: set[TopicPartition] = set()
        self._verbose = consumption.verbose

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        # A member that keeps what it has is assigned nothing, which is no news.
        if partitions or not self.owned:
            self._tell(f"assigned {names_of(partitions)}")
        self.owned.update(partitions)
        self._ended.difference_update(partitions)

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        self.before_handover(partitions)
        if partitions:
            self._tell(f"revoked {names_of(partitions)}")
        self._drop(partitions)

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        self._tell(f"lost {names_of(partitions)}")
        self._drop(partitions)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        self.after_handover(partitions)
        self.owned.difference_update(partitions)

    def _tell(self, line: str) -> None:
        if self._verbose:
            note(line)

    def is_done(self) -> bool:
        """Never when following. A member that has no partition waits until it gets one."""
        return self._ends is not None and bool(self.owned) and self.owned <= self._ended

    def on_end(self, partition: TopicPartition) -> None:
        self._ended.add(partition)

    def behind_all(self, end: EndReached) -> int:
        """The offset behind all that was shown or can not be: of what came later nothing was."""
        if self._ends is None:
            return end.offset
        return min(end.offset, self._ends.get(end.partition, 0))

    def wants(self, record: ReceivedRecord) -> bool:
        """Whether it lies before the end; takes note of the last one."""
        partition = (record.topic, record.partition)
        if self._ends is None:
            return True
        # A partition that was added meanwhile has no end to wait for.
        end = self._ends.get(partition, 0)
        if record.offset >= end - 1:
            self._ended.add(partition)
        return record.offset < end


class GroupConsuming:
    def __init__(
        self,
        reader: Reader,
        ownership: Ownership,
        write: RecordFormat,
        target: BinaryIO,
        consumption: Consumption,
    ) -> None:
        self.stopping = False
        self._reader = reader
        self._ownership = ownership
        self._write = write
        self._target = target
        self._consumption = consumption
        self._wait: Callable[[], None] | None = None
        if consumption.rate is not None:
            self._wait = keep_pace(consumption.rate, lambda: self.stopping)
        self._left = consumption.max_records
        self._uncommitted: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._shown_since_commit = 0
        self._told_of_loss = False
        if consumption.commit is Commit.after:
            ownership.before_handover = self._commit_before_handover
        ownership.after_handover = self._forget

    def run(self) -> None:
        """Until everything is shown, or until `stopping` is set."""
        while not self.stopping and self._left != 0 and not self._ownership.is_done():
            records = []
            ends = []
            events = self._reader.read(READ_TIMEOUT_S, self._records_max())
            if not events:
                check_somebody_reads(self._target)
            for event in events:
                if isinstance(event, EndReached):
                    self._ownership.on_end(event.partition)
                    ends.append(event)
                elif self._ownership.wants(event):
                    records.append(event)
            if self._show_portion(records) and ends:
                self._pass(ends)
            self._watch_connection()
        if self._consumption.commit is Commit.after:
            self._commit_shown()

    def _records_max(self) -> int:
        """How many may be read now, so that a portion is no larger than it should be."""
        limit = RECORDS_AT_ONCE_MAX
        every = self._consumption.commit_every
        if every is not None:
            limit = min(limit, every - self._shown_since_commit)
        return limit if self._left is None else min(limit, self._left)

    def _show_portion(self, records: list[ReceivedRecord]) -> bool:
        """Whether all of it was shown."""
        if not records:
            return True
        if self._consumption.commit is Commit.before:
            if not self._commit_first(records):
                return False
            return self._show(records)
        is_whole = self._show(records)
        every = self._consumption.commit_every
        if every is None:
            is_due = self._consumption.commit is Commit.after
        else:
            is_due = self._shown_since_commit >= every
        if is_due:
            self._commit_shown()
        return is_whole

    def _pass(self, ends: list[EndReached]) -> None:
        """Everything before these ends is shown, or nobody will ever be shown it."""
        if self._consumption.commit is Commit.manual:
            return
        for end in ends:
            offset = self._ownership.behind_all(end)
            if offset > self._committed.get(end.partition, 0):
                self._uncommitted[end.partition] = offset
        if self._consumption.commit is Commit.before or self._consumption.commit_every is None:
            self._commit_shown()

    def _show(self, records: list[ReceivedRecord]) -> bool:
        must_show_all = self._consumption.commit is Commit.before
        is_whole = True
        for record in records:
            if self._wait is not None and not self.stopping:
                self._target.flush()
                self._wait()
            if self.stopping and not must_show_all:
                is_whole = False
                break
            self._target.write(self._write(record))
            self._uncommitted[record.topic, record.partition] = record.offset + 1
            self._shown_since_commit += 1
            if self._left is not None:
                self._left -= 1
        # Only what has left this process is shown: a commit must not overtake it.
        self._target.flush()
        if must_show_all:
            self._uncommitted.clear()
            self._shown_since_commit = 0
        return is_whole

    # ------------------------------------------------------------------------------ commits

    def _commit_first(self, records: list[ReceivedRecord]) -> bool:
        offsets: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        for record in records:
            partition = (record.topic, record.partition)
            starts.setdefault(partition, record.offset)
            offsets[partition] = record.offset + 1
        try:
            self._reader.commit(offsets)
        except CommitOvertaken as cause:
            # Not committed, so it must not be shown either: whoever owns them reads them again.
            self._tell_overtaken(cause)
            self._reader.rewind(starts)
            return False
        self._taken(offsets)
        return True

    def _commit_shown(self) -> None:
        if not self._uncommitted:
            return
        try:
            self._reader.commit(self._uncommitted)
        except CommitOvertaken as cause:
            # What is still ours goes with the next commit; what is not, its owner shows again.
            self._tell_overtaken(cause)
        else:
            self._taken(self._uncommitted)
            self._uncommitted = {}
        self._shown_since_commit = 0

    def _commit_before_handover(self, partitions: list[TopicPartition]) -> None:
        if any(partition in self._uncommitted for partition in partitions):
            self._commit_shown()

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._uncommitted.pop(partition, None)
            self._committed.pop(partition, None)

    def _taken(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed.update(offsets)
        if self._consumption.verbose:
            places = (f"{one[0]}-{one[1]}@{offset}" for one, offset in sorted(offsets.items()))
            note(f"committed {', '.join(places)}")

    def _tell_overtaken(self, cause: CommitOvertaken) -> None:
        if self._consumption.verbose:
            note(f"not committed: {cause}")

    def _watch_connection(self) -> None:
        lost = self._reader.connection_lost
        if lost is None:
            self._told_of_loss = False
        elif self._consumption.ends is not None:
            raise Failure(f"the connection was lost before the end: {lost}")
        elif not self._told_of_loss:
            self._told_of_loss = True
            note(f"ottla: the connection is lost ({lost}); waiting for it to come back")
