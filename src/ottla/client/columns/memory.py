"""Which of Arrow's memory pools the keys and values of a table lie in.

Arrow's own choice, mimalloc, asks the kernel for huge pages. Where free memory goes back to a host,
as on most virtual machines, those come from there and are touched anew, all 2 MiB at a time, while
small ones are often at hand: keeping 500 MB of fetched tables took twice as long. Without such a
host the two are the same (`docs/internals/performance.md`).

Never overrides a choice: where a pool was set, by Arrow's variable or by `pa.set_memory_pool`,
tables lie in that one.
"""

from __future__ import annotations

import os
from functools import cache

import pyarrow as pa

_CHOSEN_BY = "ARROW_DEFAULT_MEMORY_POOL"
_OF_ARROW = "mimalloc"


def is_pool_chosen() -> bool:
    """Whether somebody has told Arrow where to lay out its tables."""
    return _CHOSEN_BY in os.environ or pa.default_memory_pool().backend_name != _OF_ARROW


def table_memory() -> pa.MemoryPool | None:
    """None: Arrow's default, as it is at that time."""
    return None if is_pool_chosen() else _without_huge_pages()


@cache
def _without_huge_pages() -> pa.MemoryPool | None:
    """None where Arrow was built without it."""
    return pa.jemalloc_memory_pool() if "jemalloc" in pa.supported_memory_backends() else None
