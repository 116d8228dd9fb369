"""Goal: whatever clients, network and leaders do, transactions keep P1-P3 and T1-T4.
Method: seeds of the simulated world (sim/transactions), other ones for every state of the sources;
and bugs planted in the real machines, which the world has to find: `python -m sim.transactions
--mutants --seeds 2000`.
"""

from __future__ import annotations

import pytest

from sim.transactions.__main__ import run_seeds, seeds_until_found
from sim.transactions.mutants import MUTANTS
from tests.seeds import seed_for

SEEDS = 100
SEEDS_TO_FIND_A_BUG = 1000


def test_no_seed_breaks_a_promise() -> None:
    faults, transactions, committed = run_seeds(seed_for("transactions") % 10**9, SEEDS)
    assert faults > SEEDS * 5
    assert transactions > SEEDS * 10
    assert committed > SEEDS * 3


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_planted_bug_is_found(name: str) -> None:
    assert seeds_until_found(name, 0, SEEDS_TO_FIND_A_BUG) is not None


def test_nothing_stays_planted() -> None:
    """Each bug is taken out again: the world passes where it failed."""
    for name in ("append_without_verification", "a_late_yes_counts"):
        found = seeds_until_found(name, 0, SEEDS_TO_FIND_A_BUG)
        assert found is not None
        run_seeds(found - 1, 1, is_rough=True)
