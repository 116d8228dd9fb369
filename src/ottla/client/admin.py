"""The plain admin client: each call waits for its answer, at most `default.api.timeout.ms`.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topic("orders", partitions=3)
        print(admin.describe_groups(["billing"]))

What a call takes and gives is written where it is decided: `admin_topics` and its siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from ottla.client.admin_machine import AdminMachine
from ottla.client.clock import chance
from ottla.client.core import Core
from ottla.client.plain_shell import PlainShell
from ottla.client.settings import AdminSettings, read_settings

P = ParamSpec("P")
T = TypeVar("T")


def _plain(
    flow: Callable[Concatenate[AdminMachine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Admin, P], T]:
    """The same call, run to its end while the caller waits."""

    @wraps(flow)
    def call(admin: Admin, /, *arguments: P.args, **named: P.kwargs) -> T:
        return admin.run(flow(admin.machine, *arguments, **named))

    return call


class Admin:
    def __init__(self, settings: Mapping[str, Any] | None = None, **named: Any) -> None:
        """Settings under Kafka's names: `{"request.timeout.ms": 5000}` or `request_timeout_ms=`."""
        read = read_settings(AdminSettings, settings, named)
        core = Core(read, chance, auto_create=False)
        self.machine = AdminMachine(read, core)
        self._shell = PlainShell(core, f"ottla-admin-{read.client_id}")

    def run(self, flow: Coroutine[Any, Any, T]) -> T:
        return self._shell.call(flow)

    list_topics = _plain(AdminMachine.list_topics)
    describe_topics = _plain(AdminMachine.describe_topics)
    create_topics = _plain(AdminMachine.create_topics)
    create_topic = _plain(AdminMachine.create_topic)
    delete_topics = _plain(AdminMachine.delete_topics)
    delete_topic = _plain(AdminMachine.delete_topic)
    create_partitions = _plain(AdminMachine.create_partitions)
    list_offsets = _plain(AdminMachine.list_offsets)
    delete_records = _plain(AdminMachine.delete_records)
    describe_configs = _plain(AdminMachine.describe_configs)
    alter_configs = _plain(AdminMachine.alter_configs)
    list_groups = _plain(AdminMachine.list_groups)
    describe_groups = _plain(AdminMachine.describe_groups)
    delete_groups = _plain(AdminMachine.delete_groups)
    list_group_offsets = _plain(AdminMachine.list_group_offsets)
    list_offsets_of_groups = _plain(AdminMachine.list_offsets_of_groups)
    alter_group_offsets = _plain(AdminMachine.alter_group_offsets)
    delete_group_offsets = _plain(AdminMachine.delete_group_offsets)
    list_transactions = _plain(AdminMachine.list_transactions)
    describe_transactions = _plain(AdminMachine.describe_transactions)
    complete_transaction = _plain(AdminMachine.complete_transaction)
    abort_transaction = _plain(AdminMachine.abort_transaction)
    describe_producers = _plain(AdminMachine.describe_producers)
    abort_hanging_transaction = _plain(AdminMachine.abort_hanging_transaction)
    fetch_batches = _plain(AdminMachine.fetch_batches)
    describe_cluster = _plain(AdminMachine.describe_cluster)
    describe_log_dirs = _plain(AdminMachine.describe_log_dirs)
    elect_leaders = _plain(AdminMachine.elect_leaders)
    alter_reassignments = _plain(AdminMachine.alter_reassignments)
    list_reassignments = _plain(AdminMachine.list_reassignments)

    def close(self) -> None:
        self._shell.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
