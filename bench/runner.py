"""Runs the cases on both sides in turn, round by round.

Which side comes first changes with every round, so that a drift of the machine favours nobody. A
case that fails on one side has no figure in that round and the run goes on; a broker that has ended
by itself ends the run, with what was found so far.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.brokers import BrokerFailed
from bench.case import BLOCKS, Case, Figures
from bench.errors import BenchError
from bench.kernel_part import kernel_parts, wants_kernel_part
from bench.processes import times
from bench.progress import Steps
from bench.report import short
from bench.results import Outcome
from bench.side import Side
from bench.sizes import Sizes
from bench.warm_up import steps as warm_up_steps

# Whatever a case may run into; anything else is a mistake of the harness and shows itself.
FAILURES = (BenchError, OSError, subprocess.SubprocessError)


@dataclass
class Plan:
    cases: Sequence[Case]
    rounds: int
    sizes: Sizes
    seconds_max: float | None = None

    def step_count(self) -> int:
        return 2 * (len(warm_up_steps()) + len(self.cases) * self.rounds)


class Runner:
    def __init__(self, sides: tuple[Side, Side], plan: Plan, steps: Steps) -> None:
        self._sides = sides
        self._plan = plan
        self._steps = steps
        self._end_s = time.monotonic() + (plan.seconds_max or float("inf"))

    def warm_up(self) -> None:
        for title, step in warm_up_steps():
            for side in self._sides:
                self._steps.begin(f"warm-up {side.label}: {title}")
                step(side, self._plan.sizes)
                self._steps.end(f"warm-up {side.label}: {title}")

    def measure(self) -> list[Outcome]:
        outcomes = [Outcome(case) for case in self._plan.cases]
        for block in BLOCKS:
            chosen = [outcome for outcome in outcomes if outcome.case.block == block]
            with self._brokers_beside():
                for number in range(self._plan.rounds):
                    for outcome in chosen:
                        self._one_round(outcome, number)
                        if not self._are_alive(outcome):
                            return outcomes
        return outcomes

    def _one_round(self, outcome: Outcome, number: int) -> None:
        found: dict[str, Figures] = {}
        outcome.rounds.append(found)
        for side in order_of(self._sides, number):
            title = f"round {number + 1} {outcome.case.name} {side.label}"
            if time.monotonic() > self._end_s:
                outcome.is_left_out = True
                continue
            self._steps.begin(title)
            try:
                os.sync()  # pages that an earlier case left dirty would be written during this one
                found[side.label] = self._figures(outcome.case, side)
                self._steps.end(f"{title}: {told(outcome.case, found[side.label])}")
            except FAILURES as error:
                outcome.errors.append(f"{title}: {error}")
                self._steps.end(f"{title}: failed: {error}")

    def _figures(self, case: Case, side: Side) -> Figures:
        if not wants_kernel_part(case.figures):
            return case.run(side, self._plan.sizes)
        pid = side.broker.pid
        before = times(pid)
        found = case.run(side, self._plan.sizes)
        return {**found, **kernel_parts(case.figures, found, before, times(pid))}

    def _are_alive(self, outcome: Outcome) -> bool:
        try:
            for side in self._sides:
                side.broker.expect_alive()
        except BrokerFailed as error:
            outcome.errors.append(str(error))
            return False
        return True

    @contextmanager
    def _brokers_beside(self) -> Iterator[None]:
        try:
            yield
        finally:
            for side in self._sides:
                side.close_beside()


def order_of(sides: tuple[Side, Side], number: int) -> tuple[Side, Side]:
    return sides if number % 2 == 0 else (sides[1], sides[0])


def told(case: Case, figures: Figures) -> str:
    return ", ".join(
        f"{figure.label} {short(figures[figure.key])} {figure.unit}" for figure in case.figures
    )
