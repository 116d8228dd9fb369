"""Goal: whatever gets lost, dies or changes, no partition is ever read by two; in the end all are.
Method: simulated clients (see `consumer_members`) with seeds that change with the sources; and bugs
planted on purpose, each of which the same simulation has to find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator import (
    consumer_group,
    consumer_group_classic,
    consumer_group_departure,
    consumer_group_draft,
    consumer_group_reconciliation,
    consumer_group_timeouts,
    consumer_groups,
)
from ottla.coordinator.shard import NOTHING
from tests.seeds import seed_for
from tests.unit.coordinator.consumer_members import Simulation

STEPS = 120
FIRST_SEED = seed_for("consumer groups") % 1_000_000


@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("with_classic", [False, True])
def test_one_reader_for_each_partition(number: int, with_classic: bool) -> None:
    seed = FIRST_SEED + number
    try:
        Simulation(seed, with_classic=with_classic).run(STEPS)
    except AssertionError as failure:
        raise AssertionError(f"seed {seed}: {failure}") from failure


def always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


# Each is one line that somebody could get wrong.
PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "partitions are given out while another has them": lambda patch: patch.setattr(
        consumer_group_draft.Draft, "is_free", always(True)
    ),
    "nobody waits until a member has given up": lambda patch: patch.setattr(
        consumer_group_reconciliation, "_owns_any", always(False)
    ),
    "what is being given up counts as free": lambda patch: patch.setattr(
        consumer_group.ConsumerGroup,
        "holder_of",
        lambda self, topic_id, partition: next(
            (
                member.member_id
                for member in self.members.values()
                if partition in member.current.assigned.get(topic_id, ())
            ),
            None,
        ),
    ),
    "what was given up in an old epoch is given up now": lambda patch: patch.setattr(
        consumer_groups, "_is_of_its_epoch", always(True)
    ),
    "sessions never end": lambda patch: patch.setattr(
        consumer_group_timeouts.ConsumerTimeouts, "touch", always(None)
    ),
    "whoever leaves keeps its partitions": lambda patch: patch.setattr(
        consumer_group.ConsumerGroup, "_release", always(None)
    ),
    "departures make no new epoch": lambda patch: patch.setattr(
        consumer_group_departure.ConsumerDepartures,
        "_removal",
        _without_epoch(consumer_group_departure.ConsumerDepartures._removal),
    ),
    "classic members are never told to join again": lambda patch: patch.setattr(
        consumer_group_classic, "REBALANCE_IN_PROGRESS", 0
    ),
    "changes of topics go unnoticed": lambda patch: patch.setattr(
        consumer_groups.ConsumerGroups, "on_image", always(NOTHING)
    ),
}


def _without_epoch(removal: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    return lambda *arguments: removal(*arguments)[:-1]


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    for seed in range(200):
        try:
            Simulation(seed, with_classic=True).run(STEPS)
        except AssertionError:
            return
    raise AssertionError("200 seeds, and nobody noticed")
