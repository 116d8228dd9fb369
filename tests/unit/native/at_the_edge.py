"""Gives the compiled twins bytes at the very end of memory: DIRECTORY/batches has them.

A file of two pages is mapped and then cut to one, so whatever touches the second dies. --beyond
lets the walk start there, to show that it does.
"""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

from ottla.native import compiled
from ottla.records.batch_header import HEADER_SIZE, RECORD_COUNT, read_header
from tests.unit.records.batches import with_right_crc

ROOM = 16 * mmap.PAGESIZE
LATEST = (1 << 63) - 1


def _told_right(batch: bytes) -> bytes:
    """Its length and checksum put right, so that more than the header is looked at."""
    if len(batch) < HEADER_SIZE:
        return batch
    return with_right_crc(batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:])


def main() -> None:
    assert compiled is not None
    directory = Path(sys.argv[1])
    with (directory / "memory").open("w+b") as file:
        file.truncate(2 * ROOM)
        memory = mmap.mmap(file.fileno(), 2 * ROOM)
        file.truncate(ROOM)
    view = memoryview(memory)
    if sys.argv[2:] == ["--beyond"]:
        compiled.crc32c(view[ROOM - 1 : ROOM + 1])
    looked = 0
    for path in sorted((directory / "batches").iterdir()):
        batch = path.read_bytes()
        for content in {batch, _told_right(batch)}:
            place = view[ROOM - len(content) : ROOM]
            place[:] = content
            compiled.crc32c(place)
            compiled.good_header(place, ROOM, False, -LATEST, LATEST)
            if len(content) >= HEADER_SIZE:
                compiled.walk(place, HEADER_SIZE, read_header(content)[RECORD_COUNT])
            looked += 1
    print(looked)


if __name__ == "__main__":
    main()
