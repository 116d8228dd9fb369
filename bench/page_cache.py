"""What a case finds in the page cache, without being root: nothing of a file, or room for one.

Only clean pages can be dropped, so a file is synced first. How much really went is counted, since a
cold read that was not cold would make a good figure out of nothing.

A virtual machine may hand its free memory back to its host, and get it again when it is written to:
up to three CPU seconds a GiB on one of ours, charged to whoever writes. On a machine that is not
new, free memory is rare and at hand; a load that writes fast is to find the same (`make_room`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from pathlib import Path

_PAGE = mmap.PAGESIZE
_PIECE = b"\1" * 2**20


def drop(directory: Path) -> float:
    """Drops every segment of a partition; the share of their pages that is still in memory."""
    kept = pages = 0
    for path in sorted(directory.glob("*.log")):
        with path.open("r+b") as segment:
            os.fdatasync(segment.fileno())
            os.posix_fadvise(segment.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            kept_here, pages_here = resident_pages(segment.fileno())
            kept, pages = kept + kept_here, pages + pages_here
    return kept / max(pages, 1)


def make_room(directory: Path, size: int) -> None:
    """The pages of so many bytes are at hand for who writes next, for a few seconds."""
    with tempfile.TemporaryFile(dir=directory) as scratch:
        for _ in range(-(-size // len(_PIECE))):
            scratch.write(_PIECE)


def resident_pages(descriptor: int) -> tuple[int, int]:
    """How many pages of a file are in memory, and how many it has."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        return 0, 0
    pages = -(-size // _PAGE)
    vector = (ctypes.c_ubyte * pages)()
    # A private mapping: ctypes needs a writable one to take its address, the file is not touched.
    with mmap.mmap(descriptor, size, mmap.MAP_PRIVATE) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), vector
        )
        del start  # the mapping cannot be closed while its address is held
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(byte & 1 for byte in vector), pages
