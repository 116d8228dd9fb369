"""A task's process keeps its memory from batch to batch; a choice of somebody else's is kept."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest

# In a process of its own, as a task's is: what it sets stays set. Prints whether memory is kept and
# how many pages were touched anew for the last of five pieces of 48 MB, one after the other.
TASK = """
import ctypes, resource, time
import pyarrow as pa
from pyspark import TaskContext
from ottla.spark.task_memory import keep_memory

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # a huge page would count as one page
{before}
kept = keep_memory()
for _ in range(5):
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    piece = pa.allocate_buffer({size})
    ctypes.memset(piece.address, 1, {size})
    del piece
    time.sleep(0.05)  # Arrow's pool gives back what has been free for a while
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin
print(kept, pa.default_memory_pool().backend_name, touched)
"""
IN_A_TASK = "TaskContext._taskContext = TaskContext()"
PIECE_BYTES = 48_000_000
PAGES_OF_A_PIECE = PIECE_BYTES // mmap.PAGESIZE


def in_a_process(before: str, **chosen: str) -> tuple[bool, str, int]:
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ARROW_", "MALLOC_", "GLIBC_", "LD_PRELOAD"))
    }
    done = subprocess.run(
        [sys.executable, "-c", TASK.format(before=before, size=PIECE_BYTES)],
        env={**own, **chosen},
        capture_output=True,
        text=True,
        check=True,
    )
    kept, pool, touched = done.stdout.split()
    return kept == "True", pool, int(touched)


def test_memory_of_a_batch_is_there_for_the_next() -> None:
    kept, pool, touched = in_a_process(IN_A_TASK)
    assert (kept, pool) == (True, "system")
    assert touched < PAGES_OF_A_PIECE // 10


def test_the_c_library_by_itself_gives_it_back() -> None:
    """Otherwise the test above could not fail."""
    kept, pool, touched = in_a_process("pa.set_memory_pool(pa.system_memory_pool())")
    assert (kept, pool) == (False, "system")
    assert touched > PAGES_OF_A_PIECE // 2


@pytest.mark.parametrize(
    "chosen",
    [
        {"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"},
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"},
    ],
    ids=lambda chosen: next(iter(chosen)),
)
def test_what_the_environment_says_is_kept(chosen: dict[str, str]) -> None:
    assert not in_a_process(IN_A_TASK, **chosen)[0]


def test_a_pool_that_the_program_has_set_is_kept() -> None:
    before = f"{IN_A_TASK}; pa.set_memory_pool(pa.jemalloc_memory_pool())"
    assert not in_a_process(before)[0]


def test_a_process_that_runs_no_task_is_left_alone() -> None:
    assert not in_a_process("")[0]
