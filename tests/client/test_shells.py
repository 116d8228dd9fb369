"""Both shells over real sockets: the same flow, and nothing left behind."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator

import pytest

from ottla.client.aio_shell import AioShell
from ottla.client.clock import chance
from ottla.client.coordinators import GROUP, Coordinators
from ottla.client.core import Core
from ottla.client.errors import ClosedError, TimedOutError
from ottla.client.pending import Pending
from ottla.client.plain_shell import PlainShell
from ottla.client.settings import AdminSettings, read_settings
from ottla.testing import Broker

PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap


def core_of(bootstrap: str) -> Core:
    return Core(read_settings(AdminSettings, {"bootstrap.servers": bootstrap}, {}), chance)


async def look(core: Core) -> tuple[int, int]:
    deadline_ms = core.now_ms + PATIENCE_MS
    info = await core.metadata.topic("seen", deadline_ms)
    coordinators = Coordinators(core)
    node = await core.retry(lambda: coordinators.find(GROUP, "g"), deadline_ms, "coordinator")
    return info.partitions[0].leader, node


@pytest.mark.parametrize("name", ["a..b", "x" * 64])
def test_a_name_that_is_none_is_a_broker_that_cannot_be_reached(bootstrap: str, name: str) -> None:
    """As bootstrap address, and as what a broker calls itself: the shell lives on."""
    core = core_of(f"{name}:9092,{bootstrap}")
    plain = PlainShell(core, "plain")
    assert len(set(plain.call(look(core)))) == 1
    plain.close()

    async def on_asyncio() -> None:
        core = core_of(f"{name}:9092,{bootstrap}")
        shell = AioShell(core)
        assert len(set(await shell.call(look(core)))) == 1
        await shell.close()

    asyncio.run(on_asyncio())


async def never(core: Core) -> None:
    await Pending()


def test_plain(bootstrap: str) -> None:
    core = core_of(bootstrap)
    shell = PlainShell(core, "plain")
    leader, node = shell.call(look(core))
    assert leader == node
    sockets = [connection.transport.sock for connection in core.nodes.connections.values()]
    shell.close()
    assert [sock.fileno() for sock in sockets] == [-1] * len(sockets)
    assert "plain" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ClosedError):
        shell.call(look(core))


def test_plain_waits_end_with_their_time_out_and_with_close(bootstrap: str) -> None:
    core = core_of(bootstrap)
    shell = PlainShell(core, "waiting")
    with pytest.raises(TimedOutError):
        shell.call(never(core), timeout_ms=20)
    assert core.scheduler.flows == set()
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            shell.call(never(core))
        except ClosedError as error:
            ended.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    while not core.scheduler.flows:
        pass
    shell.close()
    waiter.join(60)
    assert len(ended) == 1


def test_plain_callbacks_run_in_order_and_may_close(bootstrap: str) -> None:
    shell = PlainShell(core_of(bootstrap), "callbacks")
    seen: list[int] = []
    done = threading.Event()

    def failing() -> None:
        raise ValueError("which is logged")

    def last() -> None:
        shell.close()
        done.set()

    shell.enter()
    for number in range(5):
        shell.later(functools.partial(seen.append, number))
    shell.later(failing)
    shell.later(last)
    shell.leave()
    assert done.wait(60)
    shell.close()
    assert seen == [0, 1, 2, 3, 4]


def test_asyncio(bootstrap: str) -> None:
    async def run() -> None:
        core = core_of(bootstrap)
        shell = AioShell(core)
        leader, node = await shell.call(look(core))
        assert leader == node
        waiting = asyncio.create_task(shell.call(never(core)))
        await asyncio.sleep(0)
        assert len(core.scheduler.flows) == 2  # its own and the metadata's
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(core.scheduler.flows) == 1
        waiting = asyncio.create_task(shell.call(never(core)))
        await asyncio.sleep(0)
        await shell.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await shell.call(look(core))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
