"""Goal: the kernel's part of a figure is its share of the time that the broker took."""

from __future__ import annotations

import pytest

from bench.kernel_part import kernel_parts, wants_kernel_part, with_kernel_part
from bench.processes import Times
from bench.results import rows_of
from tests.unit.bench.runs import CPU, a_case, an_outcome


def test_it_is_the_share_of_system_time() -> None:
    figures = with_kernel_part(CPU)
    found = kernel_parts(figures, {CPU.key: 2.0}, Times(1.0, 1.0), Times(2.0, 4.0))
    assert found == {figures[1].key: 1.5}


def test_who_took_no_time_has_no_part() -> None:
    idle = Times(1.0, 1.0)
    (part,) = kernel_parts(with_kernel_part(CPU), {CPU.key: 0.0}, idle, idle).values()
    assert part == 0.0


def test_only_cases_that_tell_it_are_asked() -> None:
    assert wants_kernel_part(with_kernel_part(CPU))
    assert not wants_kernel_part((CPU,))


@pytest.mark.parametrize(("told", "rows"), [({}, 1), ({"cpu_s_per_gib.kernel": 1.0}, 2)])
def test_an_older_run_is_printed_without_it(told: dict[str, float], rows: int) -> None:
    figures = {CPU.key: 2.0, **told}
    outcome = an_outcome(a_case(*with_kernel_part(CPU)), [figures], [figures])
    assert len(rows_of([outcome])) == rows
