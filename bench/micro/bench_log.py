"""How long the log room takes: append, sequential read, load. Figures, no verdict.

    PYTHONPATH=src python bench/micro/bench_log.py [directory]

`Python` is the time of an append whose write does nothing; the rest of the whole is the system call
and the page cache. Run it on the file system of the data, and on a quiet machine.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence

from ottla.base.ports import Buffer
from ottla.log.log_config import LogConfig
from ottla.log.open_log import open_log
from ottla.log.partition_log import PartitionLog
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import BASE_SEQUENCE, HEADER, RECORD_COUNT, read_header
from ottla.runtime.posix_files import PosixFile, PosixFiles

ROUNDS = 5
FILES = PosixFiles()


class NoWrites(PosixFiles):
    """Log files that take a write without making it: what is left is the cost of Python."""

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        file = super().open(path, create=create)
        return _Unwritten(os.dup(file.fileno())) if path.endswith(".log") else file


class _Unwritten(PosixFile):
    def append(self, buffers: Sequence[Buffer]) -> int:
        return 0


class WallClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


CLOCK = WallClock()


def opened(
    directory: str, *, clean: bool = False, recovery_point: int = 0, files: PosixFiles = FILES
) -> PartitionLog:
    log, report = open_log(
        files,
        directory,
        "bench",
        0,
        config=LogConfig(),
        recovery_point=recovery_point,
        log_start_offset=0,
        clean=clean,
        clock=CLOCK,
        producer_id_expiration_ms=86_400_000,
    )
    assert report.corrupt is None
    return log


def batch_of(size: int, record_bytes: int, producer_id: int = -1) -> bytearray:
    count = max(1, size // (record_bytes + 10))
    now_ms = CLOCK.wall_ms()
    records = [RecordToWrite(now_ms, None, bytes(record_bytes)) for _ in range(count)]
    sequence = -1 if producer_id < 0 else 0
    return bytearray(
        build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    )


def best(work: Callable[[], float]) -> float:
    return min(work() for _ in range(ROUNDS))


def bench_append(directory: str, size: int, producer_id: int) -> None:
    batch = batch_of(size, min(1000, size - 80), producer_id)
    template = list(read_header(batch))
    view = memoryview(batch)
    count = 2_000

    def appends(log: PartitionLog) -> float:
        headers = []
        entry = log.producers.entries.get(producer_id)
        sequence = 0 if entry is None else entry.next_sequence
        for _ in range(count):
            template[BASE_SEQUENCE] = sequence if producer_id >= 0 else -1
            headers.append(tuple(template))
            sequence += template[RECORD_COUNT]
        now_ms = CLOCK.wall_ms()
        start = time.perf_counter()
        for header in headers:
            log.append(view, header, 3, now_ms=now_ms)
        return (time.perf_counter() - start) / count

    name = f"{directory}/append-{size}-{producer_id}"
    real = opened(name)
    pretended = opened(name + "-unwritten", files=NoWrites())
    total = best(lambda: appends(real))
    python = best(lambda: appends(pretended))
    kind = "idempotent" if producer_id >= 0 else "plain"
    print(
        f"append {len(batch):>6} B {kind:<10} {total * 1e6:6.2f} us, Python {python * 1e6:5.2f} us"
    )
    real.close()
    pretended.abandon()


def bench_read(directory: str, batch_bytes: int, max_bytes: int) -> None:
    log = opened(f"{directory}/read-{batch_bytes}")
    batch = batch_of(batch_bytes, 900)
    header = read_header(batch)
    while log.log_end_offset == 0 or log.size < 64 * 1024 * 1024:
        log.append(batch, header, 3, now_ms=CLOCK.wall_ms())
    end = log.log_end_offset

    def sequential() -> float:
        offset = reads = 0
        taken = 0.0
        while offset < end:
            start = time.perf_counter()
            found = log.read(offset, max_bytes, end)
            taken += time.perf_counter() - start
            assert found is not None
            reads += 1
            last = found.position + found.size - len(batch)
            fields = HEADER.unpack(found.file.read_at(last, HEADER.size))
            offset = fields[0] + fields[6] + 1
        return taken / reads

    def scattered() -> float:
        offsets = [(number * 7919) % end for number in range(2000)]
        start = time.perf_counter()
        for offset in offsets:
            log.read(offset, max_bytes, end)
        return (time.perf_counter() - start) / len(offsets)

    print(f"read {max_bytes:>7} B of {len(batch):>5} B batches:", end="")
    print(f" sequential {best(sequential) * 1e6:6.2f} us", end="")
    print(f", scattered {best(scattered) * 1e6:6.2f} us")
    log.close()


def bench_load(directory: str, count: int) -> None:
    batch = batch_of(2000, 900, producer_id=7)
    header = read_header(batch)
    ends = {}
    for number in range(count):
        log = opened(f"{directory}/load/p-{number}")
        log.append(batch, header, 3, now_ms=CLOCK.wall_ms())
        log.close()
        ends[number] = log.log_end_offset

    def load(clean: bool) -> float:
        start = time.perf_counter()
        logs = [
            opened(f"{directory}/load/p-{number}", clean=clean, recovery_point=ends[number])
            for number in range(count)
        ]
        taken = (time.perf_counter() - start) / count
        for log in logs:
            log.abandon()
        return taken

    print(
        f"load of {count} partitions: clean {best(lambda: load(True)) * 1e6:6.1f} us each", end=""
    )
    print(f", after a kill {best(lambda: load(False)) * 1e6:6.1f} us each")
    tracemalloc.start()
    logs = [
        opened(f"{directory}/load/p-{number}", clean=True, recovery_point=ends[number])
        for number in range(count)
    ]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"memory of an idle partition: {held // len(logs)} B")


def main() -> None:
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    directory = tempfile.mkdtemp(prefix="bench-log-", dir=parent)
    os.makedirs(directory, exist_ok=True)
    try:
        for size in (1024, 16 * 1024):
            bench_append(directory, size, producer_id=-1)
            bench_append(directory, size, producer_id=7)
        bench_read(directory, 1024, 1 << 20)
        bench_read(directory, 16 * 1024, 1 << 20)
        bench_read(directory, 16 * 1024, 16 * 1024)
        bench_load(directory, 1000)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
