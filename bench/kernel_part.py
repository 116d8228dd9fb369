"""How much of what a broker takes is the kernel's: the part that a broker in any language has.

Told beside the whole. Where ours alone is above what is wanted of the whole, no change of the
broker's own code reaches that.
"""

from __future__ import annotations

from bench.case import Figure, Figures
from bench.processes import Times

_SUFFIX = ".kernel"


def with_kernel_part(cpu: Figure) -> tuple[Figure, Figure]:
    return cpu, Figure(f"{cpu.key}{_SUFFIX}", "of it the kernel's", cpu.unit)


def wants_kernel_part(figures: tuple[Figure, ...]) -> bool:
    return any(figure.key.endswith(_SUFFIX) for figure in figures)


def kernel_parts(
    figures: tuple[Figure, ...], found: Figures, before: Times, after: Times
) -> Figures:
    """For those figures that are such a part; of the times of the whole case, warm-up included."""
    kernel = after.system_s - before.system_s
    used = kernel + after.user_s - before.user_s
    share = kernel / used if used else 0.0
    keys = [figure.key for figure in figures if figure.key.endswith(_SUFFIX)]
    return {key: found[key.removesuffix(_SUFFIX)] * share for key in keys}
