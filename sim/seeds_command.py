"""The command line that the worlds of groups and of transactions share: seeds that must hold, and
planted bugs that seeds must find. The world of a cluster does more (it shrinks) and has its own.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar


class RunsToTheEnd(Protocol):
    def run(self) -> None:
        """Raises if something that must hold does not."""
        ...


World = TypeVar("World", bound=RunsToTheEnd)


def run_worlds(name: str, make: Callable[[int], World], first: int, count: int) -> Iterator[World]:
    """The worlds of so many seeds, each after its end. Raises at the first that fails, after the
    command that runs it again."""
    for seed in range(first, first + count):
        world = make(seed)
        try:
            world.run()
        except Exception:
            print(f"seed {seed} failed: python -m sim.{name} --first {seed} --seeds 1")
            raise
        yield world


def seeds_until_failure(make: Callable[[int], RunsToTheEnd], first: int, count: int) -> int | None:
    """How many seeds it takes until one fails; None if none does."""
    for tried, seed in enumerate(range(first, first + count), 1):
        try:
            make(seed).run()
        except Exception:  # noqa: BLE001 (a bug may show in any way)
            return tried
    return None


def prove_mutants(
    names: Iterable[str],
    planted: Callable[[str], AbstractContextManager[None]],
    make: Callable[[int], RunsToTheEnd],
    first: int,
    count: int,
) -> int:
    """The exit code: 0 if every planted bug is found."""
    missed = 0
    for name in names:
        with planted(name):
            found = seeds_until_failure(make, first, count)
        missed += found is None
        print(f"{name}: {'not found' if found is None else f'found by seed {found}'}", flush=True)
    return 1 if missed else 0


def command(
    name: str, told_of_seeds: Callable[[int, int], str], prove: Callable[[int, int], int]
) -> int:
    """`told_of_seeds` and `prove` get the first seed and how many."""
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog=f"python -m sim.{name}")
    parser.add_argument("--seeds", type=int, default=200, metavar="N", help="how many histories")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them")
    parser.add_argument("--mutants", action="store_true", help="plant the known bugs, find each")
    arguments = parser.parse_args()
    if arguments.mutants:
        return prove(arguments.first, arguments.seeds)
    started = time.monotonic()
    told = told_of_seeds(arguments.first, arguments.seeds)
    seconds = time.monotonic() - started
    print(f"{name}: {arguments.seeds} seeds, {told}, no violation, {seconds:.0f} s")
    return 0
