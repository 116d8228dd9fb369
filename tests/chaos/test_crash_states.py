"""Goal: whatever a crash leaves of the log's files, recovery makes a log of it that kept its word.

Method: record every file operation of a random workload, take prefixes of that record and, of what
was not synced, random subsets torn at sectors and pages; open each such state and hold it against
the model (see `crash_world`). Some are crashed again while they recover. The long run takes
OTTLA_CRASH_STATES=20000. Then bugs are planted, one at a time, and each has to be found: a test
that can not fail proves nothing.
"""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import OttlaError
from ottla.log import (
    batch_scan,
    index_build,
    open_log,
    partition_log,
    producer_restore,
    recovery,
)
from ottla.log.durability import Durability
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_names import LOG
from ottla.log.flush import FlushJob
from ottla.log.log_dir import LogDir
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import Recovery
from ottla.log.segment import Segment
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import read_header
from tests.chaos.crash_world import (
    MANY_TRUNCATIONS,
    USUAL,
    Violation,
    Workload,
    judge_states,
    open_partition,
    read_back,
)
from tests.chaos.memory_files import MemoryFiles
from tests.seeds import seed_for

STATES = int(os.environ.get("OTTLA_CRASH_STATES", "2000"))
ACTIONS_PER_RUN = 40
STATES_PER_RUN = 40
PLANTED_STATES_MAX = 10_000


def judge_many(seed: int, count: int, weights: tuple[int, ...] = USUAL) -> int:
    judged = 0
    run = 0
    while judged < count:
        chance = random.Random(seed + run)
        workload = Workload(random.Random(seed + run), weights=weights)
        workload.run(ACTIONS_PER_RUN)
        try:
            judged += judge_states(workload, chance, min(STATES_PER_RUN, count - judged))
        except Violation as violation:
            violation.add_note(f"run again with seed {seed + run}")
            raise
        run += 1
    return judged


def test_every_state_a_crash_may_leave_recovers() -> None:
    assert judge_many(seed_for("crash states"), STATES) >= STATES


def test_the_judge_sees_a_broken_batch_behind_one_of_the_same_size() -> None:
    """It once took the batch before for the broken one, and read the same place for ever."""
    files = MemoryFiles()
    log = open_partition(files).log
    for _ in range(2):
        batch = build_batch([RecordToWrite(1_000, None, bytes(700))])
        log.append(bytearray(batch), read_header(batch), 0, now_ms=1_000_000)
    files.inodes[log._segments.items[-1].path(LOG)].content[-1] ^= 1
    with pytest.raises(Violation, match="L2: a broken batch at offset 1"):
        read_back(log)


# -- planted bugs ---------------------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def flush_without_sync(patch: pytest.MonkeyPatch) -> None:
    def run(job: FlushJob) -> None:
        for path, content in job.documents:
            job._files.write_atomic(path, content)

    patch.setattr(FlushJob, "run", run)


def checkpoint_ahead_of_data(patch: pytest.MonkeyPatch) -> None:
    real = PartitionLog.flush_done

    def moved_to_the_end(log: PartitionLog, job: FlushJob) -> None:
        real(log, job)
        log.recovery_point = log.log_end_offset

    patch.setattr(PartitionLog, "flush_done", moved_to_the_end)


def rename_without_directory_sync(patch: pytest.MonkeyPatch) -> None:
    def write(files: MemoryFiles, path: str, content: bytes) -> None:
        file = files.open(path + ".tmp", create=True)
        file.truncate(0)
        file.append([content])
        file.sync()
        files.rename(path + ".tmp", path)

    patch.setattr(MemoryFiles, "write_atomic", write)


def truncation_leaves_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochCache, "truncate_from_end", lambda cache, end_offset: None)


def truncation_leaves_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    real = Workload._checkpoint

    def unless_truncated(workload: Workload) -> None:
        if workload.moment.note != "truncate":
            real(workload)

    patch.setattr(Workload, "_checkpoint", unless_truncated)


def snapshot_ahead_of_log(patch: pytest.MonkeyPatch) -> None:
    real = producer_restore.load_snapshot

    def newest(*arguments: Any, at_most: int, **options: Any) -> None:
        real(*arguments, at_most=2**60, **options)

    patch.setattr(open_log, "load_snapshot", newest)
    patch.setattr(partition_log, "load_snapshot", newest)


def snapshot_survives_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Durability, "_remove_snapshots", lambda durability, offsets: None)
    patch.setattr(open_log._Loading, "_forget_snapshots_above", lambda loading, offset: None)


def recovery_believes_every_crc(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_scan, "crc_holds", lambda batch, header: True)


def recovery_keeps_later_segments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_drop", lambda recovering, later: None)


def recovery_trusts_indexes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "replace_content", lambda files, path, content: False)


def recovery_trusts_an_index_up_to_the_recovery_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(open_log, "bisect_right", lambda bases, offset: bisect_right(bases, offset + 1))


def indexes_are_never_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Durability, "segment_sealed", lambda durability, segment: None)


def no_last_entry_in_the_time_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "seal", lambda segment: None)


def clean_marker_is_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogDir, "begin", lambda log_dir: None)


def index_is_sparser_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    real = Segment.prepare_append

    def forgetful(segment: Segment) -> None:
        real(segment)
        segment._bytes_since_entry = 0

    patch.setattr(Segment, "prepare_append", forgetful)


def indexes_are_written_wrong(patch: pytest.MonkeyPatch) -> None:
    def shifted(builder: Any, position: int, header: Any) -> None:
        real(builder, position + 1, header)

    real = index_build.IndexBuilder.add
    patch.setattr(index_build.IndexBuilder, "add", shifted)


def epochs_begin_with_what_was_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(open_log._Loading, "_cover_start", lambda loading: None)


PLANTED: list[Patch] = [
    flush_without_sync,
    checkpoint_ahead_of_data,
    rename_without_directory_sync,
    truncation_leaves_epochs,
    truncation_leaves_the_checkpoint,
    snapshot_ahead_of_log,
    snapshot_survives_truncation,
    recovery_believes_every_crc,
    recovery_keeps_later_segments,
    recovery_trusts_indexes,
    recovery_trusts_an_index_up_to_the_recovery_point,
    indexes_are_never_synced,
    no_last_entry_in_the_time_index,
    clean_marker_is_left,
    index_is_sparser_after_a_restart,
    indexes_are_written_wrong,
    epochs_begin_with_what_was_flushed,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    weights = MANY_TRUNCATIONS if "truncation" in plant.__name__ else USUAL
    # A bug shows as a broken invariant, or as a log room that trips over its own files.
    with pytest.raises((Violation, OttlaError, AssertionError, OSError)):
        judge_many(seed_for("planted"), PLANTED_STATES_MAX, weights)
