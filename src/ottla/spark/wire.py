"""A connection to a cluster for this room: the client's core with its background thread.

The questions of the source and the sink are conversations of a few requests each (`flows` in
docs/internals/client.md). Here is what they share: retries until their time is up, the leader of a
partition, the coordinator of a group or a transactional id.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ottla.client.api_versions import BrokerVersions
from ottla.client.clock import chance
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.coordinators import GROUP, TRANSACTION, Coordinators
from ottla.client.core import Core
from ottla.client.errors import BrokerError, ClientError, ConnectionLostError, error_for
from ottla.client.nodes import COORDINATOR
from ottla.client.plain_shell import PlainShell
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import ClientSettings, read_settings
from ottla.protocol.api_keys import INIT_PRODUCER_ID, LIST_OFFSETS
from ottla.protocol.error_codes import LEADER_NOT_AVAILABLE, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.spark.option_values import EARLIEST

T = TypeVar("T")

# InitProducerId v6: the first that can keep a transaction open for somebody else to end.
PREPARE_VERSION = 6
_TRANSACTIONS_V2 = 2


def consumer_settings(given: Mapping[str, str]) -> ConsumerSettings:
    return read_settings(ConsumerSettings, given, {})


def producer_settings(given: Mapping[str, str]) -> ProducerSettings:
    return read_settings(ProducerSettings, given, {})


class Wire:
    """`patience_ms` is for one conversation with all its retries. With `waits_for_topics` one that
    is not there is waited for, as it may be new; otherwise it was there, and UnknownTopicError is
    raised at once."""

    def __init__(
        self,
        settings: ClientSettings,
        patience_ms: int,
        name: str,
        *,
        waits_for_topics: bool = True,
    ) -> None:
        self.settings = settings
        self.patience_ms = patience_ms
        self._waits_for_topics = waits_for_topics
        self.core = Core(settings, chance, auto_create=isinstance(settings, ProducerSettings))
        self.coordinators = Coordinators(self.core)
        # Replicas that leaders have named as nearer to us than they are.
        self.nearer: dict[tuple[str, int], int] = {}
        self._versions: dict[int, BrokerVersions] = {}
        self.shell = PlainShell(self.core, f"ottla-spark-{name}")

    def call(self, attempt: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Runs a conversation, again after errors that may pass, until its time is up."""
        return self.shell.call(self.retried(attempt, what))

    async def retried(self, attempt: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        core = self.core
        return await core.retry(attempt, core.now_ms + self.patience_ms, what)

    async def leader_of(self, topic: str, partition: int) -> int:
        """One attempt: unknown topics and partitions without a leader are errors that may pass."""
        deadline_ms = self.core.now_ms + self.settings.request_timeout_ms
        if not self._waits_for_topics:
            await self._refuse_unknown(topic, deadline_ms)
        await self.core.metadata.topic(topic, deadline_ms)
        leader = self.core.cluster.leader_of(topic, partition)
        if leader < 0:
            self.core.metadata.request_update()
            raise error_for(LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return leader

    async def _refuse_unknown(self, topic: str, deadline_ms: float) -> None:
        cluster, metadata = self.core.cluster, self.core.metadata
        if topic not in cluster.topics:
            metadata.want(topic)
            await self.core.within(metadata.next_update(), deadline_ms, "metadata of the cluster")
        info = cluster.topics.get(topic)
        if info is not None and info.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            metadata.request_update()
            raise error_for(UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}")

    async def earliest(self, topic: str, partition: int) -> int:
        """The first offset of a partition; one attempt."""
        leader = await self.leader_of(topic, partition)
        asked = {
            "partition_index": partition,
            "current_leader_epoch": -1,
            "timestamp": EARLIEST,
        }
        answer = await self.core.request(
            leader,
            LIST_OFFSETS,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": topic, "partitions": [asked]}],
                "timeout_ms": self.settings.request_timeout_ms,
            },
        )
        found = answer.topics[0].partitions[0]
        if found.error_code != NONE:
            raise self.partition_error(topic, partition, found.error_code)
        return int(found.offset)

    def partition_error(self, topic: str, partition: int, code: int) -> BrokerError:
        """The leader may have moved: what is known is asked for anew."""
        self.core.metadata.request_update()
        return error_for(code, f"{topic}-{partition}")

    # -- coordinators -------------------------------------------------------------------------

    async def ask_group(
        self, group_id: str, api_key: int, fields: Mapping[str, Any], version_max: int
    ) -> Any:
        return await self._ask(GROUP, group_id, api_key, fields, version_max=version_max)

    async def ask_transactions(
        self,
        transactional_id: str,
        api_key: int,
        fields: Mapping[str, Any],
        *,
        version_min: int | None = None,
        version_max: int | None = None,
    ) -> Any:
        return await self._ask(
            TRANSACTION,
            transactional_id,
            api_key,
            fields,
            version_min=version_min,
            version_max=version_max,
        )

    async def _ask(
        self,
        kind: int,
        key: str,
        api_key: int,
        fields: Mapping[str, Any],
        *,
        version_min: int | None = None,
        version_max: int | None = None,
    ) -> Any:
        node_id = await self.coordinators.find(kind, key)
        try:
            return await self.core.request(
                node_id,
                api_key,
                fields,
                purpose=COORDINATOR,
                version_min=version_min,
                version_max=version_max,
            )
        except ConnectionLostError:
            self.coordinators.forget(kind, key)
            raise

    def group_error(self, group_id: str, code: int) -> ClientError:
        if Coordinators.is_moved(code):
            self.coordinators.forget(GROUP, group_id)
        return error_for(code, f"group {group_id}")

    def transaction_error(self, transactional_id: str, code: int) -> ClientError:
        if Coordinators.is_moved(code):
            self.coordinators.forget(TRANSACTION, transactional_id)
        return error_for(code, f"transactional id {transactional_id}")

    # -- what the brokers can -----------------------------------------------------------------

    def prepares(self) -> bool:
        """Whether prepared transactions outlive their time-out here; known once connected."""
        ranges = [one.ranges for one in self._introduced()]
        return bool(ranges) and all(
            found.get(INIT_PRODUCER_ID, (0, 0))[1] >= PREPARE_VERSION for found in ranges
        )

    def adds_partitions_itself(self) -> bool:
        """KIP-890: a Produce tells the coordinator of its partition."""
        features = [one.features for one in self._introduced()]
        return bool(features) and all(
            found.get("transaction.version", 0) >= _TRANSACTIONS_V2 for found in features
        )

    def _introduced(self) -> list[BrokerVersions]:
        """What each broker has said last, whether anybody is connected to it now or not: after a
        quiet hour no connection is left, and the brokers are the same."""
        for (node_id, _), connection in self.core.nodes.connections.items():
            if connection.versions is not None:
                self._versions[node_id] = connection.versions
        brokers = self.core.cluster.brokers
        known = [one for node_id, one in self._versions.items() if node_id in brokers]
        return known or list(self._versions.values())

    def close(self) -> None:
        self.shell.close()
