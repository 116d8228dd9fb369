"""Goal: what was found to be corrupt is still known to be so after a restart.
Method: the mark in a file system in memory.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import StorageError
from ottla.log.corrupt_mark import NAME, read_mark, write_mark
from tests.chaos.memory_files import MemoryFiles


def test_a_mark_is_read_as_it_was_written_and_says_how_to_get_rid_of_it() -> None:
    files = MemoryFiles()
    files.make_dir("/data/t-0")
    assert read_mark(files, "/data/t-0") is None
    write_mark(files, "/data/t-0", "a batch is broken")
    said = read_mark(files, "/data/t-0")
    assert said is not None
    assert said.startswith("a batch is broken; /data/t-0/ottla.corrupt says so")
    files.remove(f"/data/t-0/{NAME}")
    assert read_mark(files, "/data/t-0") is None


def test_a_disk_that_takes_no_mark_has_failed() -> None:
    with pytest.raises(StorageError):
        write_mark(MemoryFiles(), "/nowhere/t-0", "a batch is broken")
