"""A reader that catches up over data which is no longer in the page cache.

One fetch of 1 MiB after another, as a consumer with default settings asks for them, by a client so
light that the disk is what holds it back. Before each pass the files are dropped from the cache.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.clients.command import run_as_command
from bench.page_cache import drop
from bench.wire import AnswerError, Connection
from ottla.protocol.api_keys import FETCH
from ottla.protocol.error_codes import NONE, name_of
from ottla.records.batch_header import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH_END,
    read_header,
)

VERSION = 11
PARTITION_BYTES_MAX = 1024 * 1024
FETCH_BYTES_MAX = 50 * 1024 * 1024


def read(
    *, bootstrap: str, topic: str, records: int, directory: str, seconds: float
) -> dict[str, float]:
    """Reads for so many seconds, from the start again whenever it is through."""
    begin = time.perf_counter()
    end, got, offset, still_cached, reading_s = begin + seconds, 0, records, 0.0, 0.0
    with Connection(bootstrap) as connection:
        while (now_s := time.perf_counter()) < end:
            if offset >= records:
                offset = 0
                still_cached = max(still_cached, drop(Path(directory)))
                now_s = time.perf_counter()
            size, offset = _fetch(connection, topic, offset)
            got += size
            reading_s += time.perf_counter() - now_s
    return {"mb_per_s": got / 2**20 / reading_s, "still_cached": still_cached}


def _fetch(connection: Connection, topic: str, offset: int) -> tuple[int, int]:
    """Bytes of whole batches in the answer, and the offset after them."""
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": PARTITION_BYTES_MAX,
    }
    fields = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": FETCH_BYTES_MAX,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    partition = connection.call(FETCH, VERSION, fields).responses[0].partitions[0]
    if partition.error_code != NONE or not partition.records:
        raise AnswerError(f"fetch at {offset}: {name_of(partition.error_code)}")
    return whole_batches(partition.records, offset)


def whole_batches(records: bytes, offset: int) -> tuple[int, int]:
    """The last batch of an answer may be cut off: it comes again with the next fetch."""
    position = 0
    while len(records) - position >= HEADER_SIZE:
        header = read_header(records, position)
        end = position + LENGTH_END + header[BATCH_LENGTH]
        if end > len(records):
            break
        position, offset = end, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    return position, offset


if __name__ == "__main__":
    run_as_command(read)
