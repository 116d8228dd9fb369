"""A group's offsets: committing them, and asking for what is committed.

Owns the two conversations with the coordinator, and what each refusal means. A coordinator that
has moved is looked for; what may pass is tried again until the deadline; a member that the group
goes on without gets CommitFailedError. Who the member is, its membership tells at the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.base.ids import TopicPartition
from ottla.client.consumer_errors import CommitFailedError
from ottla.client.consumer_offsets import by_topic
from ottla.client.coordinators import GROUP, Coordinators
from ottla.client.core import Core
from ottla.client.errors import BrokerError, ClientError, UnknownTopicError, error_for
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.nodes import COORDINATOR
from ottla.protocol import error_codes as codes
from ottla.protocol.api_keys import OFFSET_COMMIT, OFFSET_FETCH

NEWEST_BY_NAME = 9
"""The last version of both requests with topics' names."""

NOTHING_COMMITTED = -1

_OUSTED = frozenset(
    {
        codes.UNKNOWN_MEMBER_ID,
        codes.ILLEGAL_GENERATION,
        codes.FENCED_MEMBER_EPOCH,
        codes.REBALANCE_IN_PROGRESS,
    }
)


class MemberIdentity(NamedTuple):
    """Who commits; the defaults are those of a reader outside of any generation."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class GroupCommits:
    def __init__(
        self,
        core: Core,
        coordinators: Coordinators,
        group_id: str,
        identity: Callable[[], MemberIdentity | None],
        *,
        require_stable: bool,
    ) -> None:
        self._core = core
        self._coordinators = coordinators
        self._group_id = group_id
        self._identity = identity
        self._require_stable = require_stable
        self.on_ousted: Callable[[int, MemberIdentity], None] = lambda code, identity: None
        """Told when the coordinator does not know this member (any more), by this name."""

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: float,
        *,
        waits_for_topics: bool = True,
    ) -> None:
        """Until the coordinator has them; without `waits_for_topics` not those of topics that it
        does not know."""

        async def attempt() -> None:
            try:
                await self.commit_once(offsets)
            except UnknownTopicError as error:
                error.retriable = waits_for_topics
                raise

        if offsets:
            await self._core.retry(attempt, deadline_ms, "commit")

    async def commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """One attempt."""
        identity = self._identity()
        if identity is None:
            # An empty group would take a commit without a name, whoever has read on meanwhile.
            raise CommitFailedError(
                codes.UNKNOWN_MEMBER_ID,
                f"group {self._group_id}",
                "this consumer is not in the group, or no longer; poll to get in",
            )

        def of(topic: str, partition: int) -> dict[str, Any]:
            one = offsets[topic, partition]
            return {
                "partition_index": partition,
                "committed_offset": one.offset,
                "committed_leader_epoch": one.leader_epoch,
                "commit_timestamp": -1,
                "committed_metadata": one.metadata,
            }

        fields = {
            "group_id": self._group_id,
            "generation_id_or_member_epoch": identity.generation,
            "member_id": identity.member_id,
            "group_instance_id": identity.instance_id,
            "retention_time_ms": -1,
            "topics": by_topic(offsets, "name", of),
        }
        answer = await self._ask(OFFSET_COMMIT, fields)
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code != codes.NONE:
                    what = f"{topic.name}-{one.partition_index}"
                    raise self._refusal(one.error_code, what, identity)

    async def committed(
        self, partitions: Iterable[TopicPartition], deadline_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """None where the group has committed nothing."""
        wanted = list(partitions)
        if not wanted:
            return {}
        return await self._core.retry(
            lambda: self._committed_once(wanted), deadline_ms, "committed offsets"
        )

    async def _committed_once(
        self, wanted: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        topics: dict[str, list[int]] = {}
        for topic, partition in wanted:
            topics.setdefault(topic, []).append(partition)
        named = [{"name": name, "partition_indexes": parts} for name, parts in topics.items()]
        identity = self._identity() or MemberIdentity()
        group = {
            "group_id": self._group_id,
            "member_id": identity.member_id or None,
            "member_epoch": identity.generation if identity.member_id else -1,
            "topics": named,
        }
        fields = {**group, "groups": [group], "require_stable": self._require_stable}
        answer = await self._ask(OFFSET_FETCH, fields)
        told = answer.groups[0] if answer.groups else answer
        if told.error_code != codes.NONE:
            raise self._refusal(told.error_code, "committed offsets", identity)
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(wanted)
        for topic in told.topics:
            for one in topic.partitions:
                key = (topic.name, one.partition_index)
                if one.error_code != codes.NONE:
                    raise self._refusal(one.error_code, f"{key[0]}-{key[1]}", identity)
                if one.committed_offset != NOTHING_COMMITTED:
                    found[key] = OffsetAndMetadata(
                        one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                    )
        return found

    async def _ask(self, api_key: int, fields: dict[str, Any]) -> Any:
        node = await self._coordinators.find(GROUP, self._group_id)
        try:
            return await self._core.request(
                node, api_key, fields, purpose=COORDINATOR, version_max=NEWEST_BY_NAME
            )
        except ClientError as error:
            if error.retriable:
                self._coordinators.forget(GROUP, self._group_id)
            raise

    def _refusal(self, code: int, what: str, identity: MemberIdentity) -> BrokerError:
        if code in (codes.NOT_COORDINATOR, codes.COORDINATOR_NOT_AVAILABLE):
            self._coordinators.forget(GROUP, self._group_id)
        if code in _OUSTED:
            self.on_ousted(code, identity)
            return CommitFailedError(code, f"group {self._group_id}")
        error = error_for(code, what)
        if code == codes.FENCED_INSTANCE_ID:
            self.on_ousted(code, identity)
        elif code == codes.STALE_MEMBER_EPOCH:
            error.retriable = True  # the next heartbeat brings the new epoch
        return error
