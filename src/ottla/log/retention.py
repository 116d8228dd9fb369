"""Which segments may go, by log start, by size and by time; and how they go.

Whole segments from the oldest on, never one that reaches above `upper_bound` (the high watermark),
and never behind one that stays. The active segment may be among them; then the log rolls first.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from ottla.log.durability import Durability
from ottla.log.log_config import LogConfig
from ottla.log.segment import Segment
from ottla.log.segment_list import SegmentList

BELOW_LOG_START = "log start offset"
OVER_SIZE = "retention.bytes"
OVER_AGE = "retention.ms"


@dataclass(slots=True)
class DeletedSegment:
    """A segment that is no longer part of the log; `paths` are its renamed files."""

    base_offset: int
    size: int
    paths: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LogExtent:
    """What the decision depends on, besides the segments and the settings."""

    log_start_offset: int
    log_end_offset: int
    size: int
    upper_bound: int
    now_ms: int


def expired(
    segments: list[Segment], config: LogConfig, extent: LogExtent
) -> list[tuple[Segment, str]]:
    """The segments to delete, oldest first, each with the setting that says so."""
    found: list[tuple[Segment, str]] = []
    # -1 when sizes do not matter: no segment is that small.
    excess = extent.size - config.retention_bytes if config.retention_bytes >= 0 else -1
    for number, segment in enumerate(segments):
        is_active = number == len(segments) - 1
        end = extent.log_end_offset if is_active else segments[number + 1].base_offset
        if end > extent.upper_bound or (is_active and segment.size == 0):
            break
        reason = _reason(segment, end, is_active, config, extent, excess)
        if reason is None:
            break
        found.append((segment, reason))
        excess -= segment.size
    return found


def _reason(
    segment: Segment,
    end: int,
    is_active: bool,
    config: LogConfig,
    extent: LogExtent,
    excess: int,
) -> str | None:
    if end <= extent.log_start_offset and not is_active:
        return BELOW_LOG_START
    if "delete" not in config.cleanup_policy:
        return None
    if excess >= segment.size:
        return OVER_SIZE
    if config.retention_ms >= 0:
        age_ms = extent.now_ms - segment.largest_timestamp()
        if age_ms > config.retention_ms:
            return OVER_AGE
    return None


def delete_below(
    log_start_offset: int, segments: SegmentList, durability: Durability
) -> list[DeletedSegment]:
    """Takes those out that end at the log start or before it; their files are renamed."""
    deleted = []
    for _ in range(bisect_right(segments.bases, log_start_offset) - 1):
        segment = segments.take_oldest()
        paths = segment.mark_deleted() + durability.segment_deleted(segment)
        deleted.append(DeletedSegment(segment.base_offset, segment.size, paths))
    return deleted
