"""The loop goes round while requests follow each other, and sleeps where that is of no use."""

from __future__ import annotations

from collections.abc import Callable

from ottla.net.lookout import Lookout

MOMENT_S = 0.0002
ROUND_S = 0.00001


class Loop:
    """Rounds of a loop with their time; what is asked for is called in the next one."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting: list[Callable[[], None]] = []
        self.others_take_s: list[float] = []
        """How long others keep the core, each time that they may have it."""
        self.let = 0
        self.lookout = Lookout(self.waiting.append, MOMENT_S, lambda: self.now, self._let_others)

    def _let_others(self) -> None:
        self.let += 1
        if self.others_take_s:
            self.now += self.others_take_s.pop()

    def is_awake(self) -> bool:
        return bool(self.waiting)

    def round(self, took_s: float = ROUND_S) -> None:
        self.now += took_s
        called, self.waiting[:] = list(self.waiting), []
        for one in called:
            one()

    def rounds_until_asleep(self) -> int:
        rounds = 0
        while self.is_awake():
            self.round()
            rounds += 1
        return rounds


def test_requests_that_follow_each_other_find_it_awake() -> None:
    loop = Loop()
    for _ in range(100):
        loop.lookout.request_came()
        for _ in range(15):
            assert loop.is_awake()
            loop.round()


def test_it_sleeps_when_nothing_has_come_for_a_moment() -> None:
    loop = Loop()
    loop.lookout.request_came()
    assert loop.rounds_until_asleep() == 21


def test_where_looking_is_in_vain_it_is_done_more_and_more_seldom() -> None:
    loop, looked = Loop(), []
    for number in range(5000):
        loop.lookout.request_came()
        if loop.is_awake():
            looked.append(number)
            loop.rounds_until_asleep()
    assert looked[:5] == [0, 2, 6, 14, 30]
    assert looked[-1] - looked[-2] == 1024


def test_one_request_that_came_soon_is_reason_to_look_again() -> None:
    loop = Loop()
    for _ in range(15):  # four looks in vain; the next one is at the last of these
        loop.lookout.request_came()
        loop.rounds_until_asleep()
    for _ in range(15):
        loop.lookout.request_came()
    loop.lookout.request_came()
    assert loop.is_awake()
    loop.round()
    loop.lookout.request_came()
    loop.rounds_until_asleep()
    loop.lookout.request_came()  # slept for
    assert not loop.is_awake()
    loop.lookout.request_came()
    assert loop.is_awake()


def test_it_is_left_alone_for_long_where_others_want_the_core() -> None:
    loop = Loop()
    loop.lookout.request_came()
    loop.round(took_s=0.003)
    assert not loop.is_awake()
    for _ in range(1023):
        loop.lookout.request_came()
        assert not loop.is_awake()
    loop.lookout.request_came()
    assert loop.is_awake()


def test_others_get_the_core_after_each_round_in_which_it_goes_on() -> None:
    loop = Loop()
    loop.lookout.request_came()
    assert loop.rounds_until_asleep() == loop.let + 1


def test_who_takes_the_core_for_long_when_it_is_let_go_is_not_competed_with() -> None:
    loop = Loop()
    loop.others_take_s = [0.003]
    loop.lookout.request_came()
    loop.round()
    assert loop.is_awake()
    loop.round()
    assert not loop.is_awake()
    loop.lookout.request_came()
    assert not loop.is_awake()
