"""What the tests of the log room share: a partition in memory, a clock, batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.base.ports import File
from ottla.log import batch_scan
from ottla.log.load_report import LoadReport
from ottla.log.log_config import LogConfig
from ottla.log.open_log import open_log
from ottla.log.partition_log import Appended, LogSlice, PartitionLog
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import read_header
from tests.chaos.crash_world import abort_marker
from tests.chaos.memory_files import MemoryFiles

DIRECTORY = "/data/topic-0"
NOW_MS = 1_700_000_000_000


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def batch(
    count: int = 1,
    *,
    size: int = 20,
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
) -> bytes:
    known = producer_id >= 0
    return build_batch(
        [RecordToWrite(timestamp_ms, None, b"v" * size) for _ in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch if known else -1,
        base_sequence=sequence if known else -1,
        transactional=transactional,
    )


@dataclass
class World:
    """One partition, over a file system in memory."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    clock: ManualClock = field(default_factory=ManualClock)
    config: LogConfig = field(default_factory=LogConfig)
    epoch: int = 0

    def open(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        power_lost: bool = True,
    ) -> PartitionLog:
        self.log, self.report = open_log(
            self.files,
            DIRECTORY,
            "topic",
            0,
            config=self.config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            clock=self.clock,
            producer_id_expiration_ms=86_400_000,
            power_lost=power_lost,
        )
        return self.log

    log: PartitionLog = field(init=False)
    report: LoadReport = field(init=False)

    def append(self, content: bytes, *, from_client: bool = True) -> Appended:
        return self.log.append(
            bytearray(content),
            read_header(content),
            self.epoch,
            now_ms=self.clock.now_ms,
            from_client=from_client,
        )

    def fill(self, count: int, *, size: int = 100, records: int = 1) -> None:
        for _ in range(count):
            self.append(batch(records, size=size, timestamp_ms=self.clock.now_ms))
            self.clock.now_ms += 1

    def end_transaction(self, producer_id: int, *, aborted: bool) -> Appended:
        marker = abort_marker(producer_id, aborted, self.clock.now_ms)
        return self.append(marker, from_client=False)

    def flush(self) -> None:
        job = self.log.flush_job()
        if job is not None:
            job.run()
            self.log.flush_done(job)

    def reopen_cleanly(self) -> PartitionLog:
        self.log.close()
        return self.open(
            clean=True,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.log.log_start_offset,
        )

    def reopen_killed(self, *, power_lost: bool = False) -> PartitionLog:
        self.log.abandon()
        return self.open(
            recovery_point=self.log.recovery_point,
            log_start_offset=self.log.log_start_offset,
            power_lost=power_lost,
        )

    # -- files --------------------------------------------------------------------------------

    def path(self, offset: int, suffix: str = ".log") -> str:
        return f"{DIRECTORY}/{offset:020d}{suffix}"

    def names(self) -> list[str]:
        return self.files.list_dir(DIRECTORY)

    def content(self, offset: int, suffix: str = ".log") -> bytes:
        return self.files.read(self.path(offset, suffix))

    def damage(self, offset: int, position: int, content: bytes, suffix: str = ".log") -> None:
        self.files.open(self.path(offset, suffix)).write_at(position, content)


def bytes_of(part: LogSlice | None) -> bytes:
    assert part is not None
    return part.file.read_at(part.position, part.size)


def offsets_of(part: LogSlice | None) -> list[int]:
    """Base offsets of the batches in a part."""
    assert part is not None
    end = part.position + part.size
    found = list(batch_scan.scan_headers(part.file, part.position, end, 0))
    last, header = found[-1]
    assert last + batch_scan.batch_size(header) == end, "a part ends with a whole batch"
    return [header[0] for _, header in found]


def all_offsets(log: PartitionLog) -> list[int]:
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 20, log.log_end_offset)
        assert part is not None
        end = part.position + part.size
        for _, header in batch_scan.scan_headers(part.file, part.position, end, 0):
            found.append(header[0])
            offset = batch_scan.next_offset(header)
    return found


def file_with(content: bytes) -> File:
    files = MemoryFiles()
    files.put("/data/file", content)
    return files.open("/data/file")
