"""OSError becomes StorageError at the door of this room, with what was being done."""

from __future__ import annotations

from types import TracebackType

from ottla.base.errors import StorageError


class storing:
    """`with storing(path, operation):` whatever the disk refuses inside is a StorageError."""

    __slots__ = ("_operation", "_path")

    def __init__(self, path: str, operation: str) -> None:
        self._path = path
        self._operation = operation

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(failure, OSError):
            raise StorageError(self._path, self._operation) from failure
