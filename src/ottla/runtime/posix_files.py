"""The real file system behind the `Files` port.

The only module that syncs, maps, locks or removes files of the log. It decides nothing: errors go
up as OSError, and a failed sync is never tried again here.

A `PosixFile` closes its descriptor when the last reference to it is gone, not only by `close()`.
The log drops files it has not used for a while; an answer that is still being sent from such a
file holds a reference, so the descriptor can not be closed, or worse reused, under it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Sequence

from ottla.base.ports import Buffer

# Python has only posix_fallocate, which makes the file longer.
FALLOC_FL_KEEP_SIZE = 1
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

# Not everywhere: without it every page seems to be in memory.
RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)

BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"

_LOCKED: set[tuple[int, int]] = set()
"""Device and inode of the files this process holds locks on. POSIX locks, which Kafka uses too,
never conflict within one process, so a second broker in the same process is refused by this."""


class PosixFile:
    __slots__ = ("_descriptor", "_size")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    def fileno(self) -> int:
        return self._descriptor

    def append(self, buffers: Sequence[Buffer]) -> int:
        # Written at a remembered position instead of O_APPEND: what a failed write has left behind
        # the end is overwritten by the next one, and pwrite on an O_APPEND file ignores its offset.
        if len(buffers) == 1:
            # The usual case, and cheaper than a vector of one.
            expected = len(buffers[0])
            written = os.pwrite(self._descriptor, buffers[0], self._size)
        else:
            expected = sum(map(len, buffers))
            written = os.pwritev(self._descriptor, buffers, self._size)
        if written != expected:
            self._write_rest(b"".join(buffers), written)
        self._size += expected
        return expected

    def _write_rest(self, content: bytes, done: int) -> None:
        """A signal or a full disk can end a write early; the second try then tells the reason."""
        view = memoryview(content)
        while done < len(content):
            done += os.pwrite(self._descriptor, view[done:], self._size + done)

    def read_at(self, position: int, size: int) -> bytes:
        content = os.pread(self._descriptor, size, position)
        if len(content) == size or not content:
            return content
        parts = [content]
        got = len(content)
        while got < size:
            content = os.pread(self._descriptor, size - got, position + got)
            if not content:
                break
            parts.append(content)
            got += len(content)
        return b"".join(parts)

    def is_cached(self, position: int, size: int) -> bool:
        """To ask makes the kernel fetch that page; if it is quick, the piece seems to be there."""
        probe = [bytearray(1)]
        try:
            os.preadv(self._descriptor, probe, position, RWF_NOWAIT)
            os.preadv(self._descriptor, probe, position + size - 1, RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as failure:
            if failure.errno != errno.EOPNOTSUPP:
                raise
        return True

    def read_if_cached(self, position: int, size: int) -> bytes | None:
        content = bytearray(size)
        try:
            read = os.preadv(self._descriptor, (content,), position, RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as failure:
            if failure.errno != errno.EOPNOTSUPP:
                raise
            return self.read_at(position, size)
        if read == size:
            return bytes(content)
        # There is no more of it, or the rest is not in memory.
        return self.read_at(position, size) if self.is_cached(position, size) else None

    def write_at(self, position: int, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            done += os.pwrite(self._descriptor, view[done:], position + done)
        self._size = max(self._size, position + len(view))

    def size(self) -> int:
        return self._size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def reserve(self, size: int) -> None:
        if _fallocate(self._descriptor, FALLOC_FL_KEEP_SIZE, 0, size) == 0:
            return
        code = ctypes.get_errno()
        if code != errno.EOPNOTSUPP:
            raise OSError(code, os.strerror(code))

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def map(self, size: int) -> mmap.mmap:
        return mmap.mmap(self._descriptor, size)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


class QuietFile:
    """Read once from end to end by somebody who leaves the page cache as it was: what had to come
    from the disk is dropped again, and nothing is read ahead."""

    __slots__ = ("_file",)

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._file = PosixFile(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def read_at(self, position: int, size: int) -> bytes:
        # Where the file system can't tell, what others have in memory is not taken from them.
        was_cold = size > 0 and not self._file.is_cached(position, size)
        content = self._file.read_at(position, size)
        if was_cold:
            self.forget(position, size)
        return content

    def forget(self, position: int, size: int) -> None:
        """What has not been written back yet stays."""
        os.posix_fadvise(self._file.fileno(), position, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        self._file.close()


class PosixLock:
    """A lock on a file, held until `close()` or the end of the process."""

    __slots__ = ("_descriptor", "_identity")

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._descriptor = descriptor
        self._identity = identity

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            _LOCKED.discard(self._identity)


class PosixFiles:
    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            return PosixFile(os.open(path, flags | os.O_CREAT, 0o644))
        try:
            return PosixFile(os.open(path, flags))
        except PermissionError:
            # `ottla log dump` may look at files that it must not write.
            return PosixFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_dir(self, path: str) -> list[str]:
        return os.listdir(path)

    def make_dir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def read(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while content := os.read(descriptor, 1 << 20):
                parts.append(content)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def write_atomic(self, path: str, content: bytes) -> None:
        temporary = path + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o644)
        try:
            view = memoryview(content)
            done = 0
            while done < len(view):
                done += os.write(descriptor, view[done:])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system in all, and bytes that are left to us."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def boot_id(self) -> str:
        """Another one after each start of the machine; "" where there is none to be had."""
        try:
            return self.read(BOOT_ID_PATH).decode("ascii").strip()
        except OSError:
            return ""

    def lock(self, path: str) -> PosixLock | None:
        """The lock on `path`, which is made if missing; None if somebody else holds it.

        The kind of lock that Java takes, so that an Apache Kafka and an Ottla on the same
        directory keep each other out.
        """
        if os.path.exists(path):
            # Before it is opened: closing any descriptor of a file drops a process's POSIX locks.
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in _LOCKED:
                return None
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            os.close(descriptor)
            if failure.errno in (errno.EACCES, errno.EAGAIN):
                return None
            raise
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        _LOCKED.add(identity)
        return PosixLock(descriptor, identity)
