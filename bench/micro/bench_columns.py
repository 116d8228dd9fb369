"""What records cost the client as columns and as objects, per record of about 100 bytes.

    PYTHONPATH=src python bench/micro/bench_columns.py

Prints the best of several rounds in CPU time, and beside it the same by the plain reader and
builder, record by record. Absolute figures do not travel between machines; the ratios do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ottla.client.columns.encode import Encoder, RowColumns, cut_by_size
from ottla.client.columns.partitioning import murmur2_of
from ottla.client.columns.table import FetchedBlocks, table_of
from ottla.client.fetch_batches import FetchedBatches, RecordBlock
from ottla.client.fetch_records import read_records
from ottla.records import batch_view
from ottla.records.batch_builder import RecordToWrite, build_batch

NOW_MS = 1_700_000_000_000
ROUNDS = 20


def best_seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def batches_of(count: int, records: int, chance: random.Random, fixed: bool) -> list[bytes]:
    def value() -> bytes:
        return chance.randbytes(100 if fixed else chance.randint(60, 140))

    return [
        build_batch(
            [RecordToWrite(NOW_MS + n // 20, b"%08d" % n, value()) for n in range(records)],
            base_offset=number * records,
        )
        for number in range(count)
    ]


def blocks_in(data: bytes) -> list[RecordBlock]:
    fetched = FetchedBatches(data, 0, len(data), 0)
    blocks = []
    while (block := fetched.next_block()) is not None:
        blocks.append(block)
        fetched.advance(block.next_offset())
    return blocks


def show(name: str, seconds: float, records: int, plain_seconds: float) -> None:
    each, plain = seconds / records * 1e6, plain_seconds / records * 1e6
    print(f"{name:<44}{each:7.3f} µs   {plain:7.3f} µs one by one   {each / plain:5.2f}")


def decoding(name: str, batches: list[bytes], records: int) -> None:
    data = b"".join(batches)
    plain = best_seconds(lambda: [list(batch_view.records_of(one, 1 << 24)) for one in batches])
    table = best_seconds(lambda: table_of([FetchedBlocks("t", 0, 0, blocks_in(data))]))
    objects = best_seconds(lambda: read_records(("t", 0), blocks_in(data), 0).some(0, 1 << 30))
    show(f"table of {name}", table, records, plain)
    show(f"records of {name}", objects, records, plain)


def encoding(chance: random.Random) -> None:
    rows = 10_000
    keys = pa.array([b"%08d" % number for number in range(rows)])
    values = pa.array([chance.randbytes(100) for _ in range(rows)])
    times = np.full(rows, NOW_MS, np.int64)

    def encode() -> None:
        encoder = Encoder(RowColumns(keys, values, None, times))
        list(encoder.encode([*cut_by_size(encoder.sizes_max, 0, rows, 1 << 18), rows]))

    records = [
        RecordToWrite(NOW_MS, key, value)
        for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)
    ]
    plain = best_seconds(lambda: build_batch(records))
    show("batches of a table with keys", best_seconds(encode), rows, plain)
    show("murmur2 of a column of keys", best_seconds(lambda: murmur2_of(keys)), rows, plain)


def main() -> None:
    chance = random.Random(1)
    for name, count, records, fixed in (
        ("4 batches of 2,500, of one size", 4, 2_500, True),
        ("64 batches of 150, of many sizes", 64, 150, False),
        ("1,000 batches of 10", 1_000, 10, False),
    ):
        decoding(name, batches_of(count, records, chance, fixed), count * records)
    encoding(chance)


if __name__ == "__main__":
    main()
