"""Runs seeds of the worlds of groups: `python -m sim.groups --seeds 2000`.

Every second one is of consumer groups (KIP-848), the others are of classic ones. `--mutants` plants
each of the known bugs and counts the seeds until it is found.
"""

from __future__ import annotations

import sys

from sim.groups.consumer_mutants import CONSUMER_MUTANTS
from sim.groups.consumer_world import ConsumerWorld
from sim.groups.mutants import MUTANTS, planted
from sim.groups.world import World
from sim.seeds_command import command, prove_mutants, run_worlds, seeds_until_failure


def world_of(seed: int) -> World | ConsumerWorld:
    return ConsumerWorld(seed) if seed % 2 else World(seed)


def run_seeds(first: int, count: int) -> tuple[int, int, int]:
    """Faults, commits and generations over all seeds; raises at the first that fails."""
    faults = commits = generations = 0
    for world in run_worlds("groups", world_of, first, count):
        faults += world.faults
        commits += world.ledger.commits
        generations += world.ledger.generations
    return faults, commits, generations


def seeds_until_found(name: str, first: int, count: int) -> int | None:
    """How many seeds it takes until the planted bug shows; None if it does not."""
    with planted(name):
        if name in CONSUMER_MUTANTS:
            return seeds_until_failure(ConsumerWorld, first, count)
        return seeds_until_failure(World, first, count)


def told_of_seeds(first: int, count: int) -> str:
    faults, commits, generations = run_seeds(first, count)
    return f"{faults} faults, {generations} generations, {commits} acknowledged commits"


def prove(first: int, count: int) -> int:
    missed = prove_mutants(MUTANTS, planted, World, first, count)
    return prove_mutants(CONSUMER_MUTANTS, planted, ConsumerWorld, first, count) or missed


if __name__ == "__main__":
    sys.exit(command("groups", told_of_seeds, prove))
