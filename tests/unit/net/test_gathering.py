"""What a peer's next requests are waited for: as many as come at once, and none where none come."""

from __future__ import annotations

import pytest

from ottla.base.limits import GATHERED_REQUESTS_MAX, READ_BYTES_MAX
from ottla.net.gathering import AT_ONCE, Gathering

REQUEST = 16_000


def gathered(*reads: int) -> Gathering:
    """After reads of so many requests, none of them late."""
    gathering = Gathering()
    for requests in reads:
        gathering.on_read(requests, requests * REQUEST)
    return gathering


def test_single_requests_are_never_waited_for() -> None:
    assert gathered(1, 1, 1, 0, 1).bytes_wanted == AT_ONCE


def until(requests: int) -> int:
    """What is waited for, so that so many are there: half of one less, since sizes vary."""
    return requests * REQUEST - REQUEST // 2


def test_as_many_are_waited_for_as_came_at_once() -> None:
    assert gathered(1, 2).bytes_wanted == until(2)
    assert gathered(2, 4).bytes_wanted == until(4)
    assert gathered(4, 2).bytes_wanted == until(4), "two that came in time tell nothing of four"


def test_part_of_a_request_is_not_counted_twice() -> None:
    gathering = Gathering()
    gathering.on_read(2, 2 * REQUEST + 5_000)
    assert gathering.bytes_wanted == 3 * (REQUEST + 2_500) // 2


def test_what_is_waited_for_has_bounds() -> None:
    assert gathered(60).bytes_wanted == until(GATHERED_REQUESTS_MAX)
    gathering = Gathering()
    gathering.on_read(2, 100 * READ_BYTES_MAX)
    assert gathering.bytes_wanted == READ_BYTES_MAX


def test_fewer_that_came_late_are_what_is_waited_for_then() -> None:
    gathering = gathered(5)
    gathering.on_late(3, 3 * REQUEST)
    assert gathering.bytes_wanted == until(3)


@pytest.mark.parametrize("requests", [0, 1])
def test_a_single_one_that_had_to_wait_is_the_last(requests: int) -> None:
    """Part of a request, too: it is not whole before more of it has come."""
    gathering = gathered(5)
    gathering.on_late(requests, REQUEST)
    assert gathering.bytes_wanted == AT_ONCE
    gathering.on_read(1, REQUEST)
    assert gathering.bytes_wanted == AT_ONCE


def test_after_a_pause_the_first_request_is_handled_at_once() -> None:
    gathering = gathered(5)
    gathering.on_late(0, 0)
    assert gathering.bytes_wanted == AT_ONCE
    gathering.on_read(1, REQUEST)
    assert gathering.bytes_wanted == until(5), "and those behind it are gathered again"


def attempts(reads: int) -> list[int]:
    """Which reads of two requests a peer had to wait after that always sends a single one then."""
    gathering, waited = Gathering(), []
    for number in range(reads):
        gathering.on_read(2, 2 * REQUEST)
        if gathering.bytes_wanted > AT_ONCE:
            waited.append(number)
            gathering.on_late(1, REQUEST)
    return waited


def test_where_waiting_is_in_vain_it_is_done_more_and_more_seldom() -> None:
    assert attempts(100) == [0, 1, 3, 7, 15, 31, 63]
    later = attempts(5_000)
    assert later[-1] - later[-2] == 1024, "but it is never given up for good"


def test_where_it_is_of_use_again_it_is_done_more_often() -> None:
    gathering = Gathering()
    for _ in range(4):
        gathering.on_read(2, 2 * REQUEST)
        gathering.on_late(1, REQUEST)
        while gathering.bytes_wanted == AT_ONCE:
            gathering.on_read(2, 2 * REQUEST)
    for _ in range(10):
        gathering.on_read(2, 2 * REQUEST)
    gathering.on_late(1, REQUEST)
    gathering.on_read(2, 2 * REQUEST)
    assert gathering.bytes_wanted == until(2)
