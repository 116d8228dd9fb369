"""`ottla.corrupt` in a partition's directory: what is stored there has rotted, and is not opened.

Found by a scrub, it may lie where no recovery looks; without the mark the next start would serve it
again. It holds the sentence for the operator, and goes with the directory when that is set aside.
Whoever removes it says that the records are right again.
"""

from __future__ import annotations

from ottla.base.ports import Files
from ottla.log.storage_errors import storing

NAME = "ottla.corrupt"


def write_mark(files: Files, directory: str, reason: str) -> None:
    """On the disk when it returns."""
    with storing(directory, "mark as corrupt"):
        files.write_atomic(f"{directory}/{NAME}", f"{reason}\n".encode())


def read_mark(files: Files, directory: str) -> str | None:
    """Why the partition there must not be opened; None if nobody has said so."""
    path = f"{directory}/{NAME}"
    with storing(path, "read"):
        if not files.exists(path):
            return None
        reason = files.read(path).decode("utf-8", "replace").strip()
    return f"{reason}; {path} says so, and the partition stays offline as long as it is there"
