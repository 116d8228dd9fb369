"""Runs seeds of the world of a cluster: `python -m sim.cluster --seeds 2000`.

Every hundredth seed runs twice and must come to the same.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sim.cluster.states import Violation
from sim.cluster.world import World

TWICE_EVERY = 100


class Figures(NamedTuple):
    seeds: int
    faults: int
    acked: int
    events: int
    by_kind: dict[str, int]


def replay_command(seed: int) -> str:
    return f"python -m sim.cluster --first {seed} --seeds 1"


def run_seeds(first: int, count: int) -> Figures:
    """Raises at the first seed that fails, with the command that runs it again."""
    faults = acked = events = 0
    by_kind: dict[str, int] = {}
    for seed in range(first, first + count):
        with silence():
            world = run_seed(seed)
        faults += world.faults.count
        acked += world.truth.acked
        events += world.heap.happened
        for kind, times in world.faults.by_kind.items():
            by_kind[kind] = by_kind.get(kind, 0) + times
    return Figures(count, faults, acked, events, by_kind)


@contextmanager
def silence() -> Iterator[None]:
    """What brokers log is not worth its time here: the worst of it is what is wanted."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def run_seed(seed: int) -> World:
    try:
        world = World(seed)
        world.run()
        if seed % TWICE_EVERY == 0:
            check_same(world, World(seed))
    except Exception:
        print(f"seed {seed} failed: {replay_command(seed)}", file=sys.stderr)
        raise
    return world


def check_same(world: World, again: World) -> None:
    again.run()
    if world.trace() != again.trace():
        raise Violation("two runs of the same seed differ")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.cluster")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    started = time.monotonic()
    figures = run_seeds(arguments.first, arguments.seeds)
    seconds = time.monotonic() - started
    print(
        f"cluster: {figures.seeds} seeds, {figures.faults} faults, {figures.acked} records "
        f"acknowledged, {figures.events} events, no violation, {seconds:.0f} s"
    )
    kinds = ", ".join(f"{kind} {times}" for kind, times in sorted(figures.by_kind.items()))
    print(f"faults: {kinds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
