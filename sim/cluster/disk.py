"""The disk of one broker, over its lives: what a killed process wrote stays, a power cut takes any
part of what was not synced.

`MemoryFiles` knows how; here is what makes it fast enough for thousands of small histories: where
no power cut is planned, nothing is recorded and mappings are looked at only when they have to be.
"""

from __future__ import annotations

from random import Random

from tests.chaos.memory_files import DiskImage, Inode, MemoryFile, MemoryFiles, MemoryMap


class SimulatedMap(MemoryMap):
    files: SimulatedFiles

    def flush(self) -> None:
        self.files.absorb_now()
        super().flush()

    def close(self) -> None:
        self.files.absorb_now()
        super().close()


class SimulatedFile(MemoryFile):
    __slots__ = ()

    def map(self, size: int) -> MemoryMap:
        self._files.absorb_maps()
        mapped = SimulatedMap(self._inode.content[:size])
        mapped.inode = self._inode
        assert isinstance(self._files, SimulatedFiles)
        mapped.files = self._files
        self._inode.maps.append(mapped)
        self._files.mapped[self._inode] = None
        return mapped


class SimulatedFiles(MemoryFiles):
    def absorb_maps(self) -> None:
        if self.record:
            super().absorb_maps()

    def absorb_now(self) -> None:
        super().absorb_maps()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        inode = super().open(path, create=create)._inode
        return SimulatedFile(self, inode)

    def let_go(self) -> None:
        """The process that had them open is gone; what it had written into mappings stays."""
        self.absorb_now()
        for inode in self.mapped:
            inode.maps.clear()
        self.mapped.clear()
        self._locked.clear()


class Disk:
    def __init__(self, broker_id: int, *, records: bool) -> None:
        self._broker_id = broker_id
        self._boots = 0
        self._records = records
        self._image = DiskImage()
        self.files = self._made({}, {"/"})

    def _made(self, inodes: dict[str, Inode], directories: set[str]) -> SimulatedFiles:
        files = SimulatedFiles(boot=f"boot-{self._broker_id}-{self._boots}", record=self._records)
        files.inodes = inodes
        files.directories |= directories
        files._next_number = max((inode.number for inode in inodes.values()), default=0)
        return files

    def kill(self) -> None:
        """Of the process."""
        self.files.let_go()

    def cut_power(self, chance: Random) -> None:
        self.files.let_go()
        for operation in self.files.journal:
            self._image.apply(operation)
        self._boots += 1
        left = self._image.after_power_cut(chance, "")
        self.files = self._made(left.inodes, left.directories)
        self._image = DiskImage.of(self.files)
