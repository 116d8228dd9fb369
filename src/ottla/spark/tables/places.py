"""A directory on a local disk or an object store, by Arrow's file systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

# Hadoop's names of a scheme, and Arrow's.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def files_at(location: str) -> tuple[Any, str]:
    """The file system of a path or a URI such as s3://bucket/path, and the path there."""
    scheme, mark, rest = location.partition("://")
    if mark or location.startswith("file:"):
        known = f"{_SCHEMES[scheme]}://{rest}" if scheme in _SCHEMES else location
        files, path = pafs.FileSystem.from_uri(known)
        return files, str(path)
    return pafs.LocalFileSystem(), str(Path(location).absolute())


class Place:
    """`location` is a path or a URI."""

    def __init__(self, location: str) -> None:
        self._files, self._root = files_at(location)
        self.is_local = isinstance(self._files, pafs.LocalFileSystem)

    def path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def read(self, name: str) -> bytes:
        with self._files.open_input_stream(self.path(name)) as stream:
            return bytes(stream.read())

    def exists(self, name: str) -> bool:
        found = self._files.get_file_info(self.path(name))
        return bool(found.type != pafs.FileType.NotFound)

    def names(self, directory: str) -> list[str]:
        """Of the files directly in it."""
        selector = pafs.FileSelector(self.path(directory), allow_not_found=True)
        return sorted(one.base_name for one in self._files.get_file_info(selector) if one.is_file)

    def create(self, name: str, data: bytes) -> bool:
        """Whole, and only if it is not there: False if it is. On object stores two who do this at
        the same moment may both think that they were first."""
        self._files.create_dir(str(Path(self.path(name)).parent), recursive=True)
        if self.is_local:
            draft = Path(f"{self.path(name)}.{os.getpid()}")
            draft.write_bytes(data)
            try:
                os.link(draft, self.path(name))
            except FileExistsError:
                return False
            finally:
                draft.unlink()
            return True
        if self.exists(name):
            return False
        with self._files.open_output_stream(self.path(name)) as stream:
            stream.write(data)
        return True

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        self._files.create_dir(str(Path(self.path(name)).parent), recursive=True)
        with self._files.open_output_stream(self.path(name)) as stream:
            yield stream

    def move(self, source: str, target: str) -> bool:
        """False when it is not there: somebody has moved it already."""
        try:
            self._files.move(self.path(source), self.path(target))
        except FileNotFoundError:
            return False
        return True

    def remove(self, name: str) -> None:
        try:
            self._files.delete_file(self.path(name))
        except FileNotFoundError:
            return
