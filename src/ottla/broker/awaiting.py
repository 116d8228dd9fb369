"""A Deferred in a coroutine: only the life cycle and the pages of the broker wait like this."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ottla.base.deferred import Deferred

R = TypeVar("R")


async def done(deferred: Deferred[R]) -> R:
    future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def tell(outcome: Deferred[R]) -> None:
        if future.done():
            return  # whoever waited was told to stop waiting
        error = outcome.error()
        if error is None:
            future.set_result(outcome.result())
        else:
            future.set_exception(error)

    deferred.when_done(tell)
    return await future
