"""Goal: killed or cut off from power at any moment, a cleaning leaves the old segments or the new
ones, never a mix, and what a reader finds in the end is what a dictionary would hold.
Method: as in `test_crash_states`, over lives full of cleanings (see `compaction_world`). Then bugs
are planted, one at a time, and each has to be found. The long run takes OTTLA_CRASH_STATES=20000.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import OttlaError
from ottla.base.ports import Files
from ottla.log import (
    compaction,
    compaction_plan,
    compaction_swap,
    file_names,
    leftovers,
    partition_log,
)
from ottla.log.compaction_filter import BatchFilter
from ottla.log.compaction_swap import CleanedFiles, Cleaning
from ottla.log.compaction_writer import SegmentWriter
from ottla.log.durability import Durability
from ottla.log.index_build import IndexBuilder
from ottla.log.segment import Segment
from tests.chaos import compaction_world
from tests.chaos.compaction_world import CompactingLife, Violation, judge_states
from tests.chaos.memory_files import MemoryFile, MemoryFiles
from tests.seeds import seed_for

STATES = max(1_000, int(os.environ.get("OTTLA_CRASH_STATES", "0")))
ACTIONS_PER_LIFE = 60
STATES_PER_LIFE = 40
PLANTED_STATES_MAX = 15_000  # one of the bugs shows in every twentieth life only


def judge_many(seed: int, count: int) -> int:
    judged = number = 0
    while judged < count:
        chance = random.Random(seed + number)
        life = CompactingLife(files=MemoryFiles(record=True), chance=random.Random(seed + number))
        try:
            life.live(ACTIONS_PER_LIFE)
            judged += judge_states(life, chance, min(STATES_PER_LIFE, count - judged))
        except Violation as violation:
            violation.add_note(f"run again with seed {seed + number}")
            raise
        number += 1
    return judged


def test_every_state_a_crash_may_leave_is_old_or_new() -> None:
    assert judge_many(seed_for("compaction crash states"), STATES) >= STATES


def test_the_lives_are_full_of_cleanings() -> None:
    seed = seed_for("compaction crash states")
    notes: list[str] = []
    for number in range(5):
        life = CompactingLife(files=MemoryFiles(record=True), chance=random.Random(seed + number))
        life.live(ACTIONS_PER_LIFE)
        notes += [step.moment.note for step in life.steps]
    for note in ("committed", "in place and synced", "cleaned", "cancelled", "given up"):
        assert note in notes


# -- planted bugs ---------------------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def cleaned_files_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = SegmentWriter.finish

    def finish(writer: SegmentWriter, extent: int | None) -> CleanedFiles | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MemoryFile, "sync", lambda file: None)
            return real(writer, extent)

    patch.setattr(SegmentWriter, "finish", finish)


def old_files_go_before_the_new_ones_are_committed(patch: pytest.MonkeyPatch) -> None:
    def commit(cleaning: Cleaning, cleaned: CleanedFiles) -> None:
        return None

    def swap(
        files: Files, replaced: list[Segment], cleaned: CleanedFiles, durability: Durability
    ) -> list[str]:
        paths = [path for segment in replaced for path in segment.mark_deleted()]
        for suffix in cleaned.suffixes:
            files.rename(cleaned.path(suffix, file_names.CLEANED), cleaned.path(suffix))
        return paths

    patch.setattr(Cleaning, "commit", commit)
    patch.setattr(partition_log, "swap_files", swap)


def the_log_is_renamed_last(patch: pytest.MonkeyPatch) -> None:
    """The indexes of the old segment serve the new log, or the other way round."""

    def rename_all(cleaned: CleanedFiles, files: Files, source: str, target: str) -> None:
        for suffix in reversed(cleaned.suffixes):
            files.rename(cleaned.path(suffix, source), cleaned.path(suffix, target))

    def put_in_place(files: Files, directory: str, swaps: list[str], extents: object) -> None:
        for name in swaps:
            files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix('.swap')}")

    patch.setattr(CleanedFiles, "rename_all", rename_all)
    patch.setattr(leftovers, "_put_in_place", put_in_place)


def a_start_throws_the_committed_away(patch: pytest.MonkeyPatch) -> None:
    def put_in_place(files: Files, directory: str, swaps: list[str], extents: object) -> None:
        for name in swaps:
            files.remove(f"{directory}/{name}")

    patch.setattr(leftovers, "_put_in_place", put_in_place)


def a_start_takes_what_was_not_committed(patch: pytest.MonkeyPatch) -> None:
    real = leftovers.tidy

    def tidy(files: Files, directory: str, names: list[str]) -> list[str]:
        for name in names:
            if name.endswith(".log.cleaned"):
                swapped = name.replace(".cleaned", ".swap")
                files.rename(f"{directory}/{name}", f"{directory}/{swapped}")
        return real(files, directory, files.list_dir(directory))

    patch.setattr(leftovers, "tidy", tidy)


def what_is_replaced_is_told_by_what_is_left(patch: pytest.MonkeyPatch) -> None:
    """As Kafka has it: segments of which nothing was left come back."""
    real = SegmentWriter.finish
    patch.setattr(SegmentWriter, "finish", lambda writer, extent: real(writer, None))


def gaps_above_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Without the checkpoint of the recovery point, a recovery takes gaps for losses."""
    patch.setattr(compaction_world.CompactingLife, "checkpoint_before_cleaning", lambda life: None)


def a_cancelled_swap_is_left(patch: pytest.MonkeyPatch) -> None:
    def cancel(cleaning: Cleaning) -> None:
        cleaning.cancelled = True

    patch.setattr(Cleaning, "cancel", cancel)


def producers_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchFilter, "_is_last_of_producer", lambda batch_filter, header: False)


def later_groups_are_swapped_first(patch: pytest.MonkeyPatch) -> None:
    """With tombstones that go at once, a key that was deleted comes back."""
    real = compaction_plan.group_sources
    patch.setattr(compaction, "group_sources", lambda *given: list(reversed(real(*given))))


def tombstones_go_at_once_without_what_they_delete(patch: pytest.MonkeyPatch) -> None:
    real = BatchFilter._is_kept

    def is_kept(batch_filter: BatchFilter, columns: Any, headers: Any, has_value: Any) -> Any:
        return real(batch_filter, columns, headers, has_value) & has_value

    real_map = compaction.LogCleaning._map_keys

    def map_keys(job: Any, hashes: Any, offsets: Any) -> bool:
        return real_map(job, hashes[:-1], offsets[:-1])

    patch.setattr(BatchFilter, "_is_kept", is_kept)
    patch.setattr(compaction.LogCleaning, "_map_keys", map_keys)


def indexes_are_one_batch_off(patch: pytest.MonkeyPatch) -> None:
    real = IndexBuilder.add
    previous: list[Any] = [None]

    def add(builder: IndexBuilder, position: int, header: Any) -> None:
        real(builder, position, previous[0] or header)
        previous[0] = header

    patch.setattr(IndexBuilder, "add", add)


def the_latest_is_taken_for_the_first(patch: pytest.MonkeyPatch) -> None:
    real = compaction.LogCleaning._map_keys

    def map_keys(job: Any, hashes: Any, offsets: Any) -> bool:
        return real(job, hashes[::-1], offsets[::-1].copy())

    patch.setattr(compaction.LogCleaning, "_map_keys", map_keys)


def the_list_changes_before_the_files(patch: pytest.MonkeyPatch) -> None:
    """A reader opens the old file by the new segment's name."""
    real = compaction_swap.swap_files
    waiting: list[Callable[[], list[str]]] = []

    def swap(*given: Any) -> list[str]:
        while waiting:
            waiting.pop()()
        waiting.append(lambda: real(*given))
        return []

    patch.setattr(partition_log, "swap_files", swap)


PLANTED: list[Patch] = [
    cleaned_files_are_not_synced,
    old_files_go_before_the_new_ones_are_committed,
    the_log_is_renamed_last,
    a_start_throws_the_committed_away,
    a_start_takes_what_was_not_committed,
    what_is_replaced_is_told_by_what_is_left,
    gaps_above_the_checkpoint,
    a_cancelled_swap_is_left,
    producers_are_forgotten,
    later_groups_are_swapped_first,
    tombstones_go_at_once_without_what_they_delete,
    indexes_are_one_batch_off,
    the_latest_is_taken_for_the_first,
    the_list_changes_before_the_files,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    # A bug shows as a broken promise, or as a log room that trips over its own files.
    with pytest.raises((Violation, OttlaError, AssertionError, OSError)):
        judge_many(seed_for("planted compaction"), PLANTED_STATES_MAX)
