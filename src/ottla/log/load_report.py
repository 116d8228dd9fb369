"""What was found when a partition's log was opened, for the operator and for the tests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class LoadReport:
    """`corrupt` is None, or says in a sentence why the log must not be served or written.

    Nothing on the disk is changed by a load that ends in that verdict, except for leftovers.
    """

    directory: str
    clean: bool
    log_start_offset: int = 0
    log_end_offset: int = 0
    segments: int = 0
    segments_recovered: int = 0
    indexes_rebuilt: int = 0
    bytes_cut: int = 0
    cut_segment: int | None = None
    """Base offset of the segment whose tail was torn."""
    cut_offset: int | None = None
    """Offset of the first batch that is gone."""
    flushed_lost: int = 0
    """Offsets below the recovery point that are gone; not 0 means that the disk has lied, or that
    the power went between a truncation and the checkpoint after it."""
    deleted_paths: list[str] = field(default_factory=list)
    """Files renamed to `.deleted`, for the caller to remove when it likes."""
    corrupt: str | None = None
    notes: list[str] = field(default_factory=list)
