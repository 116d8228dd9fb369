"""A failing seed with as few faults as will do, for whoever has to understand it.

Faults are dropped one by one for as long as the seed still fails in the same way; then the events
after the last of them, as far as they are not needed. Each fault draws from a generator of its own,
so what stays happens as before.
"""

from __future__ import annotations

from sim.cluster.plan import Plan
from sim.cluster.world import World


def failure_of(plan: Plan) -> str | None:
    """How a plan fails, in short; None if it does not."""
    try:
        World(plan.seed, plan).run()
    except Exception as failure:  # noqa: BLE001 (whatever it is, it is looked for again)
        return f"{type(failure).__name__} {str(failure).partition(':')[0]}"
    return None


def with_faults(seed: int, kept: list[int], *, is_rough: bool, quiet_from: float = 0.0) -> Plan:
    """The plan of a seed with some of its faults, by their place."""
    plan = Plan(seed, is_rough=is_rough)
    plan.faults = [plan.faults[place] for place in kept]
    if quiet_from:
        plan.window_ms = quiet_from
    return plan


def shrink(seed: int, *, is_rough: bool = False) -> tuple[list[int], float, str] | None:
    """Which faults are needed, how long a history, and how it fails; None if it does not."""
    plan = Plan(seed, is_rough=is_rough)
    failure = failure_of(plan)
    if failure is None:
        return None
    kept = list(range(len(plan.faults)))
    for place in list(kept):
        fewer = [one for one in kept if one != place]
        if failure_of(with_faults(seed, fewer, is_rough=is_rough)) == failure:
            kept = fewer
    window_ms = plan.window_ms
    last_ms = max((plan.faults[place].at_ms for place in kept), default=0.0)
    for shorter_ms in (last_ms + 100, last_ms + 1_000, last_ms + 3_000):
        if shorter_ms < window_ms:
            shorter = with_faults(seed, kept, is_rough=is_rough, quiet_from=shorter_ms)
            if failure_of(shorter) == failure:
                window_ms = shorter_ms
                break
    return kept, window_ms, failure
