"""A task's process keeps the memory of its rows from batch to batch instead of giving it back.

Ten thousand rows of 1 KB come as one piece of memory, leave as another, and then both are free.
Arrow's pool and the C library hand pieces of that size back to the kernel, and touching new pages
for the next ones was a tenth of what a row costs (`docs/internals/spark.md`). So pieces up to
KEPT_BYTES come from memory that the process has already, and as much of it stays when it is free.

Never overrides a choice: where Arrow's pool was set, or the C library told how to allocate, nothing
is done; nor is it outside of a task, since that process is somebody else's.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

import pyarrow as pa
from pyspark import TaskContext

from ottla.client.columns.memory import is_pool_chosen

KEPT_BYTES = 128 * 1024 * 1024
# Numbers of `mallopt`, in glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_CHOSEN_BY = (
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)


def keep_memory() -> bool:
    """Whether this process keeps its memory now, by us."""
    return TaskContext.get() is not None and _kept()


@cache
def _kept() -> bool:
    if is_pool_chosen() or any(name in os.environ for name in _CHOSEN_BY):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # another C library has none
    if set_option is None:
        return False
    if not (set_option(_MMAP_THRESHOLD, KEPT_BYTES) and set_option(_TRIM_THRESHOLD, KEPT_BYTES)):
        return False
    pa.set_memory_pool(pa.system_memory_pool())
    return True
