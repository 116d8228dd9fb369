"""Goal: the real file system keeps the contract of the `Files` port.
Method: every call against a temporary directory; the same scenario as against files in memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.runtime.posix_files import FALLOC_FL_KEEP_SIZE, PosixFiles, QuietFile, _fallocate

FILES = PosixFiles()


def refusing(code: int) -> Callable[..., int]:
    def preadv(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return preadv


def test_what_is_in_memory_is_read_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FILES.open(str(tmp_path / "f"), create=True)
    file.append([b"abcdefg"])
    assert file.read_if_cached(2, 3) == b"cde"
    assert file.read_if_cached(5, 100) == b"fg", "there is no more"
    monkeypatch.setattr(os, "preadv", refusing(errno.EOPNOTSUPP))
    assert file.read_if_cached(2, 3) == b"cde", "nobody can tell"
    monkeypatch.setattr(os, "preadv", refusing(errno.EAGAIN))
    assert file.read_if_cached(2, 3) is None
    monkeypatch.setattr(os, "preadv", refusing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        file.read_if_cached(2, 3)


def test_half_of_it_in_memory_is_not_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FILES.open(str(tmp_path / "f"), create=True)
    file.append([b"abcdefg"])
    looks: list[int] = []

    def preadv(*_: object) -> int:
        looks.append(len(looks))
        if len(looks) > 1:
            raise OSError(errno.EAGAIN, "")
        return 2

    monkeypatch.setattr(os, "preadv", preadv)
    assert file.read_if_cached(2, 3) is None


def test_append_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "a.log")
    file = FILES.open(path, create=True)
    assert file.append([b"abc", bytearray(b"de"), memoryview(b"f")]) == 6
    assert file.append([b"g"]) == 1
    assert (file.size(), file.read_at(2, 3), file.read_at(5, 100)) == (7, b"cde", b"fg")
    assert file.read_at(7, 10) == b""
    file.sync()
    file.close()
    assert FILES.read(path) == b"abcdefg"
    assert FILES.size(path) == 7
    again = FILES.open(path)
    again.append([b"h"])
    assert FILES.read(path) == b"abcdefgh"


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FILES.open(str(tmp_path / "a.log"), create=True)
    file.append([b"0123"])

    def three_bytes(descriptor: int, buffers: list[bytes], position: int) -> int:
        return os.pwrite(descriptor, b"".join(buffers)[:3], position)

    monkeypatch.setattr(os, "pwritev", three_bytes)
    assert file.append([b"abcd", b"efgh"]) == 8
    assert FILES.read(str(tmp_path / "a.log")) == b"0123abcdefgh"


def test_a_failed_append_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.log")
    file = FILES.open(path, create=True)
    file.append([b"good"])

    def half(descriptor: int, buffers: list[bytes], position: int) -> int:
        os.pwrite(descriptor, b"half of it", position)
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", half)
        with pytest.raises(OSError):
            file.append([b"a whole ", b"batch"])
    file.append([b"next"])
    assert FILES.read(path)[:8] == b"goodnext"


def test_write_at_truncate_and_map(tmp_path: Path) -> None:
    path = str(tmp_path / "a.index")
    file = FILES.open(path, create=True)
    file.truncate(16)
    mapped = file.map(16)
    file.close()
    mapped[0:4] = b"abcd"
    assert FILES.read(path)[:4] == b"abcd", "a mapping outlives its file"
    mapped.flush()
    mapped.close()
    file = FILES.open(path)
    file.write_at(2, b"XY")
    file.truncate(5)
    assert (FILES.read(path), file.size()) == (b"abXY\0", 5)


def test_room_is_reserved_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = PosixFiles().open(str(path), create=True)
    file.reserve(1 << 20)
    file.append([b"content"])
    assert (file.size(), path.stat().st_size) == (7, 7)
    reserved = path.stat().st_blocks * 512
    assert reserved >= 1 << 20 or not can_reserve(tmp_path / "other")
    file.truncate(7)
    assert path.stat().st_blocks * 512 < 1 << 20
    assert path.read_bytes() == b"content"


def can_reserve(path: Path) -> bool:
    with path.open("wb") as file:
        return bool(_fallocate(file.fileno(), FALLOC_FL_KEEP_SIZE, 0, 1 << 20) == 0)


def test_a_disk_without_that_room(tmp_path: Path) -> None:
    file = PosixFiles().open(str(tmp_path / "file"), create=True)
    with pytest.raises(OSError, match=r"File too large|No space left"):
        file.reserve(1 << 62)


def test_a_file_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = FILES.open(path, create=True)
    held = file
    del file
    assert path in _open_paths()
    del held
    # By name: another thread of this process may have been given the descriptor meanwhile.
    assert path not in _open_paths()


def _open_paths() -> set[str]:
    paths = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists the directory
            paths.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return paths


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FILES.open(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        FILES.list_dir(str(tmp_path / "none"))
    assert not FILES.exists(str(tmp_path / "none"))


def test_files_that_may_only_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"abc")
    path.chmod(0o444)
    assert FILES.open(str(path)).read_at(0, 3) == b"abc"


def test_atomic_writes(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    FILES.write_atomic(path, b"one")
    FILES.write_atomic(path, b"two")
    assert FILES.read(path) == b"two"
    assert FILES.list_dir(str(tmp_path)) == ["checkpoint"]


def test_names(tmp_path: Path) -> None:
    directory = str(tmp_path / "a" / "b")
    FILES.make_dir(directory)
    FILES.make_dir(directory)
    FILES.write_atomic(directory + "/x", b"1")
    FILES.rename(directory + "/x", directory + "/y")
    assert FILES.list_dir(directory) == ["y"]
    assert FILES.modified_ms(directory + "/y") > 1_600_000_000_000
    FILES.remove(directory + "/y")
    FILES.sync_dir(directory)
    FILES.remove_tree(str(tmp_path / "a"))
    assert not FILES.exists(directory)


def test_space_and_boot(tmp_path: Path) -> None:
    total, usable = FILES.space(str(tmp_path))
    assert total >= usable > 0
    assert FILES.boot_id() == FILES.boot_id()


def test_a_lock_keeps_others_out(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = FILES.lock(path)
    assert lock is not None
    assert FILES.lock(path) is None, "not even this process gets it twice"
    script = (
        "import sys; from ottla.runtime.posix_files import PosixFiles; "
        "sys.exit(PosixFiles().lock(sys.argv[1]) is None)"
    )
    other = [sys.executable, "-c", script, path]
    assert subprocess.run(other, check=False).returncode == 1
    lock.close()
    lock.close()
    assert subprocess.run(other, check=False).returncode == 0
    again = FILES.lock(path)
    assert again is not None
    again.close()


def cached_pages(path: Path) -> int:
    """How many pages of a file are in memory. By mincore: a read that does not wait for them makes
    the kernel fetch them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    size = path.stat().st_size
    pages = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        first = ctypes.c_ubyte.from_buffer(mapped)
        assert libc.mincore(ctypes.addressof(first), size, pages) == 0
        del first
    return sum(page & 1 for page in pages)


def drop(path: Path) -> int:
    """How many pages are in memory all the same: where the disk is memory, all of them."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_pages(path)


def is_left_as_it_was(path: Path, quiet: QuietFile, content: bytes) -> bool:
    left = drop(path)
    for position in range(0, len(content), 8 * mmap.PAGESIZE):
        piece = content[position : position + 8 * mmap.PAGESIZE]
        assert quiet.read_at(position, 8 * mmap.PAGESIZE) == piece
    return cached_pages(path) == left


def test_a_quiet_file_leaves_the_page_cache_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    content = os.urandom(64 * mmap.PAGESIZE)
    path.write_bytes(content)
    quiet = QuietFile(str(path))
    assert quiet.read_at(0, len(content)) == content
    before = cached_pages(path)
    assert before == 64, "what others have in memory stays there"
    # Now and then a page arrives while it is asked whether it is there, and then it stays.
    assert any(is_left_as_it_was(path, quiet, content) for _ in range(20))
    quiet.close()
    assert QuietFile(str(path)).read_at(len(content), 10) == b""


def test_a_quiet_file_forgets(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(64 * mmap.PAGESIZE))
    left = drop(path)
    path.read_bytes()
    quiet = QuietFile(str(path))
    quiet.forget(0, 32 * mmap.PAGESIZE)
    assert cached_pages(path) == max(left, 32)
