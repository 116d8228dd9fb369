"""The driver's view of a cluster, asked by Ottla's client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client.errors import ClientError, UnknownTopicError, error_for
from ottla.protocol.api_keys import (
    DELETE_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from ottla.protocol.error_codes import GROUP_ID_NOT_FOUND, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.primitives import NULL_UUID
from ottla.spark.cluster_view import NOTHING, Committed, TopicFacts
from ottla.spark.decisions import TOPIC as DECISIONS
from ottla.spark.deleted_topics import DeletedTopics
from ottla.spark.errors import OptionError, TopicsChanged
from ottla.spark.option_values import LATEST
from ottla.spark.source_options import Subscription
from ottla.spark.wire import Wire, consumer_settings

_READ_COMMITTED = 1
_NOT_THERE = -1
# A broker that needs longer than that for a word is not one to wait for.
ANSWER_MS_MAX = 3_000


class ClientView:
    """`settings` are the client's, with the isolation level in which ends are meant."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        read = consumer_settings(settings)
        self._wire = Wire(read, read.default_api_timeout_ms, "driver", waits_for_topics=False)
        self._deleted = DeletedTopics(self._wire.core)
        self._isolation = int(read.isolation_level == "read_committed")

    def close(self) -> None:
        self._wire.close()

    # -- topics -------------------------------------------------------------------------------

    def topics(
        self, subscription: Subscription, expected: Mapping[str, str] = NOTHING
    ) -> dict[str, TopicFacts]:
        return self._wire.call(lambda: self._topics(subscription, expected), "looking for topics")

    async def _topics(
        self, subscription: Subscription, expected: Mapping[str, str]
    ) -> dict[str, TopicFacts]:
        core = self._wire.core
        names = subscription.topics or tuple(subscription.partitions)
        fields = {
            "topics": [{"topic_id": NULL_UUID, "name": name} for name in names] or None,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer = await core.request(core.least_loaded(), METADATA, fields, version_min=10)
        core.cluster.update(answer, all_topics=not names)
        await self._look_for_missing(answer, expected)
        found: dict[str, TopicFacts] = {}
        for topic in answer.topics:
            if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topic.error_code != NONE:
                raise error_for(topic.error_code, f"topic {topic.name}")
            # A pattern means what people write, and not the topic of the sinks' decisions.
            is_internal = topic.is_internal or topic.name == DECISIONS
            if not names and (is_internal or not _matches(subscription.pattern, topic.name)):
                continue
            core.metadata.want(topic.name)
            partitions = sorted(one.partition_index for one in topic.partitions)
            if subscription.partitions:
                partitions = _assigned(subscription, topic.name, partitions)
            found[topic.name] = TopicFacts(str(topic.topic_id), tuple(partitions))
        return found

    async def _look_for_missing(self, answer: Any, expected: Mapping[str, str]) -> None:
        """Raises what may pass while it is not certain that they are deleted."""
        unknown = UNKNOWN_TOPIC_OR_PARTITION
        there = {one.name for one in answer.topics if one.error_code != unknown}
        for topic in expected.items():
            if topic[0] in there:
                self._deleted.forget(topic)
            elif not await self._deleted.ask(topic):
                # Unless a broker has said more: that it is there and not for us, perhaps.
                info = self._wire.core.cluster.topics.get(topic[0])
                code = NONE if info is None else info.error_code
                raise error_for(code or unknown, f"topic {topic[0]}")

    # -- offsets ------------------------------------------------------------------------------

    def offsets(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not at:
            return {}
        return self._wire.call(lambda: self._offsets(at), "listing offsets")

    async def _offsets(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic, partition in at:
            leader = await self._leader_of(topic, partition)
            by_leader.setdefault(leader, []).append((topic, partition))
        core = self._wire.core
        asked = [
            core.request(leader, LIST_OFFSETS, self._question(places, at))
            for leader, places in by_leader.items()
        ]
        found: dict[TopicPartition, int] = {}
        for pending in asked:
            answer = await pending
            for topic in answer.topics:
                for one in topic.partitions:
                    if one.error_code != NONE:
                        raise self._wire.partition_error(
                            topic.name, one.partition_index, one.error_code
                        )
                    if one.offset >= 0:
                        found[topic.name, one.partition_index] = one.offset
        return found

    async def _leader_of(self, topic: str, partition: int) -> int:
        """What is asked for was in a list of topics: a broker that does not know it any more has
        seen it deleted, and waiting for it would hold the query up for nothing."""
        try:
            return await self._wire.leader_of(topic, partition)
        except UnknownTopicError:
            raise TopicsChanged(f"topic {topic} exists no more") from None

    def _question(
        self, places: list[TopicPartition], at: Mapping[TopicPartition, int]
    ) -> dict[str, Any]:
        topics: dict[str, list[dict[str, int]]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "current_leader_epoch": self._wire.core.cluster.leader_epoch_of(
                        topic, partition
                    ),
                    "timestamp": at[topic, partition],
                }
            )
        return {
            "replica_id": -1,
            "isolation_level": self._isolation,
            "topics": [{"name": name, "partitions": some} for name, some in topics.items()],
            "timeout_ms": self._wire.settings.request_timeout_ms,
        }

    # -- groups -------------------------------------------------------------------------------

    def committed(
        self, group_id: str, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        return self._wire.call(
            lambda: self._committed(group_id, partitions), f"offsets of group {group_id}"
        )

    async def _committed(
        self, group_id: str, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        asked = [{"name": name, "partition_indexes": some} for name, some in topics.items()]
        # v10 asks by topic id; names are what a group is known by here.
        answer = await self._wire.ask_group(
            group_id,
            OFFSET_FETCH,
            {
                "group_id": group_id,
                "topics": asked,
                "groups": [{"group_id": group_id, "member_epoch": -1, "topics": asked}],
                "require_stable": True,
            },
            version_max=9,
        )
        group = answer.groups[0] if answer.groups else answer
        if group.error_code != NONE:
            raise self._wire.group_error(group_id, group.error_code)
        found: dict[TopicPartition, Committed] = {}
        for topic in group.topics:
            for one in topic.partitions:
                if one.error_code != NONE:
                    raise self._wire.group_error(group_id, one.error_code)
                if one.committed_offset != _NOT_THERE:
                    found[topic.name, one.partition_index] = Committed(
                        one.committed_offset, one.metadata or ""
                    )
        return found

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        self._wire.call(lambda: self._commit(group_id, offsets), f"commit of group {group_id}")

    async def _commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), one in offsets.items():
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": one.offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": one.metadata,
                }
            )
        answer = await self._wire.ask_group(
            group_id,
            OFFSET_COMMIT,
            {
                "group_id": group_id,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
                "retention_time_ms": -1,
                "topics": [{"name": name, "partitions": some} for name, some in topics.items()],
            },
            version_max=9,
        )
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                    raise TopicsChanged(f"topic {topic.name} exists no more")
                if one.error_code != NONE:
                    raise self._wire.group_error(group_id, one.error_code)

    def delete_group(self, group_id: str) -> bool:
        """False if there is none of that name."""
        return self._wire.call(lambda: self._delete_group(group_id), f"group {group_id}")

    async def _delete_group(self, group_id: str) -> bool:
        fields = {"groups_names": [group_id]}
        answer = await self._wire.ask_group(group_id, DELETE_GROUPS, fields, version_max=2)
        code = answer.results[0].error_code
        if code not in (NONE, GROUP_ID_NOT_FOUND):
            raise self._wire.group_error(group_id, code)
        return bool(code == NONE)


def answers(client: Mapping[str, str], servers: str, places: Iterable[TopicPartition] = ()) -> bool:
    """Whether these brokers have a word for us, and the leaders of these partitions."""
    patience = str(ANSWER_MS_MAX)
    view = ClientView(
        {
            **client,
            "bootstrap.servers": servers,
            "request.timeout.ms": patience,
            "default.api.timeout.ms": patience,
        }
    )
    try:
        view.topics(Subscription((DECISIONS,)))
        view.offsets(dict.fromkeys(places, LATEST))
    except (ClientError, TopicsChanged):
        return False
    finally:
        view.close()
    return True


def _matches(pattern: str, topic: str) -> bool:
    try:
        return re.fullmatch(pattern, topic) is not None
    except re.error as wrong:
        raise OptionError(f"option subscribePattern: {pattern!r} is no pattern: {wrong}") from None


def _assigned(subscription: Subscription, topic: str, partitions: list[int]) -> list[int]:
    wanted = subscription.partitions[topic]
    missing = sorted(set(wanted) - set(partitions))
    if missing:
        raise OptionError(
            f"option assign: {topic} has no partition {missing[0]}; it has {len(partitions)}"
        )
    return list(wanted)
