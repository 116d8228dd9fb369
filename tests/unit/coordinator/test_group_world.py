"""Goal: whatever members, network and log do, a group keeps its promises and comes to rest.
Method: seeds of the simulated worlds (sim/groups), of classic and of consumer groups in turn, other
ones for every state of the sources; and bugs planted in the real machines, which the worlds
have to find.
"""

from __future__ import annotations

import pytest

from sim.groups.__main__ import run_seeds, seeds_until_found
from sim.groups.consumer_mutants import CONSUMER_MUTANTS
from sim.groups.consumer_world import ConsumerWorld
from sim.groups.mutants import MUTANTS
from sim.groups.world import World
from tests.seeds import seed_for

SEEDS = 200
SEEDS_TO_FIND_A_BUG = 150


def test_no_seed_breaks_a_promise() -> None:
    faults, commits, generations = run_seeds(seed_for("groups") % 10**9, SEEDS)
    assert faults > SEEDS
    assert commits > SEEDS * 20
    assert generations > SEEDS * 2


@pytest.mark.parametrize("name", sorted(MUTANTS | CONSUMER_MUTANTS))
def test_a_planted_bug_is_found(name: str) -> None:
    assert seeds_until_found(name, 0, SEEDS_TO_FIND_A_BUG) is not None


def test_nothing_stays_planted() -> None:
    """Each bug is taken out again: the world passes where it failed."""
    for name in ("commits_of_any_generation", "sessions_have_no_end"):
        found = seeds_until_found(name, 0, SEEDS_TO_FIND_A_BUG)
        assert found is not None
        World(found - 1).run()
    for name in ("sessions_never_end", "commits_of_an_old_epoch_are_accepted"):
        found = seeds_until_found(name, 0, SEEDS_TO_FIND_A_BUG)
        assert found is not None
        ConsumerWorld(found - 1).run()
