"""How much a batch takes: the limit is a limit, and nobody starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.admission import TriggerPace, shares

BACKLOGS = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9)), st.integers(0, 10_000), max_size=12
)


@given(BACKLOGS, st.integers(1, 5_000), st.integers(0, 20))
def test_the_limit_is_used_up_and_never_exceeded(
    backlog: dict[tuple[str, int], int], limit: int, turn: int
) -> None:
    given_out = shares(backlog, limit, turn)
    assert sum(given_out.values()) == min(limit, sum(backlog.values()))
    assert all(0 < count <= backlog[place] for place, count in given_out.items())


def test_shares_follow_the_backlog() -> None:
    assert shares({("a", 0): 9_000, ("a", 1): 1_000}, 100) == {("a", 0): 90, ("a", 1): 10}


def test_a_small_partition_gets_its_turn_beside_large_ones() -> None:
    backlog = {("big", number): 1_000_000 for number in range(10)} | {("small", 0): 1}
    served = [("small", 0) in shares(backlog, 5, turn) for turn in range(len(backlog))]
    assert any(served)


def test_a_batch_waits_for_enough_records_or_long_enough() -> None:
    pace = TriggerPace(least=100, max_delay_ms=1_000)
    assert pace.admits(5, now_ms=0)  # the first never waits
    assert not pace.admits(5, now_ms=10)
    assert pace.admits(100, now_ms=20)
    assert not pace.admits(99, now_ms=1_000)
    assert pace.admits(1, now_ms=1_020)


def test_nothing_is_not_enough_however_long_it_took() -> None:
    pace = TriggerPace(least=0, max_delay_ms=10)
    assert not pace.admits(0, now_ms=1_000_000)
    assert pace.admits(1, now_ms=1_000_000)
