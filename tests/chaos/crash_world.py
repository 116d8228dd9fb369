"""A small broker's life over a recording file system, and what must be true after each crash.

`Workload` drives the real log room as the broker does: appends by several producers, some of them
transactional, rolls, flushes with appends in between, checkpoints, retention, deleted records,
truncations, clean restarts. Beside it a model keeps, for every moment, what was written in which
order and what of it had been promised to be on the disk.

`judge` opens what a crash left and compares: invariants L1 to L6 and P1 of reliability.md.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from ottla.log import batch_scan
from ottla.log.epoch_cache import EpochCache
from ottla.log.load_report import LoadReport
from ottla.log.log_config import LogConfig
from ottla.log.log_dir import LogDir
from ottla.log.open_log import open_log
from ottla.log.partition_log import DeletedSegment, PartitionLog
from ottla.log.producer_restore import replay_batch
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import LEADER_EPOCH, MAX_TIMESTAMP, PRODUCER_ID, read_header
from tests.chaos.memory_files import DiskImage, MemoryFiles

LOG_DIR = "/data"
TOPIC = "crash"
KEY = (TOPIC, 0)
EXPIRATION_MS = 10**12
CONFIG = LogConfig(
    segment_bytes=1400,
    index_interval_bytes=200,
    segment_index_bytes=8 * 1024,
    retention_bytes=2600,
    retention_ms=-1,
)


class FixedClock:
    def monotonic_ms(self) -> int:
        return 1_000

    def wall_ms(self) -> int:
        return 1_000_000


@dataclass(frozen=True, slots=True)
class StoredBatch:
    base_offset: int
    next_offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Moment:
    """What is true between two steps of the workload.

    `history`: all batches since the log began, or since a truncation, deleted ones included.
    `flushed`: below it nothing may be lost. `log_start`: what a reader sees; `promised_start`: what
    a restart may not go below, since a checkpoint of it was written.
    """

    history: tuple[StoredBatch, ...] = ()
    flushed: int = 0
    log_start: int = 0
    promised_start: int = 0
    note: str = "start"

    def end(self) -> int:
        return self.history[-1].next_offset if self.history else 0


@dataclass(slots=True)
class Step:
    """The journal's length when a moment was reached."""

    at: int
    moment: Moment


class Violation(AssertionError):
    """An invariant does not hold in a state that a crash may leave."""


@dataclass(slots=True)
class Opened:
    log: PartitionLog
    report: LoadReport
    log_dir: LogDir


def open_partition(files: MemoryFiles) -> Opened:
    """As a broker does at its start."""
    log_dir = LogDir.open(files, LOG_DIR)
    log_dir.claim(cluster_id="cluster", node_id=1)
    log, report = open_log(
        files,
        log_dir.directory_of(*KEY),
        *KEY,
        config=CONFIG,
        recovery_point=log_dir.recovery_points.get(KEY, 0),
        log_start_offset=log_dir.log_start_offsets.get(KEY, 0),
        clean=log_dir.clean,
        clock=FixedClock(),
        producer_id_expiration_ms=EXPIRATION_MS,
        power_lost=log_dir.power_lost,
    )
    return Opened(log, report, log_dir)


def abort_marker(producer_id: int, aborted: bool, timestamp_ms: int) -> bytes:
    key = (0).to_bytes(2, "big") + (0 if aborted else 1).to_bytes(2, "big")
    value = (0).to_bytes(2, "big") + (1).to_bytes(4, "big")
    return build_batch(
        [RecordToWrite(timestamp_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


USUAL = (40, 14, 4, 4, 4, 3, 2, 5)
MANY_TRUNCATIONS = (40, 30, 1, 1, 16, 1, 1, 5)
"""How often to append, flush, retain, delete, truncate, restart, be killed, start an epoch."""


@dataclass
class Workload:
    """One run. `steps` grows with each action, `files.journal` with each file operation."""

    chance: random.Random
    files: MemoryFiles = field(default_factory=lambda: MemoryFiles(record=True))
    weights: tuple[int, ...] = USUAL
    steps: list[Step] = field(default_factory=list)
    moment: Moment = field(default_factory=Moment)
    epoch: int = 0
    timestamp_ms: int = 1_000
    open_transactions: set[int] = field(default_factory=set)

    def run(self, actions: int) -> None:
        self._open()
        for _ in range(actions):
            action = self.chance.choices(
                (
                    self.append_some,
                    self.flush,
                    self.retain,
                    self.delete_records,
                    self.truncate,
                    self.restart_cleanly,
                    self.restart_killed,
                    self.new_epoch,
                ),
                weights=self.weights,
            )[0]
            action()

    def _open(self) -> None:
        opened = open_partition(self.files)
        assert opened.report.corrupt is None, opened.report.corrupt
        self.log = opened.log
        self.log_dir = opened.log_dir
        self.log_dir.begin()
        self.log.on_high_watermark(self.log.log_end_offset)
        self._reached("open")

    def _reached(self, note: str, **changes: object) -> None:
        self.moment = replace(self.moment, note=note, **changes)  # type: ignore[arg-type]
        self.files.absorb_maps()
        self.steps.append(Step(len(self.files.journal), self.moment))

    # -- actions ------------------------------------------------------------------------------

    def append_some(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self._append_one()

    def _append_one(self) -> None:
        producer_id = self.chance.choice((-1, -1, 1, 2, 3))
        transactional = producer_id == 3
        if producer_id in self.open_transactions and self.chance.random() < 0.4:
            self._end_transaction(producer_id)
            return
        self.timestamp_ms += self.chance.randint(-3, 10)
        count = self.chance.randint(1, 3)
        records = [RecordToWrite(self.timestamp_ms, None, self._value()) for _ in range(count)]
        entry = self.log.producers.entries.get(producer_id)
        sequence = 0 if entry is None else max(0, entry.next_sequence)
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
        if transactional:
            self.open_transactions.add(producer_id)
        self._write(batch)

    def _value(self) -> bytes:
        size = self.chance.choice((5, 40, 200, 400))
        if self.chance.random() < 0.15:
            return bytes(size)
        return self.chance.randbytes(size)

    def _end_transaction(self, producer_id: int) -> None:
        self.open_transactions.discard(producer_id)
        aborted = self.chance.random() < 0.7
        self._write(abort_marker(producer_id, aborted, self.timestamp_ms), from_client=False)

    def _write(self, batch: bytes, from_client: bool = True) -> None:
        buffer = bytearray(batch)
        appended = self.log.append(
            buffer, read_header(batch), self.epoch, now_ms=1_000_000, from_client=from_client
        )
        assert not appended.duplicate
        stored = StoredBatch(appended.base_offset, appended.last_offset + 1, bytes(buffer))
        self._reached("append", history=(*self.moment.history, stored))

    def flush(self) -> None:
        job = self.log.flush_job(sealed_only=self.chance.random() < 0.3)
        if job is None:
            return
        job.run()
        if self.chance.random() < 0.5:
            self._append_one()
        self.log.flush_done(job)
        self._reached("flush", flushed=max(self.moment.flushed, job.offset))
        if self.chance.random() < 0.8:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self.log_dir.write_recovery_points({KEY: self.log.recovery_point})
        self._reached("checkpoint")

    def _checkpoint_start(self) -> None:
        self.log_dir.write_log_start_offsets({KEY: self.log.log_start_offset})
        self._reached("log start", promised_start=self.log.log_start_offset)

    def retain(self) -> None:
        expired = self.log.apply_retention(1_000_000, self.log.log_end_offset)
        self._reached("retention", log_start=self.log.log_start_offset)
        if expired and self.chance.random() < 0.9:
            self._checkpoint_start()
            self._remove(self.log.delete_below(self.log.log_start_offset))

    def _remove(self, deleted: list[DeletedSegment]) -> None:
        """Later, and not always: the broker may be gone before."""
        for path in [path for segment in deleted for path in segment.paths]:
            if self.chance.random() < 0.8:
                self.files.remove(path)

    def delete_records(self) -> None:
        low, high = self.log.log_start_offset, self.log.log_end_offset
        if low == high:
            return
        self.log.advance_log_start(self.chance.randint(low, min(high, low + 5)))
        self._reached("delete records", log_start=self.log.log_start_offset)
        if self.chance.random() < 0.7:
            self._checkpoint_start()

    def truncate(self) -> None:
        low, high = self.log.log_start_offset, self.log.log_end_offset
        candidates = [one.base_offset for one in self.moment.history if low < one.base_offset]
        if not candidates or low == high:
            return
        target = self.chance.choice(candidates[-6:])
        self.log.truncate_to(target)
        history = tuple(one for one in self.moment.history if one.base_offset < target)
        self._reached("truncate", history=history, flushed=min(self.moment.flushed, target))
        self._checkpoint()
        self.epoch += 1
        self._forget_beyond(history)

    def _forget_beyond(self, history: tuple[StoredBatch, ...]) -> None:
        """A transaction that began behind the end has never begun."""
        self.open_transactions = set(replayed(history).open_transactions.values())

    def new_epoch(self) -> None:
        self.epoch += 1

    def restart_cleanly(self) -> None:
        self.log.close()
        end = self.log.log_end_offset
        self._reached("close", flushed=end)
        self.log_dir.write_recovery_points({KEY: self.log.recovery_point})
        self.log_dir.write_log_start_offsets({KEY: self.log.log_start_offset})
        self._reached("checkpoints", promised_start=self.log.log_start_offset)
        self.log_dir.mark_clean()
        self._reached("marked clean")
        self.log_dir.release()
        self._open()

    def restart_killed(self) -> None:
        self.log.abandon()
        self.log_dir.release()
        self._open()


# -- the judge ------------------------------------------------------------------------------------


def replayed(batches: tuple[StoredBatch, ...]) -> ProducerStates:
    states = ProducerStates(EXPIRATION_MS)
    for batch in batches:
        replay_batch(states, read_header(batch.content), batch.content, 0)
    return states


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Violation(message)


def judge(files: MemoryFiles, before: Moment, after: Moment, *, killed: bool) -> None:
    """`files` is what a crash left between `before` and `after`."""
    opened = open_partition(files)
    log, report = opened.log, opened.report
    require(report.corrupt is None, f"found corrupt: {report.corrupt}")
    batches = read_back(log)
    history = common_history(batches, log, before, after)
    check_bounds(log, before, after, killed=killed)
    check_epochs(log, batches)
    check_indexes(log)
    check_producers(log, history)
    check_stays(files, opened)


def check_bounds(log: PartitionLog, before: Moment, after: Moment, *, killed: bool) -> None:
    """L5 and L6: it starts and ends where it may, by what was promised."""
    floor = min(before.flushed, after.flushed)
    if killed:
        floor = min(before.end(), after.end())
    require(log.log_end_offset >= floor, f"L6: ends at {log.log_end_offset}, flushed {floor}")
    promised = min(before.promised_start, after.promised_start)
    require(log.log_start_offset >= promised, f"log start {log.log_start_offset} < {promised}")
    latest_start = max(before.log_start, after.log_start)
    require(log.log_start_offset <= latest_start, f"log start {log.log_start_offset} is too late")
    require(log.log_start_offset <= log.log_end_offset, "L5: log start behind the end")


def read_back(log: PartitionLog) -> list[StoredBatch]:
    """Everything a consumer would read; L1 and L2 hold for it."""
    found: list[StoredBatch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1000, log.log_end_offset)
        require(part is not None, f"L1: nothing at offset {offset}")
        assert part is not None
        end = part.position + part.size
        checked = part.position
        for position, header, content in batch_scan.scan_batches(part.file, checked, end, 0):
            following = batch_scan.next_offset(header)
            require(header[0] <= offset < following, f"L1: {header[0]} where {offset} is due")
            found.append(StoredBatch(header[0], following, bytes(content)))
            offset = following
            checked = position + len(content)
        require(checked == end, f"L2: a broken batch at offset {offset}")
    return found


def common_history(
    batches: list[StoredBatch], log: PartitionLog, before: Moment, after: Moment
) -> tuple[StoredBatch, ...]:
    """L6: the log is one piece of one history, which must be that before or after the step."""
    for moment in (before, after):
        history = tuple(one for one in moment.history if one.next_offset <= log.log_end_offset)
        visible = [one for one in history if one.next_offset > log.log_start_offset]
        if visible == batches:
            return history
    raise Violation(
        f"L6: no part of what was written ({before.note} -> {after.note}): "
        f"offsets {[one.base_offset for one in batches]}"
    )


def check_epochs(log: PartitionLog, batches: list[StoredBatch]) -> None:
    """L3: never decreasing, and the cache says what the batches say."""
    derived = EpochCache()
    start = log.log_start_offset
    last = -1
    for batch in batches:
        epoch = read_header(batch.content)[LEADER_EPOCH]
        require(epoch >= last, "L3: epochs go back")
        last = epoch
        if batch.next_offset > start:
            derived.assign(epoch, max(batch.base_offset, start))
    # Of a log without records the epoch of the last one may still be known.
    known = [entry for entry in log.leader_epochs.entries() if entry[1] < log.log_end_offset]
    require(
        known == derived.entries(),
        f"L3: cache {log.leader_epochs.entries()}, batches {derived.entries()}",
    )


def check_indexes(log: PartitionLog) -> None:
    """L4: each entry is a batch with that last offset, and entries are where they are due."""
    for segment in log._segments.items:
        file = segment.open_file()
        starts = {
            position: batch_scan.next_offset(header) - 1
            for position, header in batch_scan.scan_headers(file, 0, segment.size, 0)
        }
        index = segment.offset_index
        entries = [index.entry(slot) for slot in range(index.entries)]
        for offset, position in entries:
            require(starts.get(position) == offset, f"L4: entry ({offset}, {position}) is wrong")
        expected: list[tuple[int, int]] = []
        for position, offset in starts.items():
            if position - (expected[-1][1] if expected else 0) > CONFIG.index_interval_bytes:
                expected.append((offset, position))
        require(entries == expected, f"L4: {entries}, made anew {expected}")
        check_time_index(segment, segment is log._segments.items[-1])


def check_time_index(segment: Segment, is_active: bool) -> None:
    """L4: an entry is the largest timestamp up to its offset; the last one that of the segment."""
    file = segment.open_file()
    index = segment.time_index
    index.open()
    largest: dict[int, int] = {}
    timestamp = -1
    for _, header in batch_scan.scan_headers(file, 0, segment.size, 0):
        timestamp = max(timestamp, header[MAX_TIMESTAMP])
        largest[batch_scan.next_offset(header) - 1] = timestamp
    for slot in range(index.entries):
        entry = index.entry(slot)
        require(largest.get(entry[1]) == entry[0], f"L4: time {entry} of {largest}")
    if not is_active:
        require(index.last_timestamp == timestamp, f"L4: latest {timestamp} is not indexed")


def check_producers(log: PartitionLog, history: tuple[StoredBatch, ...]) -> None:
    """P1: what the log knows of a producer is what its batches say; nobody is invented, and nobody
    is forgotten whose last batch is still there."""
    expected = replayed(history)
    start = log.log_start_offset
    for producer_id, entry in log.producers.entries.items():
        known = expected.entries.get(producer_id)
        require(known is not None, f"P1: producer {producer_id} never wrote")
        assert known is not None
        found = (entry.epoch, entry.next_sequence, entry.last_offset())
        wanted = (known.epoch, known.next_sequence, known.last_offset())
        # Of one whose batches were deleted a marker may be all that is left.
        only_marker = not entry.batches and known.last_offset() < start
        require(
            found == wanted or only_marker, f"P1: producer {producer_id} {found}, wrote {wanted}"
        )
    for producer_id, known in expected.entries.items():
        if known.last_offset() >= start:
            require(producer_id in log.producers.entries, f"P1: producer {producer_id} forgotten")
    check_transactions(
        list(log.producers.open_transactions.items()),
        list(expected.open_transactions.items()),
        start,
        "open",
    )
    check_aborted(log, history)


def check_aborted(log: PartitionLog, history: tuple[StoredBatch, ...]) -> None:
    states = ProducerStates(EXPIRATION_MS)
    expected = []
    for batch in history:
        header = read_header(batch.content)
        completed = replay_batch(states, header, batch.content, 0)
        if completed is None or completed.last_offset < log.log_start_offset:
            continue
        if completed.aborted:
            expected.append((completed.first_offset, header[PRODUCER_ID]))
    found = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    check_transactions(
        [(first, by) for by, first in found], expected, log.log_start_offset, "aborted"
    )


def check_transactions(
    found: list[tuple[int, int]], expected: list[tuple[int, int]], start: int, kind: str
) -> None:
    """(first offset, producer id). One that began below the log start may have lost its beginning
    with the records there, or be gone with them; it has never begun earlier than it did."""
    message = f"{kind} transactions {found}, {expected} were, log start {start}"
    for first, by in expected:
        if first >= start:
            require((first, by) in found, message)
    for first, by in found:
        known = [begun for begun, other in expected if other == by and begun <= first]
        require(bool(known) and (first in known or known[-1] < start), message)


def check_stays(files: MemoryFiles, opened: Opened) -> None:
    """F16: to open it once more finds the same and changes nothing."""
    opened.log.abandon()
    opened.log_dir.release()
    contents = lasting(files)
    again = open_partition(files)
    require(again.report.corrupt is None, f"second opening: {again.report.corrupt}")
    require(again.report.bytes_cut == 0, "second opening: cut something again")
    require(
        (again.log.log_start_offset, again.log.log_end_offset)
        == (opened.log.log_start_offset, opened.log.log_end_offset),
        "second opening: other offsets",
    )
    again.log.abandon()
    again.log_dir.release()
    changed = {path for path, content in lasting(files).items() ^ contents.items()}
    require(not changed, f"second opening: changed {sorted(changed)}")


def lasting(files: MemoryFiles) -> dict[str, bytes]:
    """All but what a recovery has set aside to be removed."""
    return {
        path: content for path, content in files.contents().items() if not path.endswith(".deleted")
    }


def check_goes_on(files: MemoryFiles, chance: random.Random) -> None:
    """The recovered log takes more, and has it after a clean restart."""
    opened = open_partition(files)
    opened.log_dir.begin()
    log = opened.log
    batch = build_batch([RecordToWrite(5, None, chance.randbytes(50))])
    appended = log.append(bytearray(batch), read_header(batch), 10**6, now_ms=1_000_000)
    before = read_back(log)
    log.close()
    opened.log_dir.write_recovery_points({KEY: log.recovery_point})
    opened.log_dir.write_log_start_offsets({KEY: log.log_start_offset})
    opened.log_dir.mark_clean()
    opened.log_dir.release()
    again = open_partition(files)
    require(again.report.segments_recovered == 0, "a clean stop was not believed")
    require(again.log.log_end_offset == appended.last_offset + 1, "the appended batch is gone")
    require(read_back(again.log) == before, "the log has changed over a clean restart")
    again.log.abandon()
    again.log_dir.release()


# -- all states of a run --------------------------------------------------------------------------


def judge_states(workload: Workload, chance: random.Random, count: int) -> int:
    """Draws `count` crash states of a run, and of the recoveries of some; returns how many."""
    journal = workload.files.journal
    moments = sorted(chance.randint(0, len(journal)) for _ in range(count))
    image = DiskImage()
    at = 0
    judged = 0
    step = 0
    for moment in moments:
        while at < moment:
            image.apply(journal[at])
            at += 1
        while step < len(workload.steps) and workload.steps[step].at <= at:
            step += 1
        before = workload.steps[step - 1].moment if step else Moment()
        after = workload.steps[step].moment if step < len(workload.steps) else before
        judged += judge_crash(image, chance, before, after)
    return judged


def judge_crash(image: DiskImage, chance: random.Random, before: Moment, after: Moment) -> int:
    killed = chance.random() < 0.15
    files = image.after_kill("boot-0") if killed else image.after_power_cut(chance, "boot-1")
    contents = files.contents() if chance.random() < 0.2 else None
    directories = set(files.directories)
    judge(files, before, after, killed=killed)
    if chance.random() < 0.1:
        check_goes_on(files, chance)
    if contents is None:
        return 1
    crashed = MemoryFiles(boot="boot-0" if killed else "boot-1", record=True)
    crashed.directories |= directories
    for path, content in contents.items():
        crashed.put(path, content)
    return 1 + judge_crash_in_recovery(crashed, chance, before, after, killed)


def judge_crash_in_recovery(
    files: MemoryFiles, chance: random.Random, before: Moment, after: Moment, killed: bool
) -> int:
    image = DiskImage.of(files)
    opened = open_partition(files)
    opened.log.abandon()
    for operation in files.journal[: chance.randint(0, len(files.journal))]:
        image.apply(operation)
    boot = "boot-0" if killed else "boot-2"
    again = image.after_kill(boot) if killed else image.after_power_cut(chance, boot)
    judge(again, before, after, killed=killed)
    return 1
