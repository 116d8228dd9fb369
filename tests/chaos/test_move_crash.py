"""Goal: whatever a crash leaves of a replica that moves to another log dir, it is there once, with
all that was promised, and the move goes on or is over.

Method: record every file operation of a life with many moves, build the states that a crash may
leave at random moments, and start a broker on each (see `move_world`). Then bugs are planted, one
at a time, and each has to be found.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.log import move_count, relocation
from ottla.log.durability import Durability
from ottla.log.log_dir import LogDir
from ottla.log.partition_log import PartitionLog
from ottla.log.relocation import Piece, Relocation
from ottla.runtime import replica_mover
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.log_upkeep import LogUpkeep
from ottla.runtime.replica_mover import Move, ReplicaMover
from tests.chaos.crash_world import Violation
from tests.chaos.move_world import MovingLife, copying_takes_time, judge_states
from tests.seeds import seed_for

STATES = int(os.environ.get("OTTLA_CRASH_STATES", "2000")) // 5
ACTIONS_PER_RUN = 200
STATES_PER_RUN = 40
PLANTED_STATES_MAX = 6_000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation, "CHUNK_BYTES", 512)
    monkeypatch.setattr(replica_mover, "SLICE_BYTES", 1_500)
    monkeypatch.setattr(replica_mover, "TAIL_BYTES", 400)


def judge_many(seed: int, count: int, patch: pytest.MonkeyPatch) -> int:
    judged = run = moves = 0
    while judged < count:
        chance = random.Random(seed + run)
        life = MovingLife(random.Random(seed + run))
        try:
            with patch.context() as inner:
                inner.setattr(Piece, "_copy", copying_takes_time(life))
                life.run(ACTIONS_PER_RUN)
                moves += life.moves
                life.finish()
            judged += judge_states(life, chance, min(STATES_PER_RUN, count - judged))
        except Violation as violation:
            violation.add_note(f"run again with seed {seed + run}")
            raise
        run += 1
    assert moves >= count // 10
    return judged


def test_every_state_a_crash_may_leave_of_a_move_is_one_whole_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert judge_many(seed_for("moves"), STATES, monkeypatch) >= STATES


# -- planted bugs ---------------------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def copies_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = Piece.run

    def run(piece: Piece) -> None:
        piece.is_synced = False
        real(piece)
        piece.is_synced = True

    patch.setattr(Piece, "run", run)


def the_old_directory_goes_at_once(patch: pytest.MonkeyPatch) -> None:
    real = ReplicaMover._arrive

    def arrive(mover: ReplicaMover, move: Move) -> None:
        real(mover, move)
        if move.is_in_place and not move.is_over:
            mover._leave(move)

    patch.setattr(ReplicaMover, "_arrive", arrive)


def the_new_name_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = Durability.moved_to

    def moved_to(durability: Durability, *arguments: Any) -> Durability:
        moved = real(durability, *arguments)
        moved._parent_unsynced = False
        return moved

    patch.setattr(Durability, "moved_to", moved_to)


def nothing_is_checkpointed_over_there(patch: pytest.MonkeyPatch) -> None:
    def save_all(upkeep: LogUpkeep, log_dir: LogDir) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        done.resolve(None)
        return done

    patch.setattr(LogUpkeep, "save_all", save_all)


def what_changes_meanwhile_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica_mover, "_state_of", lambda held: (0, 0, 0, []))


def moves_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(move_count, "encode", lambda moves: b"0")


def the_first_of_two_counts(patch: pytest.MonkeyPatch) -> None:
    def first(replicas: LocalReplicas, found: Any, log_dir: LogDir, where: Any) -> None:
        where.setdefault((found.topic, found.partition), log_dir)

    patch.setattr(LocalReplicas, "_keep_later", first)


def the_later_of_two_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogDir, "sync", lambda log_dir: None)


def cuts_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    real = Relocation._forget_gone

    def forget(copying: Relocation, segments: Any) -> list[str]:
        for segment, copy in copying._copies.items():
            copy.cuts = segment.cuts
            copy.sizes = {name: min(size, segment.size) for name, size in copy.sizes.items()}
        return real(copying, segments)

    patch.setattr(Relocation, "_forget_gone", forget)


def deleted_segments_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relocation, "_forget_gone", lambda copying, segments: [])


def the_last_index_entry_is_missing(patch: pytest.MonkeyPatch) -> None:
    def unsealed(copying: Relocation) -> None:
        piece = copying.next_piece(synced=False)
        piece.run()
        copying.copied(piece)

    patch.setattr(Relocation, "catch_up", unsealed)


def what_was_not_synced_counts_as_synced(patch: pytest.MonkeyPatch) -> None:
    real = PartitionLog.move_to
    patch.setattr(PartitionLog, "move_to", lambda log, path, unsynced: real(log, path, set()))


def a_start_is_forgotten_once_a_segment_begins_there(patch: pytest.MonkeyPatch) -> None:
    real = LogUpkeep._held

    def held(upkeep: LogUpkeep, log_dir: LogDir, kind: str) -> Any:
        offsets = real(upkeep, log_dir, kind)
        if kind == "start":
            for _, one in upkeep._replicas.online():
                if one.first_segment_offset == one.log_start_offset:
                    offsets.pop((one.topic, one.partition), None)
        return offsets

    patch.setattr(LogUpkeep, "_held", held)


def what_an_earlier_life_has_left_stays(patch: pytest.MonkeyPatch) -> None:
    real = Piece.run

    def run(piece: Piece) -> None:
        piece.kept = None
        real(piece)

    patch.setattr(Piece, "run", run)


PLANTED: list[Patch] = [
    copies_are_not_synced,
    the_old_directory_goes_at_once,
    the_new_name_is_not_synced,
    nothing_is_checkpointed_over_there,
    what_changes_meanwhile_is_not_seen,
    moves_are_not_counted,
    the_first_of_two_counts,
    the_later_of_two_is_not_synced,
    cuts_are_not_seen,
    deleted_segments_stay,
    the_last_index_entry_is_missing,
    what_was_not_synced_counts_as_synced,
    a_start_is_forgotten_once_a_segment_begins_there,
    what_an_earlier_life_has_left_stays,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((Violation, OttlaError, AssertionError, OSError)):
        judge_many(seed_for("planted"), PLANTED_STATES_MAX, monkeypatch)
