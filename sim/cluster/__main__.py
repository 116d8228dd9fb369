"""Runs seeds of the world of a cluster: `python -m sim.cluster --seeds 2000`.

Every hundredth seed runs twice and must come to the same. `--mutants` plants each of the known bugs
and counts the seeds until it is found; those that have a story are held against that.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from sim.cluster.mutants import MUTANTS, STORIES, planted
from sim.cluster.plan import Plan
from sim.cluster.shrink import shrink
from sim.cluster.states import Violation
from sim.cluster.world import World

TWICE_EVERY = 100


class Figures(NamedTuple):
    seeds: int
    faults: int
    acked: int
    events: int
    by_kind: dict[str, int]


def replay_command(seed: int, is_rough: bool) -> str:
    return f"python -m sim.cluster --first {seed} --seeds 1" + " --rough" * is_rough


def shrink_command(seed: int, is_rough: bool) -> str:
    return f"python -m sim.cluster --shrink {seed}" + " --rough" * is_rough


def run_seeds(first: int, count: int, *, is_rough: bool = False) -> Figures:
    """Raises at the first seed that fails, with the command that runs it again."""
    faults = acked = events = 0
    by_kind: dict[str, int] = {}
    for seed in range(first, first + count):
        with silence():
            world = run_seed(seed, is_rough=is_rough)
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


def run_seed(seed: int, *, is_rough: bool = False) -> World:
    try:
        world = World(seed, Plan(seed, is_rough=is_rough))
        world.run()
        if seed % TWICE_EVERY == 0:
            check_same(world, World(seed, Plan(seed, is_rough=is_rough)))
    except Exception:
        print(f"seed {seed} failed: {replay_command(seed, is_rough)}", file=sys.stderr)
        print(f"what it needs to fail: {shrink_command(seed, is_rough)}", file=sys.stderr)
        raise
    return world


def check_same(world: World, again: World) -> None:
    again.run()
    if world.trace() != again.trace():
        raise Violation("two runs of the same seed differ")


def tell_shrunk(seed: int, *, is_rough: bool) -> int:
    with silence():
        shrunk = shrink(seed, is_rough=is_rough)
    if shrunk is None:
        print(f"seed {seed} does not fail")
        return 0
    kept, window_ms, failure = shrunk
    faults = Plan(seed, is_rough=is_rough).faults
    print(f"seed {seed}: {failure}, within {window_ms:.0f} ms, with")
    for place in kept:
        print(f"  {place}: {faults[place].kind} at {faults[place].at_ms:.0f} ms")
    return 1


def seeds_until_found(name: str, first: int, count: int) -> tuple[int, str] | None:
    """How many seeds it takes until the planted bug shows, and how; None if it does not."""
    with planted(name), silence():
        for tried, seed in enumerate(range(first, first + count), 1):
            try:
                World(seed, Plan(seed, is_rough=True)).run()
            except Exception as found:  # noqa: BLE001 (a bug may show in any way)
                return tried, f"{type(found).__name__}: {found}"
    return None


def share_found(name: str, first: int, count: int) -> float:
    """In how many of so many seeds a planted bug shows."""
    found = sum(
        seeds_until_found(name, seed, 1) is not None for seed in range(first, first + count)
    )
    return found / count


def is_told(name: str) -> bool:
    """Whether the story of a planted bug fails, as it must."""
    quiet = ["-q", "-q", "--no-header", "--no-summary", "--tb=no", "-p", "no:cacheprovider"]
    imported = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with planted(name):
        return pytest.main([*quiet, *imported, STORIES[name]]) == pytest.ExitCode.TESTS_FAILED


def prove_mutants(names: list[str], first: int, count: int, shares: int) -> int:
    missed = 0
    for name in names:
        if name in STORIES:
            has_failed = is_told(name)
            missed += not has_failed
            print(f"{name}: {'told' if has_failed else 'NOT told'} by {STORIES[name]}", flush=True)
            continue
        found = seeds_until_found(name, first, count)
        missed += found is None
        told = "not found" if found is None else f"found by seed {found[0]} ({found[1][:90]})"
        if shares:
            told += f", in {100 * share_found(name, first, shares):.0f}% of {shares}"
        print(f"{name}: {told}", flush=True)
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.cluster")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="plant bugs, all or these")
    parser.add_argument("--shares", type=int, default=0, help="seeds to count each bug in")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="find what a seed needs to fail")
    parser.add_argument("--rough", action="store_true", help="with many faults, as for --mutants")
    arguments = parser.parse_args()
    if arguments.shrink is not None:
        return tell_shrunk(arguments.shrink, is_rough=arguments.rough)
    if arguments.mutants is not None:
        names = arguments.mutants or list(MUTANTS)
        return prove_mutants(names, arguments.first, arguments.seeds, arguments.shares)
    started = time.monotonic()
    figures = run_seeds(arguments.first, arguments.seeds, is_rough=arguments.rough)
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
