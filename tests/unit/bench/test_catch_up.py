"""Goal: the reader goes on behind the last whole batch, whatever the answer was cut to.
Method: every possible cut of three batches.
"""

from __future__ import annotations

from bench.clients.catch_up import whole_batches
from ottla.records.batch_builder import RecordToWrite, build_batch

RECORDS = [RecordToWrite(1, None, b"x" * 30) for _ in range(4)]
BATCHES = [build_batch(RECORDS, base_offset=offset) for offset in (8, 12, 16)]


def test_every_cut() -> None:
    whole = b"".join(BATCHES)
    size = len(BATCHES[0])
    for cut in range(len(whole) + 1):
        batches = cut // size
        expected = (batches * size, 8 + 4 * batches)
        assert whole_batches(whole[:cut], 8) == expected, cut
