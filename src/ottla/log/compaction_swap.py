"""Puts a cleaned segment in the place of those it was made from, so that whoever reads meanwhile,
and whoever opens the log after a crash at any moment, finds the old ones or the new one.

All names change on the loop; the pool only writes `.cleaned` files and syncs. Step by step:

1. the pool writes the `.cleaned` files, syncs them and the directory;
2. `commit` renames them to `.swap`, the log first; from the last rename on the new one counts;
3. the pool syncs the directory;
4. `put_in_place` renames the old files to `.deleted` and the `.swap` files to their own names, the
   log first, and changes the list of segments, in one step of the loop;
5. the pool syncs the directory; the `.deleted` files are removed some time later.

A restart does what is left to do (`leftovers`). As long as one `.cleaned` file is there, nothing
has been committed. What a committed segment replaces can not be told from what is in it, since its
end may have been cleaned away: where it replaces several, an `.extent` file tells, until they are
gone. (Kafka has no such thing: interrupted at the wrong moment it leaves a mix.) A log that is
truncated meanwhile takes back what is committed but not in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.base.ports import Files
from ottla.log import file_names
from ottla.log.durability import Durability
from ottla.log.segment import Segment
from ottla.log.storage_errors import storing


@dataclass(slots=True)
class CleanedFiles:
    """The files of a cleaned segment: `<directory>/<base offset><suffix>.cleaned`, then `.swap`."""

    directory: str
    base_offset: int
    size: int
    suffixes: list[str]
    """The log first; where it replaces several segments, the extent last."""

    def path(self, suffix: str, stage: str = "") -> str:
        return file_names.segment_path(self.directory, self.base_offset, suffix) + stage

    def rename_all(self, files: Files, source: str, target: str) -> None:
        for suffix in self.suffixes:
            files.rename(self.path(suffix, source), self.path(suffix, target))


class Cleaning:
    """A cleaning under way, as the log knows it. `cancelled` is read by the pool, too."""

    __slots__ = ("_committed", "_files", "cancelled")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._committed: CleanedFiles | None = None
        self.cancelled = False

    def commit(self, cleaned: CleanedFiles) -> None:
        with storing(cleaned.directory, "commit a cleaned segment"):
            cleaned.rename_all(self._files, file_names.CLEANED, file_names.SWAP)
        self._committed = cleaned

    def is_in_place(self) -> None:
        """What was committed has its own names now, and stays whatever comes."""
        self._committed = None

    def cancel(self) -> None:
        """Nothing of what is under way may be put in place any more, not by a restart either."""
        self.cancelled = True
        cleaned, self._committed = self._committed, None
        if cleaned is None:
            return
        files = self._files
        log, *indexes = cleaned.suffixes
        # With a `.cleaned` beside them the others are void before they are gone.
        files.rename(cleaned.path(log, file_names.SWAP), cleaned.path(log, file_names.CLEANED))
        files.sync_dir(cleaned.directory)
        for suffix in indexes:
            files.remove(cleaned.path(suffix, file_names.SWAP))
        files.sync_dir(cleaned.directory)
        files.remove(cleaned.path(log, file_names.CLEANED))


def swap_files(
    files: Files, replaced: list[Segment], cleaned: CleanedFiles, durability: Durability
) -> list[str]:
    """The names of step 4; returns the new paths of the old files. A snapshot of producers stays
    only where a segment begins."""
    first, *others = replaced
    paths = [path for segment in replaced for path in segment.mark_deleted()]
    durability.segment_replaced(first)
    for segment in others:
        paths += durability.segment_deleted(segment)
    for suffix in cleaned.suffixes:
        if suffix == file_names.EXTENT:
            files.remove(cleaned.path(suffix, file_names.SWAP))
        else:
            files.rename(cleaned.path(suffix, file_names.SWAP), cleaned.path(suffix))
    return paths
