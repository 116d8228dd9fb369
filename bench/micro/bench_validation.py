"""What the produce door costs: `validate_produced` on batches as clients send them.

    PYTHONPATH=src python bench/micro/bench_validation.py

Prints the best of several rounds, per batch and per record. Absolute figures do not travel between
machines, so each line also shows the cost in CRCs: how many times the checksum of the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ottla.records import compression
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.crc32c import crc32c
from ottla.records.validation import ProduceRules, validate_produced

NOW_MS = 1_700_000_000_000
ROUNDS = 15
ROUND_SECONDS = 0.02

RULES = ProduceRules(
    max_message_bytes=2 * 1024 * 1024,
    compression_codec=None,
    compression_level=None,
    timestamp_type="CreateTime",
    before_max_ms=(1 << 63) - 1,
    after_max_ms=3_600_000,
    compacted=False,
    zstd_allowed=True,
)


def best_seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    repeats = max(1, int(ROUND_SECONDS / max(time.perf_counter() - started, 1e-7)))
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(repeats):
            work()
        best = min(best, (time.perf_counter() - started) / repeats)
    return best


def records(count: int, size: int, *, spread: int = 0, key: int = 0) -> list[RecordToWrite]:
    """`count` records of about `size` bytes; sizes vary by `spread`, keys are of `key` bytes."""
    return [
        RecordToWrite(
            NOW_MS + index // 50,
            b"k" * (key + index % 3 if spread else key) if key else None,
            bytes(range(256)) * (size // 256) + b"v" * (size % 256 + (index * 7919 % (spread + 1))),
        )
        for index in range(count)
    ]


def show(name: str, batch: bytes, count: int, rules: ProduceRules = RULES) -> None:
    view = memoryview(bytearray(batch))
    seconds = best_seconds(lambda: validate_produced(view, rules, NOW_MS))
    checksum = best_seconds(lambda: crc32c(view))
    print(
        f"{name:46} {len(batch):8} B {seconds * 1e6:9.1f} µs "
        f"{seconds / count * 1e6:8.3f} µs/record {seconds / checksum:7.1f} CRCs"
    )


def main() -> None:
    show("one record of 1 KB", build_batch(records(1, 1000)), 1)
    show("10 of 100 B", build_batch(records(10, 100)), 10)
    show("16 of 1 KB", build_batch(records(16, 1000)), 16)
    show("16 of about 1 KB, with keys", build_batch(records(16, 900, spread=200, key=8)), 16)
    show("150 of 100 B", build_batch(records(150, 100)), 150)
    show("150 of 100 B, keys of 8 B", build_batch(records(150, 90, key=8)), 150)
    show("150 of about 100 B", build_batch(records(150, 80, spread=40)), 150)
    show("150 of about 100 B, with keys", build_batch(records(150, 80, spread=40, key=8)), 150)
    show("150 of about 60 B (two widths of length)", build_batch(records(150, 30, spread=60)), 150)
    show("9000 of about 100 B", build_batch(records(9000, 80, spread=40)), 9000)
    show("1000 of 1 KB", build_batch(records(1000, 1000)), 1000)
    for codec, name in enumerate(compression.CODEC_NAMES[1:], 1):
        batch = build_batch(records(150, 80, spread=40), codec=codec)
        show(f"150 of about 100 B in {name}", batch, 150)


if __name__ == "__main__":
    main()
