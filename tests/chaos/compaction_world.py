"""A compacted partition's life over a recording file system, and what must hold after each crash.

`CompactingLife` writes, deletes keys, commits and aborts, flushes, checkpoints, cleans (with the
steps of the swap one by one, appends in between, truncations that cancel it) and restarts. For each
moment it notes all batches that the log holds. `judge` opens what a crash left: it must hold the
batches of the moment before or after the step that was interrupted, up to where the log ends now;
never a mix of both.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from ottla.log.batch_scan import next_offset, scan_batches
from ottla.log.compaction import LogCleaning
from ottla.log.compaction_plan import CleanedGroup, CleaningResult, make_plan
from ottla.log.compaction_swap import Cleaning
from ottla.log.log_dir import LogDir
from ottla.log.markers import read_marker
from ottla.log.open_log import open_log
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_restore import replay_batch
from ottla.log.producer_state import ProducerStates
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_MASK,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
)
from ottla.records.batch_view import records_of
from tests.chaos.crash_world import LOG_DIR, FixedClock, Violation, check_indexes, require
from tests.chaos.memory_files import DiskImage, MemoryFiles
from tests.unit.log.compacting import (
    CONFIG,
    UNPACKED_MAX,
    CompactingWorld,
    Written,
    batches_of,
    limits,
    state_of,
)

KEY = ("topic", 0)
DIRECTORY = f"{LOG_DIR}/topic-0"
LEFTOVERS = (".cleaned", ".swap", ".tmp")


TransactionEnd = tuple[int, int, bool]
"""Offset of the marker, producer, and whether it was an abort."""


@dataclass(frozen=True, slots=True)
class Stored:
    base_offset: int
    next_offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Moment:
    """`batches`: all that the log holds. `flushed`: below it nothing may be lost. `written` and
    `markers`: all that was ever written."""

    batches: tuple[Stored, ...] = ()
    flushed: int = 0
    note: str = "start"
    written: tuple[Written, ...] = ()
    markers: tuple[TransactionEnd, ...] = ()

    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def up_to(self, end: int) -> tuple[Stored, ...]:
        return tuple(one for one in self.batches if one.next_offset <= end)


@dataclass(slots=True)
class Step:
    at: int
    moment: Moment


@dataclass(slots=True)
class Opened:
    log: PartitionLog
    log_dir: LogDir


def open_partition(files: MemoryFiles) -> Opened:
    log_dir = LogDir.open(files, LOG_DIR)
    log_dir.claim(cluster_id="cluster", node_id=1)
    log, report = open_log(
        files,
        DIRECTORY,
        *KEY,
        config=CONFIG,
        recovery_point=log_dir.recovery_points.get(KEY, 0),
        log_start_offset=0,
        clean=log_dir.clean,
        clock=FixedClock(),
        producer_id_expiration_ms=10**12,
        power_lost=log_dir.power_lost,
    )
    require(report.corrupt is None, f"found corrupt: {report.corrupt}")
    require(log_dir.cleaned_offsets is not None, "the checkpoint of the cleaner is damaged")
    log.cleaned_to = (log_dir.cleaned_offsets or {}).get(KEY, -1)
    log.on_high_watermark(log.log_end_offset)
    return Opened(log, log_dir)


@dataclass
class CompactingLife(CompactingWorld):
    """`steps` grows with each action, `files.journal` with each file operation."""

    chance: random.Random = field(default_factory=random.Random)
    steps: list[Step] = field(default_factory=list)
    moment: Moment = field(default_factory=Moment)
    markers: list[TransactionEnd] = field(default_factory=list)
    in_transaction: set[int] = field(default_factory=set)

    def live(self, actions: int) -> None:
        self._start()
        for _ in range(actions):
            action = self.chance.choices(
                (
                    self.write,
                    self.end_one,
                    self.flush_some,
                    self.seal_one,
                    self.clean_some,
                    self.restart,
                    self.pass_time,
                ),
                weights=(40, 10, 12, 12, 14, 4, 6),
            )[0]
            action()

    def _start(self) -> None:
        opened = open_partition(self.files)
        self.log, self.log_dir = opened.log, opened.log_dir
        self.log_dir.begin()
        self._reached("open")

    log_dir: LogDir = field(init=False)

    def _reached(self, note: str, *, again: bool = False, flushed: int = 0) -> None:
        """`again`: the batches have changed other than by an append at the end."""
        batches = self.moment.batches
        if again or not batches or batches[-1].next_offset > self.log.log_end_offset:
            batches = stored_in(self.log)
        elif batches[-1].next_offset < self.log.log_end_offset:
            batches += stored_in(self.log, batches[-1].next_offset)
        flushed = max(self.moment.flushed, flushed)
        self.moment = Moment(
            batches,
            min(flushed, self.log.log_end_offset),
            note,
            tuple(self.written),
            tuple(self.markers),
        )
        self.files.absorb_maps()
        self.steps.append(Step(len(self.files.journal), self.moment))

    # -- actions ------------------------------------------------------------------------------

    def write(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            by = self.chance.choice((-1, -1, 1, 2, 3))
            count = self.chance.randint(1, 4)
            pairs = [(self._key(), self._value()) for _ in range(count)]
            codec = self.chance.choice((0, 0, 0, 1, 3))
            self.put(*pairs, codec=codec, producer_id=by, transactional=by == 3)
            if by == 3:
                self.in_transaction.add(by)
            self._reached("append")

    def _key(self) -> bytes:
        return b"key %d" % self.chance.randint(0, 7)

    def _value(self) -> bytes | None:
        size = self.chance.choice((-1, 5, 40, 200))
        return None if size < 0 else self.chance.randbytes(size)

    def end_one(self) -> None:
        for producer_id in list(self.in_transaction):
            aborted = self.chance.random() < 0.5
            self.markers.append((self.log.log_end_offset, producer_id, aborted))
            self.end(producer_id, aborted=aborted)
            self.in_transaction.discard(producer_id)
            self._reached("marker")

    def flush_some(self) -> None:
        job = self.log.flush_job(sealed_only=self.chance.random() < 0.5)
        if job is not None:
            job.run()
            self.log.flush_done(job)
            self._reached("flush", flushed=job.offset)
        if self.chance.random() < 0.5:
            self.log_dir.write_recovery_points({KEY: self.log.recovery_point})
            self._reached("checkpoint")

    def seal_one(self) -> None:
        self.seal()
        self._reached("seal", flushed=self.log.recovery_point)

    def pass_time(self) -> None:
        self.clock.now_ms += CONFIG.delete_retention_ms

    def restart(self) -> None:
        if self.chance.random() < 0.5:
            self.log.abandon()
        else:
            self.log.close()
            self._reached("close", flushed=self.log.log_end_offset)
            self.log_dir.write_recovery_points({KEY: self.log.recovery_point})
            self.log_dir.mark_clean()
        self._reached("stop")
        self.log_dir.release()
        self._start()

    # -- cleaning, step by step ---------------------------------------------------------------

    def clean_some(self) -> None:
        candidate = self.candidate()
        self._reached("flush", flushed=self.log.recovery_point)
        if candidate is None:
            return
        self.checkpoint_before_cleaning()
        cleaning = Cleaning(self.files)
        self.log.cleaning = cleaning
        within = limits(self.chance.choice((10_000, 10_000, 4)), self.chance.choice((200, 5_000)))
        plan = make_plan(candidate, self.clock.now_ms)
        job = LogCleaning(self.files, plan, within, cleaning)
        while not isinstance(step := job.proceed(self.chance.choice((1, 10**6))), CleaningResult):
            if self.chance.random() < 0.1:
                self.write()
            if isinstance(step, CleanedGroup) and not self._swap_one(cleaning, step):
                break
            if self.chance.random() < 0.02:
                break
        self.log.cleaning = None
        if isinstance(step, CleaningResult):
            self.log.cleaned_to = self.cleaned_to = step.end_offset
            self.log_dir.write_cleaned_offsets({KEY: step.end_offset})
            self._reached("cleaned")
        else:
            job.close()
            self._reached("given up")

    def checkpoint_before_cleaning(self) -> None:
        self.log_dir.write_recovery_points({KEY: self.log.recovery_point})
        self._reached("checkpoint")

    def _swap_one(self, cleaning: Cleaning, group: CleanedGroup) -> bool:
        """False if something came in between."""
        before = self.moment
        cleaning.commit(group.cleaned)
        self.files.sync_dir(DIRECTORY)
        # From here on a restart finds the new one, although the live log still holds the old ones.
        after = replace(before, batches=self._after_restart(group), note="committed")
        self.steps.append(Step(len(self.files.journal), after))
        if self.chance.random() < 0.15:
            return self._cancelled(cleaning, before)
        self.log.put_in_place([one.segment for one in group.sources], group.cleaned)
        cleaning.is_in_place()
        self._reached("in place", again=True)
        self.files.sync_dir(DIRECTORY)
        self._reached("in place and synced")
        if self.chance.random() < 0.7:
            self._remove_deleted()
        return True

    def _after_restart(self, group: CleanedGroup) -> tuple[Stored, ...]:
        first, end = group.sources[0].base_offset, group.sources[-1].end_offset
        path = group.cleaned.path(".log", ".swap")
        if not self.files.exists(path):
            path = group.cleaned.path(".log", ".cleaned")  # a planted bug has not committed it
        file = self.files.open(path)
        cleaned = [
            Stored(header[BASE_OFFSET], next_offset(header), bytes(batch))
            for _, header, batch in scan_batches(file, 0, file.size(), first)
        ]
        below = [one for one in self.moment.batches if one.base_offset < first]
        above = [one for one in self.moment.batches if one.base_offset >= end]
        return (*below, *cleaned, *above)

    def _cancelled(self, cleaning: Cleaning, before: Moment) -> bool:
        """The log is cut above all that is cleaned, which is all a broker ever does."""
        cleaning.cancel()
        self.steps.append(Step(len(self.files.journal), before))
        self.log.truncate_to(self.log.recovery_point)
        self._cut_model(self.log.log_end_offset)
        self.log_dir.write_recovery_points({KEY: self.log.recovery_point})
        self._reached("cancelled", again=True)
        return False

    def _cut_model(self, end: int) -> None:
        self.written = [one for one in self.written if one.offset < end]
        self.markers = [one for one in self.markers if one[0] < end]
        self.in_transaction = set(self.log.producers.open_transactions.values())
        for record in self.written:
            marker = next((one for one in self.markers if ends(one, record)), None)
            record.aborted = marker is not None and marker[2]
            record.transaction = record.producer_id if marker is None else -1
        self.sequences = {
            producer_id: entry.next_sequence
            for producer_id, entry in self.log.producers.entries.items()
        }

    def _remove_deleted(self) -> None:
        for name in self.files.list_dir(DIRECTORY):
            if name.endswith(".deleted"):
                self.files.remove(f"{DIRECTORY}/{name}")
        self._reached("old files removed")


def ends(marker: TransactionEnd, record: Written) -> bool:
    """The first marker of its producer behind a record of a transaction."""
    return record.transactional and marker[1] == record.producer_id and marker[0] > record.offset


def stored_in(log: PartitionLog, first: int = 0) -> tuple[Stored, ...]:
    return tuple(
        Stored(header[0], header[0] + header[6] + 1, batch)
        for header, batch in batches_of(log)
        if header[0] >= first
    )


# -- the judge ------------------------------------------------------------------------------------


def judge(files: MemoryFiles, before: Moment, after: Moment, *, killed: bool) -> Moment:
    """`files` is what a crash left between `before` and `after`; returns which of them it is."""
    opened = open_partition(files)
    log = opened.log
    found = stored_in(log)
    end = log.log_end_offset
    moment = next((one for one in (before, after) if one.up_to(end) == found), None)
    if moment is None:
        offsets = [one.base_offset for one in found]
        raise Violation(f"neither old nor new ({before.note} -> {after.note}): {offsets}")
    floor = min(before.flushed, after.flushed)
    if killed:
        floor = min(before.end(), after.end())
    require(end >= floor, f"ends at {end}, flushed {floor}")
    names = files.list_dir(DIRECTORY)
    require(not [name for name in names if name.endswith(LEFTOVERS)], f"leftovers: {names}")
    check_state(log, moment, end)
    check_indexes(log)
    check_producers(log, moment, end)
    check_stays(files, opened, found)
    return moment


def check_state(log: PartitionLog, moment: Moment, end: int) -> None:
    """A reader of committed records ends with what a dictionary holds."""
    markers = [one for one in moment.markers if one[0] < end]
    expected = state_of(
        (record.key, record.value)
        for record in moment.written
        if record.offset < end and not is_aborted(record, markers)
    )
    aborted = sorted(log.aborted_transactions(0, end), key=lambda one: -one[1])
    skipped: set[int] = set()
    pairs = []
    last = -1
    for header, batch in batches_of(log):
        while aborted and aborted[-1][1] <= header[BASE_OFFSET]:
            skipped.add(aborted.pop()[0])
        if header[ATTRIBUTES] & CONTROL_MASK:
            marker = read_marker(batch)
            if marker is not None and marker.aborted:
                skipped.discard(header[PRODUCER_ID])
            continue
        if header[ATTRIBUTES] & TRANSACTIONAL_MASK and header[PRODUCER_ID] in skipped:
            continue
        for record in records_of(batch, UNPACKED_MAX):
            require(record.offset > last, "offsets go back")
            last = record.offset
            pairs.append((record.key, record.value))
    require(state_of(pairs) == expected, "the state is not the dictionary's")


def is_aborted(record: Written, markers: list[TransactionEnd]) -> bool:
    marker = next((one for one in markers if ends(one, record)), None)
    return marker is not None and marker[2]


def check_producers(log: PartitionLog, moment: Moment, end: int) -> None:
    expected: dict[int, int] = {}
    for record in moment.written:
        if record.producer_id >= 0 and record.offset < end:
            expected[record.producer_id] = record.sequence + 1
    replayed = ProducerStates(10**12)
    for header, batch in batches_of(log):
        replay_batch(replayed, header, batch, 0)
    # By snapshots, if there are any, and by what is left of the batches alone.
    for states in (log.producers, replayed):
        for producer_id, sequence in expected.items():
            entry = states.entries.get(producer_id)
            found = None if entry is None else entry.next_sequence
            require(
                found == sequence,
                f"P1: producer {producer_id} at {found}, wrote up to {sequence}",
            )


def check_stays(files: MemoryFiles, opened: Opened, found: tuple[Stored, ...]) -> None:
    """F16: to open it once more finds the same."""
    opened.log.abandon()
    opened.log_dir.release()
    contents = lasting(files)
    again = open_partition(files)
    require(stored_in(again.log) == found, "second opening: other batches")
    again.log.abandon()
    again.log_dir.release()
    changed = {path for path, _ in lasting(files).items() ^ contents.items()}
    require(not changed, f"second opening: changed {sorted(changed)}")


def lasting(files: MemoryFiles) -> dict[str, bytes]:
    return {
        path: content for path, content in files.contents().items() if not path.endswith(".deleted")
    }


def check_cleans_on(files: MemoryFiles, moment: Moment) -> None:
    """What is left can be cleaned to the end, and still holds the same."""
    opened = open_partition(files)
    end = opened.log.log_end_offset
    world = CompactingWorld(files=files)
    world.log = opened.log
    world.clock.now_ms += 10**9
    world.seal()
    world.clean_all()
    check_state(opened.log, moment, end)
    opened.log.abandon()
    opened.log_dir.release()


# -- all states of a life -------------------------------------------------------------------------


def judge_states(life: CompactingLife, chance: random.Random, count: int) -> int:
    """Draws `count` crash states, and crashes some of them again while they recover."""
    journal = life.files.journal
    moments = sorted(chance.randint(0, len(journal)) for _ in range(count))
    image = DiskImage()
    at = judged = step = 0
    steps = life.steps
    for moment in moments:
        while at < moment:
            image.apply(journal[at])
            at += 1
        while step < len(steps) and steps[step].at <= at:
            step += 1
        before = steps[step - 1].moment if step else Moment()
        after = steps[step].moment if step < len(steps) else before
        judged += judge_crash(image, chance, before, after)
    return judged


def judge_crash(image: DiskImage, chance: random.Random, before: Moment, after: Moment) -> int:
    killed = chance.random() < 0.3
    files = image.after_kill("boot-0") if killed else image.after_power_cut(chance, "boot-1")
    contents = files.contents()
    directories = set(files.directories)
    moment = judge(files, before, after, killed=killed)
    if chance.random() < 0.2:
        check_cleans_on(files, moment)
    if chance.random() > 0.4:
        return 1
    crashed = MemoryFiles(boot="boot-0" if killed else "boot-1", record=True)
    crashed.directories |= directories
    for path, content in contents.items():
        crashed.put(path, content)
    again = DiskImage.of(crashed)
    open_partition(crashed).log.abandon()
    for operation in crashed.journal[: chance.randint(0, len(crashed.journal))]:
        again.apply(operation)
    boot = "boot-0" if killed else "boot-2"
    recrashed = again.after_kill(boot) if killed else again.after_power_cut(chance, boot)
    judge(recrashed, before, after, killed=killed)
    return 2


__all__ = ["CompactingLife", "Violation", "judge_states"]
