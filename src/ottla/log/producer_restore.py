"""Brings the producer state to an offset: the latest usable snapshot, then the batches behind it.

Used when a log is opened and after a truncation. Reads only, except that a snapshot which can not
be read is removed.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.base.ports import Buffer, File, Files
from ottla.log import file_names, producer_snapshot
from ottla.log.batch_scan import next_offset, read_batch, scan_headers
from ottla.log.markers import read_marker
from ottla.log.producer_state import (
    BATCHES_KEPT,
    Batch,
    CompletedTransaction,
    ProducerEntry,
    ProducerStates,
    last_sequence_of,
)
from ottla.log.segment import Segment
from ottla.log.segment_list import SegmentList
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL_MASK,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    Header,
)


def load_snapshot(
    files: Files,
    directory: str,
    snapshots: list[int],
    producers: ProducerStates,
    *,
    log_start_offset: int,
    at_most: int,
    now_ms: int,
) -> None:
    """Loads the newest good snapshot up to `at_most`, or starts from nothing at the log start."""
    for offset in reversed(snapshots[: bisect_right(snapshots, at_most)]):
        if offset <= log_start_offset:
            break
        path = file_names.segment_path(directory, offset, file_names.SNAPSHOT)
        entries = producer_snapshot.decode(files.read(path))
        if entries is not None:
            producers.load(entries, offset, now_ms)
            return
        files.remove(path)
        snapshots.remove(offset)
    producers.clear(min(log_start_offset, at_most))


def replay_segments(
    segments: list[Segment], producers: ProducerStates, until: int, now_ms: int
) -> None:
    """Replays the batches from the state's own end up to `until`."""
    start = producers.end_offset
    if start >= until:
        return
    bases = [segment.base_offset for segment in segments]
    for segment in segments[max(0, bisect_right(bases, start) - 1) :]:
        if segment.base_offset >= until:
            break
        file = segment.open_file()
        position = segment.position_of(start) if start > segment.base_offset else 0
        for at, header in scan_headers(file, position, segment.size, segment.base_offset):
            if header[BASE_OFFSET] >= until:
                break
            replay_header(producers, header, file, at, now_ms)
    producers.end_offset = until


def replay_header(
    producers: ProducerStates, header: Header, file: File, position: int, now_ms: int
) -> CompletedTransaction | None:
    batch: Buffer = b""
    if header[ATTRIBUTES] & CONTROL_MASK and header[PRODUCER_ID] >= 0:
        batch = read_batch(file, position, header)
    return replay_batch(producers, header, batch, now_ms)


def replay_batch(
    producers: ProducerStates, header: Header, batch: Buffer, now_ms: int
) -> CompletedTransaction | None:
    """One stored batch. Nothing is checked: whoever wrote it has done that."""
    producers.end_offset = next_offset(header)
    if header[PRODUCER_ID] < 0:
        return None
    if not header[ATTRIBUTES] & CONTROL_MASK:
        producers.update(header, header[BASE_OFFSET], now_ms)
        return None
    marker = read_marker(batch)
    if marker is None:
        return None
    return producers.update_marker(header, header[BASE_OFFSET], marker, now_ms)


RECALL_BYTES_MAX = 4 * 1024 * 1024
"""How far back to look: five batches of a producer that was busy when the broker stopped."""


def recall_batches(entry: ProducerEntry, segments: SegmentList) -> bool:
    """Finds the batches that a snapshot did not hold; whether there was something to find."""
    if entry.complete:
        return False
    entry.complete = True
    known = entry.batches
    segment = segments.holding(known[0][1])
    if segment is not None:
        entry.batches = (_earlier_batches(segment, entry) + known)[-BATCHES_KEPT:]
    return True


def _earlier_batches(segment: Segment, entry: ProducerEntry) -> list[Batch]:
    """The batches of the entry's epoch before the first one it knows, oldest first."""
    file = segment.open_file()
    first_known = entry.batches[0]
    end = segment.position_of(first_known[1] - first_known[2])
    start = segment.offset_index.position_at_most(max(0, end - RECALL_BYTES_MAX))
    found = []
    for _, header in scan_headers(file, start, end, segment.base_offset):
        if header[PRODUCER_ID] != entry.producer_id or header[PRODUCER_EPOCH] != entry.epoch:
            continue
        if not header[ATTRIBUTES] & CONTROL_MASK:
            delta = header[LAST_OFFSET_DELTA]
            last_sequence = last_sequence_of(header[BASE_SEQUENCE], delta)
            last_offset = header[BASE_OFFSET] + delta
            found.append((last_sequence, last_offset, delta, header[MAX_TIMESTAMP]))
    return found
