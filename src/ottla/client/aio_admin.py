"""The admin client for asyncio: the calls of `Admin`, to be awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from ottla.client.admin_machine import AdminMachine
from ottla.client.aio_shell import AioShell
from ottla.client.clock import chance
from ottla.client.core import Core
from ottla.client.settings import AdminSettings, read_settings

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    flow: Callable[Concatenate[AdminMachine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]]:
    """The same call, run on the event loop."""

    @wraps(flow)
    async def call(admin: AsyncAdmin, /, *arguments: P.args, **named: P.kwargs) -> T:
        return await admin.run(flow(admin.machine, *arguments, **named))

    return call


class AsyncAdmin:
    def __init__(self, settings: Mapping[str, Any] | None = None, **named: Any) -> None:
        read = read_settings(AdminSettings, settings, named)
        self._core = Core(read, chance, auto_create=False)
        self.machine = AdminMachine(read, self._core)
        self._running: AioShell | None = None

    async def run(self, flow: Coroutine[Any, Any, T]) -> T:
        if self._running is None:
            self._running = AioShell(self._core)
        return await self._running.call(flow)

    list_topics = _awaited(AdminMachine.list_topics)
    describe_topics = _awaited(AdminMachine.describe_topics)
    create_topics = _awaited(AdminMachine.create_topics)
    create_topic = _awaited(AdminMachine.create_topic)
    delete_topics = _awaited(AdminMachine.delete_topics)
    delete_topic = _awaited(AdminMachine.delete_topic)
    create_partitions = _awaited(AdminMachine.create_partitions)
    list_offsets = _awaited(AdminMachine.list_offsets)
    delete_records = _awaited(AdminMachine.delete_records)
    describe_configs = _awaited(AdminMachine.describe_configs)
    alter_configs = _awaited(AdminMachine.alter_configs)
    list_groups = _awaited(AdminMachine.list_groups)
    describe_groups = _awaited(AdminMachine.describe_groups)
    delete_groups = _awaited(AdminMachine.delete_groups)
    list_group_offsets = _awaited(AdminMachine.list_group_offsets)
    list_offsets_of_groups = _awaited(AdminMachine.list_offsets_of_groups)
    alter_group_offsets = _awaited(AdminMachine.alter_group_offsets)
    delete_group_offsets = _awaited(AdminMachine.delete_group_offsets)
    list_transactions = _awaited(AdminMachine.list_transactions)
    describe_transactions = _awaited(AdminMachine.describe_transactions)
    complete_transaction = _awaited(AdminMachine.complete_transaction)
    abort_transaction = _awaited(AdminMachine.abort_transaction)
    describe_producers = _awaited(AdminMachine.describe_producers)
    abort_hanging_transaction = _awaited(AdminMachine.abort_hanging_transaction)
    fetch_batches = _awaited(AdminMachine.fetch_batches)
    describe_cluster = _awaited(AdminMachine.describe_cluster)
    describe_log_dirs = _awaited(AdminMachine.describe_log_dirs)
    elect_leaders = _awaited(AdminMachine.elect_leaders)
    alter_reassignments = _awaited(AdminMachine.alter_reassignments)
    list_reassignments = _awaited(AdminMachine.list_reassignments)

    async def close(self) -> None:
        self._core.close()
        if self._running is not None:
            await self._running.close()

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
