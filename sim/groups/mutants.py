"""Bugs to plant: each breaks one rule of the real machine, and the world has to find it.

They are patches of methods, undone afterwards; nothing of them is in the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla.coordinator.classic_group import STABLE, ClassicGroup
from ottla.coordinator.classic_groups import ClassicGroups
from ottla.coordinator.classic_rebalance import ClassicRebalance
from ottla.coordinator.shard import NOTHING, Outcome
from ottla.coordinator.shard_load import ShardLoad
from ottla.runtime.shard_host import ShardHost
from sim.groups.consumer_mutants import CONSUMER_MUTANTS, Patch


def _commits_of_any_generation() -> Patch:
    return ClassicGroup, "check_commit", lambda *arguments, **options: 0


def _commits_of_the_last_generation() -> Patch:
    real = ClassicGroup.check_commit

    def check(
        group: Any, member_id: str, instance: Any, generation: int, *rest: Any, **options: Any
    ) -> int:
        if generation == group.generation - 1 and member_id in group.members:
            generation = group.generation
        return real(group, member_id, instance, generation, *rest, **options)

    return ClassicGroup, "check_commit", check


def _answers_do_not_wait_for_the_watermark() -> Patch:
    return ShardHost, "_is_done", lambda host, waiting: True


def _failed_appends_are_replayed() -> Patch:
    real = ShardHost._append

    def append(host: Any, outcome: Outcome[Any]) -> int:
        code = real(host, outcome)
        if code:
            for record in outcome.records:
                host.shard.replay(record)
        return code

    return ShardHost, "_append", append


def _failed_appends_are_taken_for_done() -> Patch:
    real = ShardHost._append

    def append(host: Any, outcome: Outcome[Any]) -> int:
        real(host, outcome)
        return 0

    return ShardHost, "_append", append


def _generations_are_not_counted() -> Patch:
    real = ClassicGroup.begin_generation

    def begin(group: Any, since_ms: int) -> None:
        real(group, since_ms)
        if group.generation > 1:
            group.generation -= 1

    return ClassicGroup, "begin_generation", begin


def _assignments_of_the_last_generation_are_kept() -> Patch:
    def hand_out(rebalance: Any, group: Any, assignments: dict[str, bytes]) -> None:
        group.move_to(STABLE, rebalance._context.clock.wall_ms())
        for member in list(group.members.values()):
            member.assignment = member.assignment or assignments.get(member.member_id, b"")
        rebalance._answer_syncs(group, 0)

    return ClassicRebalance, "hand_out", hand_out


def _the_join_phase_has_no_end() -> Patch:
    return ClassicRebalance, "_wait_for_joins", lambda rebalance, group: None


def _sessions_have_no_end() -> Patch:
    return ClassicRebalance, "_on_session_timer", lambda *arguments: NOTHING


def _nobody_is_told_of_a_rebalance() -> Patch:
    real = ClassicGroups.heartbeat

    def heartbeat(groups: Any, request: Any, caller: Any) -> Any:
        outcome: Any = real(groups, request, caller)
        if outcome.response["error_code"] == 27:
            outcome.response = {"error_code": 0}
        return outcome

    return ClassicGroups, "heartbeat", heartbeat


def _the_first_value_of_a_key_wins() -> Patch:
    real = ShardLoad.read

    def read(load: Any, data: bytes) -> None:
        before = dict(load._latest)
        real(load, data)
        load._latest.update(before)

    return ShardLoad, "read", read


def _loads_forget_the_last_batch() -> Patch:
    real = ShardLoad.live_records

    def live_records(load: Any) -> Iterator[Any]:
        found = list(real(load))
        yield from found[:-1]

    return ShardLoad, "live_records", live_records


def _replay_does_not_keep_the_group() -> Patch:
    real = ClassicGroups.replay

    def replay(groups: Any, group_id: str, stored: Any) -> None:
        if not groups._live or stored is None:
            real(groups, group_id, stored)

    return ClassicGroups, "replay", replay


def _fenced_members_go_on() -> Patch:
    def check(group: Any, member_id: str, instance_id: str | None) -> int:
        if instance_id is not None and instance_id in group.static_members:
            return 0 if group.static_members[instance_id] in group.members else 25
        return 0 if member_id in group.members else 25

    return ClassicGroup, "check_member", check


def _waiters_are_forgotten_in_a_rebalance() -> Patch:
    return ClassicRebalance, "reset_assignments", lambda rebalance, group, code: None


def _memory_is_not_given_back() -> Patch:
    real = ClassicGroup.remove

    def remove(group: Any, member_id: str) -> Any:
        member = real(group, member_id)
        if member is not None:
            group._memory.held += member.size()
        return member

    return ClassicGroup, "remove", remove


MUTANTS: dict[str, Callable[[], Patch]] = {
    one.__name__.removeprefix("_"): one
    for one in (
        _commits_of_any_generation,
        _commits_of_the_last_generation,
        _answers_do_not_wait_for_the_watermark,
        _failed_appends_are_replayed,
        _failed_appends_are_taken_for_done,
        _generations_are_not_counted,
        _assignments_of_the_last_generation_are_kept,
        _the_join_phase_has_no_end,
        _sessions_have_no_end,
        _nobody_is_told_of_a_rebalance,
        _the_first_value_of_a_key_wins,
        _loads_forget_the_last_batch,
        _replay_does_not_keep_the_group,
        _fenced_members_go_on,
        _waiters_are_forgotten_in_a_rebalance,
        _memory_is_not_given_back,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    where, attribute, bug = (MUTANTS | CONSUMER_MUTANTS)[name]()
    with patch.object(where, attribute, bug):
        yield
