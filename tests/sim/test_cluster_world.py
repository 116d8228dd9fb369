"""Goal: whatever network, disks, processes and the store do, the cluster keeps L, R, Z, and heals.
Method: seeds of the simulated world (sim/cluster), other ones for every state of the sources, those
that once failed, and bugs planted in the real machines, which the world has to find.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sim.cluster.__main__ import run_seeds, seeds_until_found
from sim.cluster.mutants import STORIES
from sim.cluster.regressions import REGRESSIONS
from tests.seeds import seed_for

ROOT = Path(__file__).parents[2]
SEEDS = 1_000
PARTS = 4
"""So that the workers can share them."""
SEEDS_TO_FIND_A_BUG = 60
EASY_TO_FIND = (
    "a_flush_does_nothing",
    "a_life_leads_what_the_last_one_led",
    "a_restart_cuts_to_the_watermark",
    "answers_before_it_is_committed",
    "cut_to_the_watermark",
    "logs_are_not_compared",
    "the_watermark_moves_with_too_few",
    "who_starts_is_not_fenced",
)
"""Each shows in every fourth seed, or in more; `python -m sim.cluster --mutants` has them all."""


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_a_promise(part: int) -> None:
    each = SEEDS // PARTS
    figures = run_seeds(seed_for(f"cluster-{part}") % 10**9, each)
    assert figures.faults > each * 2
    assert figures.acked > each * 20


@pytest.mark.parametrize(("seed", "is_rough"), REGRESSIONS)
def test_what_failed_once_holds(seed: int, *, is_rough: bool) -> None:
    run_seeds(seed, 1, is_rough=is_rough)


@pytest.mark.parametrize("name", EASY_TO_FIND)
def test_a_planted_bug_is_found(name: str) -> None:
    assert seeds_until_found(name, 0, SEEDS_TO_FIND_A_BUG) is not None


def test_a_planted_bug_that_seeds_hardly_find_fails_its_story() -> None:
    """In a process of its own: the stories are tests themselves."""
    command = [sys.executable, "-m", "sim.cluster", "--mutants", *STORIES]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count(": told by ") == len(STORIES)
