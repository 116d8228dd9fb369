"""Goal: timers fire once, in order, by the broker's own clock, which a test may move."""

from __future__ import annotations

import asyncio

from ottla.runtime.clocks import MovableClock
from ottla.runtime.timers import LoopTimers
from tests.patience import SECONDS_MAX


def run(scenario: object) -> list[str]:
    fired: list[str] = []

    async def main() -> None:
        clock = MovableClock()
        timers = LoopTimers(asyncio.get_running_loop(), clock)
        scenario(clock, timers, fired)  # type: ignore[operator]
        timers.close()

    asyncio.run(main())
    return fired


def test_what_is_due_fires_in_the_order_of_its_time() -> None:
    def scenario(clock: MovableClock, timers: LoopTimers, fired: list[str]) -> None:
        timers.call_later(2_000, lambda: fired.append("second"))
        timers.call_later(1_000, lambda: fired.append("first"))
        timers.call_later(9_000, lambda: fired.append("not yet"))
        clock.advance(5_000)
        timers.poke()

    assert run(scenario) == ["first", "second"]


def test_a_cancelled_timer_does_not_fire() -> None:
    def scenario(clock: MovableClock, timers: LoopTimers, fired: list[str]) -> None:
        timers.call_later(1_000, lambda: fired.append("kept"))
        timers.call_later(1_000, lambda: fired.append("cancelled")).cancel()
        clock.advance(2_000)
        timers.poke()
        timers.poke()

    assert run(scenario) == ["kept"]


def test_thousands_of_cancelled_timers_leave_no_trace() -> None:
    def scenario(clock: MovableClock, timers: LoopTimers, fired: list[str]) -> None:
        timers.call_later(1_000, lambda: fired.append("kept"))
        for _ in range(5_000):
            timers.call_later(60_000, lambda: fired.append("cancelled")).cancel()
        assert len(timers._heap) < 2_000
        clock.advance(100_000)
        timers.poke()

    assert run(scenario) == ["kept"]


def test_one_failing_timer_does_not_stop_the_others() -> None:
    def scenario(clock: MovableClock, timers: LoopTimers, fired: list[str]) -> None:
        timers.call_later(1_000, lambda: fired.append(str(1 // 0)))
        timers.call_later(1_000, lambda: fired.append("kept"))
        clock.advance(2_000)
        timers.poke()

    assert run(scenario) == ["kept"]


def test_it_wakes_by_itself() -> None:
    async def main() -> str:
        timers = LoopTimers(asyncio.get_running_loop(), MovableClock())
        woken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        timers.call_later(5, lambda: woken.set_result("woken"))
        return await woken

    assert asyncio.run(main()) == "woken"


def test_a_timer_that_sets_another_does_not_delay_those_before_it() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        timers = LoopTimers(loop, MovableClock())
        fired: list[str] = []
        done: asyncio.Future[None] = loop.create_future()

        def again() -> None:
            fired.append("again")
            timers.call_later(600_000, lambda: fired.append("much later"))

        timers.call_later(1, again)
        timers.call_later(20, lambda: done.set_result(None))
        await asyncio.wait_for(done, SECONDS_MAX)
        timers.close()
        return fired

    assert asyncio.run(main()) == ["again"]
