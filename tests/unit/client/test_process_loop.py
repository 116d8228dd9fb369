"""Goal: the exactly-once loop goes back only where it knows that nothing was committed, and goes on
after ends that timed out. Method: both loops over a consumer and a producer that are scripts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.aio_process_loop import process as aio_process
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.errors import TimedOutError
from ottla.client.group_metadata import GroupMetadata
from ottla.client.process_loop import process
from ottla.client.processing import ATTEMPTS_MAX
from ottla.client.settings import read_settings

SETTINGS = {
    "bootstrap.servers": "broker:9000",
    "group.id": "g",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
}
RECORDS = [
    SimpleNamespace(topic="t", partition=0, offset=offset, leader_epoch=0) for offset in (0, 1)
]


class Script:
    """What both kinds of clients do; `unanswered` commits time out."""

    is_initialized = True

    def __init__(self, unanswered: int) -> None:
        self.settings = SimpleNamespace(transactional_id="x")
        self.unanswered = unanswered
        self.is_committing = False
        self.sought: list[int] = []
        self.polls = 0

    def poll_now(self) -> list[Any]:
        self.polls += 1
        return list(RECORDS)

    def commit_now(self) -> None:
        self.is_committing = self.unanswered > 0
        if self.is_committing:
            self.unanswered -= 1
            raise TimedOutError("commit: not in time")

    def consumer(self, poll: Callable[..., Any]) -> Any:
        return SimpleNamespace(
            settings=read_settings(ConsumerSettings, SETTINGS, {}),
            poll=poll,
            group_metadata=lambda: GroupMetadata("g"),
            seek=lambda partition, offset: self.sought.append(offset),
        )


class PlainScript(Script):
    def run(self) -> int:
        consumer = self.consumer(lambda *_: self.poll_now())
        return process(
            consumer, cast("Any", self), lambda record: None, is_over=lambda: self.polls > 0
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield
        self.commit_transaction()

    def send_offsets(self, *_: Any) -> None: ...

    def commit_transaction(self) -> None:
        self.commit_now()


class AioScript(Script):
    def run(self) -> int:
        async def poll(*_: Any) -> list[Any]:
            return self.poll_now()

        consumer = self.consumer(poll)
        return asyncio.run(
            aio_process(
                consumer, cast("Any", self), lambda record: None, is_over=lambda: self.polls > 0
            )
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield
        await self.commit_transaction()

    async def send_offsets(self, *_: Any) -> None: ...

    async def commit_transaction(self) -> None:
        self.commit_now()


@pytest.mark.parametrize("kind", [PlainScript, AioScript])
@pytest.mark.parametrize("unanswered", [0, 1, 3])
def test_a_commit_is_asked_for_until_it_is_known(
    kind: type[PlainScript | AioScript], unanswered: int
) -> None:
    script = kind(unanswered)
    assert script.run() == 2
    assert script.sought == [], "what was committed is not read again"


@pytest.mark.parametrize("kind", [PlainScript, AioScript])
def test_a_commit_that_nobody_answers_ends_the_loop_where_it_is(
    kind: type[PlainScript | AioScript],
) -> None:
    script = kind(ATTEMPTS_MAX + 1)
    with pytest.raises(TimedOutError):
        script.run()
    assert script.sought == [], "it may have been committed"
