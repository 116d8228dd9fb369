"""`python -m bench.spark.row_costs`: what each step costs a row of 1 KB, without Spark.

The functions of a task, one after the other, on what a fetch answers with (4 MiB) and on what Spark
hands to a sink (10,000 rows), and then whole tasks with a broker. Processor time of this process,
the best of the rounds: the machine may be busy with other things.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.brokers import SHARED_SETTINGS, Ottla
from bench.topics import create_topic
from ottla.client.columns.table import FetchedBlocks, table_of
from ottla.client.fetch_batches import FetchedBatches, RecordBlock
from ottla.records.compression import NONE
from ottla.spark.client_reader import FETCH_BYTES
from ottla.spark.client_sink import ClientSinkCluster
from ottla.spark.columns import arrow_schema
from ottla.spark.record_batches import Envelope, batches_of
from ottla.spark.rows_to_records import placed, topics_of
from ottla.spark.sink_options import parse_sink_options
from ottla.spark.sink_protocol import Attempt, commit_batch, write_task
from ottla.spark.source import batch_reader
from ottla.spark.source_options import COLUMNS
from ottla.spark.transaction_flows import Producer

ROW_BYTES = 1_000
ROUNDS = 30
ROWS_TO_WRITE = 10_000
PARTITIONS = 2
TASK_BATCHES, TASK_ROUNDS = 10, 5
ENVELOPE = Envelope(Producer(1, 0), True, NONE, None, 900_000)


def best_of(action: Callable[[], Any], rows: int) -> float:
    """Microseconds a row."""
    found = []
    for _ in range(ROUNDS):
        begin = time.thread_time_ns()
        action()
        found.append(time.thread_time_ns() - begin)
    return min(found) / rows / 1_000


def rows_of(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"%d" % number for number in range(count)], pa.binary()),
            "value": pa.array([os.urandom(ROW_BYTES) for _ in range(count)], pa.binary()),
        }
    )


def answer_of(batch: pa.RecordBatch) -> bytes:
    """As a partition holds them: batches one behind the other, with their offsets."""
    (rows,) = topics_of(batch, "t", 0)
    parts, offset = [], 0
    for one in batches_of(rows, np.zeros(batch.num_rows, np.int64), ENVELOPE, {}):
        parts.append(offset.to_bytes(8, "big") + one.header[8:] + bytes(one.records))
        offset += one.count
    return b"".join(parts)


def blocks_in(data: bytes, *, check_crcs: bool) -> list[RecordBlock]:
    batches = FetchedBatches(data, 0, len(data), 0, aborted=[], check_crcs=check_crcs)
    found = []
    while (block := batches.next_block()) is not None:
        found.append(block)
        batches.advance(block.next_offset())
    return found


def columns_in(blocks: list[RecordBlock]) -> pa.RecordBatch:
    table = table_of([FetchedBlocks("t", 0, 0, blocks)])
    schema = arrow_schema(COLUMNS[:-1])
    names = {"timestampType": "timestamp_type"}
    arrays = [
        table.column(names.get(field.name, field.name)).combine_chunks().cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def main() -> None:
    count = FETCH_BYTES // ROW_BYTES
    data = answer_of(rows_of(count))
    blocks = blocks_in(data, check_crcs=False)
    plain = best_of(lambda: blocks_in(data, check_crcs=False), count)
    checked = best_of(lambda: blocks_in(data, check_crcs=True), count)
    decode = best_of(lambda: table_of([FetchedBlocks("t", 0, 0, blocks)]), count)
    columns = best_of(lambda: columns_in(blocks), count)
    print(f"read: find the batches               {plain:6.3f} us a row")
    print(f"read: their checksums                {max(checked - plain, 0):6.3f}")
    print(f"read: records to Arrow columns       {decode:6.3f}")
    print(f"read: into Spark's types, one batch  {max(columns - decode, 0):6.3f}")
    batch = rows_of(ROWS_TO_WRITE)
    (rows,) = topics_of(batch, "t", 0)
    partitions = placed(rows, PARTITIONS, 0)
    taken = best_of(lambda: list(topics_of(batch, "t", 0)), ROWS_TO_WRITE)
    placing = best_of(lambda: placed(rows, PARTITIONS, 0), ROWS_TO_WRITE)
    encode = best_of(lambda: list(batches_of(rows, partitions, ENVELOPE, {})), ROWS_TO_WRITE)
    print(f"write: take the columns              {taken:6.3f}")
    print(f"write: a partition for each key      {placing:6.3f}")
    print(f"write: batches with their checksums  {encode:6.3f}")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        read, write = whole_tasks(Path(directory) / "ottla", batch)
    print(f"read: all that a task does           {read:6.3f}")
    print(f"write: all that a task does          {write:6.3f}")


def whole_tasks(directory: Path, batch: pa.RecordBatch) -> tuple[float, float]:
    """With a broker, which is another process: what this one spends, its sockets included."""
    rows = TASK_BATCHES * batch.num_rows
    reads, writes = [], []
    with Ottla(directory, SHARED_SETTINGS) as broker:
        broker.start()
        create_topic(broker.bootstrap, "rows", PARTITIONS)
        options = {"kafka.bootstrap.servers": broker.bootstrap}
        sink = ClientSinkCluster(parse_sink_options({**options, "topic": "rows"}, streaming=True))
        reader = batch_reader({**options, "subscribe": "rows"}, list(COLUMNS[:-1]))
        for number in range(TASK_ROUNDS):
            begin = time.process_time_ns()
            attempt = Attempt("costs", "q", "run", number, 0, number)
            written = write_task(sink, attempt, [batch] * TASK_BATCHES)
            writes.append(time.process_time_ns() - begin)
            commit_batch(sink, "costs", number, [written])
            tasks = reader.partitions()
            begin = time.process_time_ns()
            found = sum(batch.num_rows for task in tasks for batch in reader.read(task))
            reads.append((time.process_time_ns() - begin) / found)
        sink.wire.close()
    return min(reads) / 1_000, min(writes) / rows / 1_000


if __name__ == "__main__":
    main()
