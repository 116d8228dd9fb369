"""Runs seeds of the world of transactions: `python -m sim.transactions --seeds 2000`.

`--mutants` plants each of the known bugs and counts the seeds until it is found.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from sim.transactions.mutants import MUTANTS, planted
from sim.transactions.world import World


def run_seeds(first: int, count: int, *, is_rough: bool = False) -> tuple[int, int, int]:
    """Faults, transactions and committed ones; raises at the first seed that fails."""
    faults = attempts = committed = 0
    for seed in range(first, first + count):
        world = World(seed, is_rough=is_rough)
        try:
            world.run()
        except Exception:
            print(f"seed {seed} failed: python -m sim.transactions --first {seed} --seeds 1")
            raise
        faults += world.faults
        attempts += len(world.ledger.attempts)
        committed += sum(one.is_committed for one in world.ledger.attempts)
    return faults, attempts, committed


def seeds_until_found(name: str, first: int, count: int) -> int | None:
    """How many seeds it takes until the planted bug shows; None if it does not."""
    with planted(name):
        for tried, seed in enumerate(range(first, first + count), 1):
            try:
                World(seed, is_rough=True).run()
            except Exception:  # noqa: BLE001 (a bug may show in any way)
                return tried
    return None


def main() -> int:
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="python -m sim.transactions")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--mutants", action="store_true")
    arguments = parser.parse_args()
    if arguments.mutants:
        missed = 0
        for name in MUTANTS:
            found = seeds_until_found(name, arguments.first, arguments.seeds)
            missed += found is None
            print(
                f"{name}: {'not found' if found is None else f'found by seed {found}'}", flush=True
            )
        return 1 if missed else 0
    started = time.monotonic()
    faults, attempts, committed = run_seeds(arguments.first, arguments.seeds)
    seconds = time.monotonic() - started
    print(
        f"transactions: {arguments.seeds} seeds, {faults} faults, {attempts} transactions, "
        f"{committed} committed, no violation, {seconds:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
