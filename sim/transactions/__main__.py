"""Runs seeds of the world of transactions: `python -m sim.transactions --seeds 2000`.

`--mutants` plants each of the known bugs and counts the seeds until it is found.
"""

from __future__ import annotations

import functools
import sys

from sim.seeds_command import command, prove_mutants, run_worlds, seeds_until_failure
from sim.transactions.mutants import MUTANTS, planted
from sim.transactions.world import World

RoughWorld = functools.partial(World, is_rough=True)


def run_seeds(first: int, count: int, *, is_rough: bool = False) -> tuple[int, int, int]:
    """Faults, transactions and committed ones; raises at the first seed that fails."""
    faults = attempts = committed = 0
    make = RoughWorld if is_rough else World
    for world in run_worlds("transactions", make, first, count):
        faults += world.faults
        attempts += len(world.ledger.attempts)
        committed += sum(one.is_committed for one in world.ledger.attempts)
    return faults, attempts, committed


def seeds_until_found(name: str, first: int, count: int) -> int | None:
    """How many seeds it takes until the planted bug shows; None if it does not."""
    with planted(name):
        return seeds_until_failure(RoughWorld, first, count)


def told_of_seeds(first: int, count: int) -> str:
    faults, attempts, committed = run_seeds(first, count)
    return f"{faults} faults, {attempts} transactions, {committed} committed"


def prove(first: int, count: int) -> int:
    return prove_mutants(MUTANTS, planted, RoughWorld, first, count)


if __name__ == "__main__":
    sys.exit(command("transactions", told_of_seeds, prove))
