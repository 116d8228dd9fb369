"""What an interrupted deletion, cleaning or atomic write may have left in a partition directory.

`.deleted`, `.cleaned` and `.tmp` files go. A `.swap` file is the finished result of a cleaning that
was being put in place: the segments it replaces go, and it takes its proper name; unless a
`.cleaned` file with the same offset or a lower one shows that the cleaning was not finished after
all, then the old segments are still whole and the swap goes. Each step may be interrupted and is
then done again; a sync of the directory stands between steps whose order matters.

What a swap replaces is told by its `.extent` file; without one, as Kafka leaves it, by where its
log begins and ends. The log is the first to take its name: where that has happened, what is left of
the swap takes its names too and nothing else goes.
"""

from __future__ import annotations

from ottla.base.errors import OttlaError
from ottla.base.ports import Files
from ottla.log import file_names
from ottla.log.batch_scan import next_offset, scan_headers


def tidy(files: Files, directory: str, names: list[str]) -> list[str]:
    """Cleans up; returns the names that are there afterwards.

    OttlaError, with nothing changed, if it can not be told what a finished cleaning replaces.
    """
    if not any(_is_leftover(name) for name in names):
        return names
    unfinished = [_offset(name) for name in names if name.endswith(file_names.CLEANED)]
    first_unfinished = min(unfinished, default=None)
    swaps: list[str] = []
    void: list[str] = []
    for name in names:
        if name.endswith(file_names.SWAP):
            counts = first_unfinished is None or _offset(name) < first_unfinished
            (swaps if counts else void).append(name)
    extents = _extents(files, directory, swaps)
    for name in void:
        files.remove(f"{directory}/{name}")
    # The swaps first: as long as a `.cleaned` is there, they are known to be void.
    files.sync_dir(directory)
    for name in names:
        if name.endswith((file_names.DELETED, file_names.CLEANED, file_names.TEMPORARY)):
            files.remove(f"{directory}/{name}")
    if swaps:
        _put_in_place(files, directory, swaps, extents)
    files.sync_dir(directory)
    return files.list_dir(directory)


def _is_leftover(name: str) -> bool:
    return name.endswith(
        (file_names.DELETED, file_names.CLEANED, file_names.SWAP, file_names.TEMPORARY)
    )


def _offset(name: str) -> int:
    offset = file_names.offset_of(name)
    return -1 if offset is None else offset


def _extents(files: Files, directory: str, swaps: list[str]) -> dict[str, int]:
    """The offset behind the last segment that each swap with an `.extent` replaces."""
    behind = {}
    for name in swaps:
        if name.endswith(file_names.EXTENT + file_names.SWAP):
            content = files.read(f"{directory}/{name}")
            if not content.strip().isdigit():
                # Old and new segments are both there, and to guess may lose records.
                raise OttlaError(f"{directory}/{name} does not say what the cleaning replaces")
            behind[name] = int(content)
    return behind


def _put_in_place(files: Files, directory: str, swaps: list[str], extents: dict[str, int]) -> None:
    log_swaps = [name for name in swaps if name.endswith(file_names.LOG + file_names.SWAP)]
    if log_swaps:
        first = min(_offset(name) for name in log_swaps)
        behind = max(_end_of(files, f"{directory}/{name}", _offset(name)) for name in log_swaps)
        behind = max([behind, *(extents[name] for name in swaps if name in extents)])
        for name in files.list_dir(directory):
            replaced = first <= _offset(name) < behind
            if replaced and file_names.suffix_of(name) in file_names.SEGMENT_SUFFIXES:
                files.remove(f"{directory}/{name}")
        files.sync_dir(directory)
    for name in sorted(swaps, key=lambda swap: swap not in log_swaps):
        if name not in extents:
            target = name.removesuffix(file_names.SWAP)
            files.rename(f"{directory}/{name}", f"{directory}/{target}")
    for name in swaps:
        if name in extents:
            files.remove(f"{directory}/{name}")


def _end_of(files: Files, path: str, base_offset: int) -> int:
    file = files.open(path)
    end = base_offset + 1
    for _, header in scan_headers(file, 0, file.size(), base_offset):
        end = next_offset(header)
    file.close()
    return end
