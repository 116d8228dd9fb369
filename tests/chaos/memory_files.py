"""A file system in memory that knows what a power cut may leave of it.

It behaves like the `Files` port says. If it records, every operation goes into a journal, and
`DiskImage` replays a prefix of that journal and draws, at random, one of the states that a disk may
be in after the power went at that moment:

- Of a file's unsynced writes, each 512-byte sector (or each 4 KiB page) holds what it held at the
  last sync, or after any one of the writes since; a sector of the file that was never written to
  the disk reads as zeros. The file's size is that of the last sync, or after any write since, or
  within the next one.
- A directory's unsynced entries (made, renamed, removed) are there up to some point in their order,
  as journaling file systems have it, independently of the files' contents. That a directory was
  renamed is such an entry of the one it is in.
- What was synced is there.

Mappings are written behind the file system's back, so each operation first looks at the live ones
and journals what has changed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ottla.base.ports import Buffer

SECTOR = 512
SECTORS_PER_PAGE = 8

Operation = tuple[Any, ...]


class Inode:
    __slots__ = ("content", "maps", "number", "reserved")

    def __init__(self, number: int, content: bytes = b"") -> None:
        self.number = number
        self.content = bytearray(content)
        self.maps: list[MemoryMap] = []
        self.reserved = 0


class MemoryMap(bytearray):
    """A mapping; `close` writes it back for the last time."""

    inode: Inode
    files: MemoryFiles

    def flush(self) -> None:
        self.files.absorb_maps()
        self.files.note("sync", self.inode.number)

    def close(self) -> None:
        self.files.absorb_maps()
        self.inode.maps = [other for other in self.inode.maps if other is not self]
        if not self.inode.maps:
            self.files.mapped.pop(self.inode, None)


class MemoryFile:
    __slots__ = ("_files", "_inode")

    def __init__(self, files: MemoryFiles, inode: Inode) -> None:
        self._files = files
        self._inode = inode

    def fileno(self) -> int:
        raise OSError("a file in memory has no descriptor")

    def append(self, buffers: Sequence[Buffer]) -> int:
        content = b"".join(buffers)
        self.write_at(len(self._inode.content), content)
        return len(content)

    def read_at(self, position: int, size: int) -> bytes:
        self._files.absorb_maps()
        return bytes(self._inode.content[position : position + size])

    def is_cached(self, position: int, size: int) -> bool:
        return self._files.is_cached

    def read_if_cached(self, position: int, size: int) -> bytes | None:
        return self.read_at(position, size) if self._files.is_cached else None

    def write_at(self, position: int, buffer: Buffer) -> None:
        self._files.absorb_maps()
        self._files.write(self._inode, position, bytes(buffer))

    def size(self) -> int:
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        self._files.absorb_maps()
        content = self._inode.content
        if size < len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))
        self._inode.reserved = 0
        self._files.note("truncate", self._inode.number, size)

    def reserve(self, size: int) -> None:
        self._inode.reserved = size

    def sync(self) -> None:
        self._files.absorb_maps()
        self._files.note("sync", self._inode.number)

    def map(self, size: int) -> MemoryMap:
        self._files.absorb_maps()
        if size > len(self._inode.content) or size == 0:
            raise ValueError("a mapping must lie within the file")
        mapped = MemoryMap(self._inode.content[:size])
        mapped.inode = self._inode
        mapped.files = self._files
        self._inode.maps.append(mapped)
        self._files.mapped[self._inode] = None
        return mapped

    def close(self) -> None:
        return None


class MemoryLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def close(self) -> None:
        self._locked.discard(self._path)


class MemoryFiles:
    def __init__(self, *, boot: str = "boot-0", record: bool = False) -> None:
        self.inodes: dict[str, Inode] = {}
        self.directories: set[str] = {"/"}
        self.journal: list[Operation] = []
        self.record = record
        self.is_cached = True
        """What `File.is_cached` says, of all files."""
        self.mapped: dict[Inode, None] = {}
        """In order, so that the same calls make the same journal."""
        self._boot = boot
        self._locked: set[str] = set()
        self._next_number = 0

    # -- recording ----------------------------------------------------------------------------

    def note(self, *operation: Any) -> None:
        if self.record:
            self.journal.append(operation)

    def absorb_maps(self) -> None:
        for inode in self.mapped:
            for mapped in inode.maps:
                current = inode.content
                if current[: len(mapped)] != mapped:
                    self._write_difference(inode, mapped)

    def _write_difference(self, inode: Inode, mapped: MemoryMap) -> None:
        for start in range(0, len(mapped), SECTOR):
            piece = bytes(mapped[start : start + SECTOR])
            if inode.content[start : start + SECTOR][: len(piece)] != piece:
                self.write(inode, start, piece)

    def write(self, inode: Inode, position: int, content: bytes) -> None:
        missing = position - len(inode.content)
        if missing > 0:
            inode.content.extend(bytes(missing))
        inode.content[position : position + len(content)] = content
        self.note("write", inode.number, position, content)

    # -- the port -----------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        inode = self.inodes.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(path)
            if path.rpartition("/")[0] not in self.directories:
                raise FileNotFoundError(path)
            inode = self._new_inode()
            self.inodes[path] = inode
            self.note("create", path, inode.number)
        return MemoryFile(self, inode)

    def _new_inode(self) -> Inode:
        self._next_number += 1
        return Inode(self._next_number)

    def exists(self, path: str) -> bool:
        return path in self.inodes or path in self.directories

    def size(self, path: str) -> int:
        return len(self._inode(path).content)

    def modified_ms(self, path: str) -> int:
        self._inode(path)
        return 0

    def list_dir(self, path: str) -> list[str]:
        if path not in self.directories:
            raise FileNotFoundError(path)
        start = path + "/"
        names = {
            name[len(start) :].partition("/")[0] for name in self.inodes if name.startswith(start)
        }
        names |= {
            name[len(start) :].partition("/")[0]
            for name in self.directories
            if name.startswith(start)
        }
        return sorted(names)

    def make_dir(self, path: str) -> None:
        # Directories are there at once and stay: what a log does not survive is not their absence.
        while path and path not in self.directories:
            self.directories.add(path)
            self.note("mkdir", path)
            path = path.rpartition("/")[0]

    def read(self, path: str) -> bytes:
        self.absorb_maps()
        return bytes(self._inode(path).content)

    def write_atomic(self, path: str, content: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append([content])
        file.sync()
        self.rename(temporary, path)
        self.sync_dir(path.rpartition("/")[0])

    def rename(self, source: str, target: str) -> None:
        self.absorb_maps()
        if source in self.directories:
            self._rename_directory(source, target)
            return
        self.inodes[target] = self._inode(source)
        del self.inodes[source]
        self.note("rename", source, target)

    def _rename_directory(self, source: str, target: str) -> None:
        self.directories.discard(source)
        self.directories.add(target)
        for path in [path for path in self.inodes if path.startswith(source + "/")]:
            self.inodes[target + path[len(source) :]] = self.inodes.pop(path)
        self.note("rename_dir", source, target)

    def remove(self, path: str) -> None:
        self._inode(path)
        del self.inodes[path]
        self.note("remove", path)

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.inodes if name.startswith(path + "/")]:
            self.remove(name)
        self.directories.discard(path)

    def sync_dir(self, path: str) -> None:
        self.absorb_maps()
        self.note("sync_dir", path)

    def lock(self, path: str) -> MemoryLock | None:
        if path in self._locked:
            return None
        self._locked.add(path)
        return MemoryLock(self._locked, path)

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def boot_id(self) -> str:
        return self._boot

    def _inode(self, path: str) -> Inode:
        inode = self.inodes.get(path)
        if inode is None:
            raise FileNotFoundError(path)
        return inode

    # -- for the tests ------------------------------------------------------------------------

    def contents(self) -> dict[str, bytes]:
        self.absorb_maps()
        return {path: bytes(inode.content) for path, inode in self.inodes.items()}

    def put(self, path: str, content: bytes) -> None:
        self.make_dir(path.rpartition("/")[0])
        inode = self._new_inode()
        inode.content[:] = content
        self.inodes[path] = inode


class _DiskFile:
    """What is known of one file: its last synced content, and every version since."""

    __slots__ = ("content", "durable", "sectors", "sizes")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytes(content)
        self.sectors: dict[int, list[bytes]] = {}
        self.sizes: list[int] = []

    def write(self, position: int, content: bytes) -> None:
        missing = position - len(self.content)
        if missing > 0:
            self.content.extend(bytes(missing))
        self.content[position : position + len(content)] = content
        self._touched(position, position + len(content))

    def truncate(self, size: int) -> None:
        before = len(self.content)
        if size < before:
            del self.content[size:]
        else:
            self.content.extend(bytes(size - before))
        self._touched(min(size, before), max(size, before))

    def _touched(self, start: int, end: int) -> None:
        if start < end:
            for sector in range(start // SECTOR, (end - 1) // SECTOR + 1):
                piece = bytes(self.content[sector * SECTOR : (sector + 1) * SECTOR])
                self.sectors.setdefault(sector, []).append(piece)
        self.sizes.append(len(self.content))

    def clone(self) -> _DiskFile:
        same = _DiskFile(self.durable)
        same.content = bytearray(self.content)
        same.sectors = {sector: list(pieces) for sector, pieces in self.sectors.items()}
        same.sizes = list(self.sizes)
        return same

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.sectors.clear()
        self.sizes.clear()

    def draw(self, chance: random.Random) -> bytes:
        """One of the contents that the disk may hold."""
        if not self.sizes:
            return self.durable
        size = self._draw_size(chance)
        content = bytearray(self.durable[:size])
        content.extend(bytes(size - len(content)))
        kept = chance.choice((0.0, 0.5, 0.9, 1.0))
        by_page = chance.random() < 0.5
        luck: dict[int, float] = {}
        for sector, versions in self.sectors.items():
            unit = sector // SECTORS_PER_PAGE if by_page else sector
            if luck.setdefault(unit, chance.random()) < kept:
                newest = chance.random() < 0.8
                piece = versions[-1] if newest else chance.choice(versions)
                start = sector * SECTOR
                piece = piece[: max(0, size - start)]
                content[start : start + len(piece)] = piece
        return bytes(content)

    def _draw_size(self, chance: random.Random) -> int:
        sizes = [len(self.durable), *self.sizes]
        at = len(sizes) - 1 if chance.random() < 0.5 else chance.randrange(len(sizes))
        size = sizes[at]
        if at and size > sizes[at - 1] and chance.random() < 0.2:
            # Within a write: the size is stored as its pages reach the disk.
            size = chance.randint(sizes[at - 1] // SECTOR, size // SECTOR) * SECTOR
            size = max(size, sizes[at - 1])
        return size


class DiskImage:
    """Follows a journal and can tell, at any point, what a power cut would leave."""

    def __init__(self) -> None:
        self._files: dict[int, _DiskFile] = {}
        self._directories: set[str] = {"/"}
        self._durable: dict[str, dict[str, int]] = {}
        self._unsynced: dict[str, list[Operation]] = {}
        self._names: dict[str, int] = {}
        self._renamed: dict[str, list[tuple[str, str]]] = {}
        """Directories with new names that are not synced, by the directory that they are in."""

    @classmethod
    def of(cls, files: MemoryFiles) -> DiskImage:
        """With all that `files` holds on the disk."""
        image = cls()
        image._directories = set(files.directories)
        for path, inode in files.inodes.items():
            image._files[inode.number] = _DiskFile(bytes(inode.content))
            image._durable.setdefault(_parent(path), {})[path] = inode.number
            image._names[path] = inode.number
        return image

    def clone(self) -> DiskImage:
        """Without the files that nothing can bring back."""
        same = DiskImage()
        same._directories = set(self._directories)
        same._durable = {path: dict(entries) for path, entries in self._durable.items()}
        same._unsynced = {path: list(operations) for path, operations in self._unsynced.items()}
        same._names = dict(self._names)
        same._renamed = {path: list(renames) for path, renames in self._renamed.items()}
        numbers = {number for entries in self._durable.values() for number in entries.values()}
        numbers |= set(self._names.values())
        for operations in self._unsynced.values():
            numbers |= {operation[2] for operation in operations if operation[0] == "create"}
        same._files = {number: self._files[number].clone() for number in numbers}
        return same

    def apply(self, operation: Operation) -> None:
        kind = operation[0]
        if kind == "write":
            self._files[operation[1]].write(operation[2], operation[3])
        elif kind == "truncate":
            self._files[operation[1]].truncate(operation[2])
        elif kind == "sync":
            self._files[operation[1]].sync()
        elif kind == "mkdir":
            self._directories.add(operation[1])
        elif kind == "sync_dir":
            self._sync_dir(operation[1])
        elif kind == "rename_dir":
            self._rename_dir(operation[1], operation[2])
        else:
            if kind == "create":
                self._files[operation[2]] = _DiskFile()
            self._unsynced.setdefault(_parent(operation[1]), []).append(operation)
            _change(self._names, operation)

    def _rename_dir(self, source: str, target: str) -> None:
        def moved(path: str) -> str:
            return target + path[len(source) :] if path.startswith(source + "/") else path

        self._directories.discard(source)
        self._directories.add(target)
        self._renamed.setdefault(_parent(source), []).append((source, target))
        # Of a directory that had this name and was removed: the file system keeps the order.
        self._durable.pop(target, None)
        self._unsynced.pop(target, None)
        self._names = {moved(path): number for path, number in self._names.items()}
        if source in self._durable:
            entries = self._durable.pop(source)
            self._durable[target] = {moved(path): number for path, number in entries.items()}
        if source in self._unsynced:
            self._unsynced[target] = [
                (kind, *(moved(part) if isinstance(part, str) else part for part in rest))
                for kind, *rest in self._unsynced.pop(source)
            ]

    def _sync_dir(self, path: str) -> None:
        self._renamed.pop(path, None)
        entries = self._durable.setdefault(path, {})
        for operation in self._unsynced.pop(path, []):
            _change(entries, operation)

    def after_power_cut(self, chance: random.Random, boot: str) -> MemoryFiles:
        contents: dict[int, bytes] = {}
        files = MemoryFiles(boot=boot)
        files.directories |= self._directories
        for directory in sorted({*self._durable, *self._unsynced}):
            entries = dict(self._durable.get(directory, {}))
            operations = self._unsynced.get(directory, [])
            for operation in operations[: _draw_prefix(len(operations), chance)]:
                _change(entries, operation)
            for path, number in entries.items():
                if number not in contents:
                    contents[number] = self._files[number].draw(chance)
                files.put(path, contents[number])
        for renames in self._renamed.values():
            for source, target in reversed(renames[_draw_prefix(len(renames), chance) :]):
                # One that was removed since, and another took its name, is gone.
                if target in files.directories:
                    files.rename(target, source)
        return files

    def after_kill(self, boot: str) -> MemoryFiles:
        """Only the process is gone: everything that was written is there."""
        files = MemoryFiles(boot=boot)
        files.directories |= self._directories
        for path, number in self._names.items():
            files.put(path, bytes(self._files[number].content))
        return files

    def revived(self, boot: str) -> MemoryFiles:
        """As after a kill, for another life: what it records can be applied here, on top of what
        the first one has left unsynced."""
        files = MemoryFiles(boot=boot, record=True)
        files.directories |= self._directories
        for path, number in self._names.items():
            files.inodes[path] = Inode(number, bytes(self._files[number].content))
        files._next_number = max(self._files, default=0)
        return files


def _draw_prefix(length: int, chance: random.Random) -> int:
    return length if chance.random() < 0.4 else chance.randint(0, length)


def _change(entries: dict[str, int], operation: Operation) -> None:
    kind = operation[0]
    if kind == "create":
        entries[operation[1]] = operation[2]
    elif kind == "rename":
        entries[operation[2]] = entries.pop(operation[1])
    elif kind == "remove":
        del entries[operation[1]]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
