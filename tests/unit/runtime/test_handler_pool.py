"""Goal: work runs in threads, its outcome comes back on the loop, and the pool can be resized."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.runtime.handler_pool import HandlerPool
from tests.patience import SECONDS_MAX


async def outcome_of(deferred: Deferred[Any]) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    deferred.when_done(future.set_result)
    return (await future).result()


def in_a_pool(size: int, scenario: Callable[[HandlerPool], Any]) -> Any:
    async def main() -> Any:
        pool = HandlerPool(asyncio.get_running_loop(), size)
        try:
            return await scenario(pool)
        finally:
            pool.close()

    return asyncio.run(main())


def test_work_runs_elsewhere_and_its_result_comes_back_here() -> None:
    async def scenario(pool: HandlerPool) -> tuple[str, str]:
        resolved_on: list[str] = []
        deferred = pool.run(lambda: threading.current_thread().name)
        deferred.when_done(lambda _: resolved_on.append(threading.current_thread().name))
        return await outcome_of(deferred), resolved_on[0]

    worker, resolver = in_a_pool(2, scenario)
    assert worker.startswith("ottla-handler")
    assert resolver == threading.main_thread().name


def test_an_error_is_handed_to_whoever_waits() -> None:
    async def scenario(pool: HandlerPool) -> None:
        with pytest.raises(ZeroDivisionError):
            await outcome_of(pool.run(lambda: 1 // 0))

    in_a_pool(1, scenario)


class Large:
    """Stands for megabytes."""


def test_a_refusal_leaves_nothing_behind() -> None:
    """Not even until the garbage is collected: a producer could fill the memory meanwhile."""
    held: list[weakref.ref[Large]] = []

    def refuse(argument: Large) -> None:
        unpacked = Large()
        held.extend((weakref.ref(argument), weakref.ref(unpacked)))
        try:
            int("too much")
        except ValueError as cause:
            raise ProtocolError(10, "too large") from cause

    async def scenario(pool: HandlerPool) -> None:
        with pytest.raises(ProtocolError, match="too large"):
            await outcome_of(pool.run(refuse, Large()))
        # Another job by the same thread has ended, so it is done with the first.
        await outcome_of(pool.run(int))
        assert [one() for one in held] == [None, None]

    gc.disable()
    try:
        in_a_pool(1, scenario)
    finally:
        gc.enable()


def test_it_grows_and_shrinks_while_it_runs() -> None:
    async def scenario(pool: HandlerPool) -> None:
        def all_at_once(count: int) -> list[Deferred[int]]:
            barrier = threading.Barrier(count)
            return [pool.run(barrier.wait, SECONDS_MAX) for _ in range(count)]

        pool.resize(4)
        # Four jobs that wait for each other are done only if four threads have them.
        for deferred in all_at_once(4):
            await outcome_of(deferred)
        pool.resize(1)
        while len(pool._threads) > 1:
            await asyncio.sleep(0)
        assert await outcome_of(pool.run(lambda: "still works")) == "still works"

    in_a_pool(1, scenario)


def test_a_shrinking_pool_may_be_told_twice() -> None:
    async def scenario(pool: HandlerPool) -> None:
        held = threading.Event()
        busy = [pool.run(held.wait, SECONDS_MAX) for _ in range(4)]
        for size in (2, 2, 2):
            pool.resize(size)  # a change of any other setting says it again
        held.set()
        for deferred in busy:
            await outcome_of(deferred)
        while len(pool._threads) > 2:
            await asyncio.sleep(0)
        pool.resize(4)
        barrier = threading.Barrier(4)
        for waiting in [pool.run(barrier.wait, SECONDS_MAX) for _ in range(4)]:
            await outcome_of(waiting)
        assert len(pool._threads) == 4

    in_a_pool(4, scenario)


def test_an_idle_pool_has_no_threads() -> None:
    async def scenario(pool: HandlerPool) -> int:
        return len(pool._threads)

    assert in_a_pool(8, scenario) == 0


def test_it_is_idle_when_the_work_that_other_work_asked_for_is_done_too() -> None:
    async def scenario(pool: HandlerPool) -> list[str]:
        seen: list[str] = []
        go = threading.Event()

        def second(_: Deferred[Any]) -> None:
            pool.run(seen.append, "second")

        pool.run(go.wait, 60).when_done(second)
        idle = pool.when_idle()
        assert not idle.done
        go.set()
        await outcome_of(idle)
        await outcome_of(pool.when_idle())  # at once, with nothing under way
        return seen

    assert in_a_pool(2, scenario) == ["second"]
