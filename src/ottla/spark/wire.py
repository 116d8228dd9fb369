"""A connection to a cluster for this room: the client's core with its background thread.

The questions of the source and the sink are conversations of a few requests each (`flows` in
docs/internals/client.md). Here is what they share: retries within `default.api.timeout.ms`, the
leader of a partition, the coordinator of a group.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.coordinators import GROUP, Coordinators
from ottla.client.core import Core
from ottla.client.errors import BrokerError, ClientError, error_for
from ottla.client.plain_shell import PlainShell
from ottla.client.settings import read_settings
from ottla.protocol.api_keys import LIST_OFFSETS
from ottla.protocol.error_codes import LEADER_NOT_AVAILABLE, NONE
from ottla.spark.option_values import EARLIEST

T = TypeVar("T")


class Wire:
    def __init__(self, settings: Mapping[str, str], name: str) -> None:
        self.settings = read_settings(ConsumerSettings, settings, {})
        self.core = Core(self.settings, random.random, auto_create=False)
        self.coordinators = Coordinators(self.core)
        self.shell = PlainShell(self.core, f"ottla-spark-{name}")

    def call(self, attempt: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Runs a conversation, again after errors that may pass, until its time is up."""
        return self.shell.call(self._within_time(attempt, what))

    async def _within_time(self, attempt: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        core = self.core
        deadline_ms = core.now_ms + self.settings.default_api_timeout_ms
        return await core.retry(attempt, deadline_ms, what)

    async def leader_of(self, topic: str, partition: int) -> int:
        """One attempt: unknown topics and partitions without a leader are errors that may pass."""
        deadline_ms = self.core.now_ms + self.settings.request_timeout_ms
        await self.core.metadata.topic(topic, deadline_ms)
        leader = self.core.cluster.leader_of(topic, partition)
        if leader < 0:
            self.core.metadata.request_update()
            raise error_for(LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return leader

    async def earliest(self, topic: str, partition: int) -> int:
        """The first offset of a partition; one attempt."""
        leader = await self.leader_of(topic, partition)
        answer = await self.core.request(
            leader,
            LIST_OFFSETS,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": partition,
                                "current_leader_epoch": -1,
                                "timestamp": EARLIEST,
                            }
                        ],
                    }
                ],
                "timeout_ms": self.settings.request_timeout_ms,
            },
        )
        found = answer.topics[0].partitions[0]
        if found.error_code != NONE:
            raise self.partition_error(topic, partition, found.error_code)
        return int(found.offset)

    async def coordinator_of(self, group_id: str) -> int:
        return await self.coordinators.find(GROUP, group_id)

    def group_error(self, group_id: str, code: int) -> ClientError:
        if Coordinators.is_moved(code):
            self.coordinators.forget(GROUP, group_id)
        return error_for(code, f"group {group_id}")

    def partition_error(self, topic: str, partition: int, code: int) -> BrokerError:
        """The leader may have moved: what is known is asked for anew."""
        self.core.metadata.request_update()
        return error_for(code, f"{topic}-{partition}")

    def close(self) -> None:
        self.shell.close()
