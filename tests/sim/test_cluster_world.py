"""Goal: whatever network, disks, processes and the store do, the cluster keeps L, R, Z, and heals.
Method: seeds of the simulated world (sim/cluster), other ones for every state of the sources, and
those that once failed.
"""

from __future__ import annotations

import pytest

from sim.cluster.__main__ import run_seeds
from sim.cluster.regressions import REGRESSIONS
from tests.seeds import seed_for

SEEDS = 200
PARTS = 4
"""So that the workers can share them."""


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_a_promise(part: int) -> None:
    each = SEEDS // PARTS
    figures = run_seeds(seed_for(f"cluster-{part}") % 10**9, each)
    assert figures.faults > each * 2
    assert figures.acked > each * 20


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_failed_once_holds(seed: int) -> None:
    run_seeds(seed, 1)
