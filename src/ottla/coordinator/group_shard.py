"""The groups and committed offsets of one partition of `__consumer_offsets`.

Owns the choice of who answers: each decision is named after its API and goes to the part that knows
it. A decision takes the request as the codec decoded it (attributes under the names of the message
schemas) and who sent it, and its response is the fields of the newest version; what older versions
call differently is for the handler.

`replay` is the one door into what the log holds: live, after each append, and while loading.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.ports import Clock
from ottla.coordinator import offsets_records as formats
from ottla.coordinator.classic_group import EMPTY, join_refusal
from ottla.coordinator.classic_groups import ClassicGroups
from ottla.coordinator.cluster_view import ClusterView
from ottla.coordinator.consumer_groups import ConsumerGroups
from ottla.coordinator.group import CONSUMER, Group
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.member_memory import MemberMemory
from ottla.coordinator.offset_commits import OffsetCommits
from ottla.coordinator.offsets import NO_PRODUCER_ID, CommittedOffsets
from ottla.coordinator.offsets_records import UnreadableRecord
from ottla.coordinator.shard import Caller, Fields, Outcome, Record, ShardTimers
from ottla.coordinator.transactional_commits import commit_in_transaction
from ottla.protocol.error_codes import NONE

log = logging.getLogger("ottla.coordinator")


class GroupShard:
    def __init__(
        self,
        *,
        config: GroupConfig,
        timers: ShardTimers,
        clock: Clock,
        new_uuid: Callable[[], uuid.UUID],
        image: ClusterView,
        memory: MemberMemory | None = None,
    ) -> None:
        self.offsets = CommittedOffsets()
        self.context = GroupContext(
            config=config,
            timers=timers,
            clock=clock,
            new_uuid=new_uuid,
            image=image,
            offsets=self.offsets,
            memory=memory or MemberMemory(),
        )
        self.groups: dict[str, Group] = self.context.groups
        self.classic = ClassicGroups(self.context)
        self.consumer = ConsumerGroups(self.context, self.classic)
        self.commits = OffsetCommits(self.context, self.classic)

    # -- decisions: members -----------------------------------------------------------------

    def join_group(self, request: Any, caller: Caller) -> Outcome[Fields]:
        group = self.groups.get(request.group_id)
        if group is None or group.kind != CONSUMER:
            return self.classic.join(request, caller)
        if group.state_name() != EMPTY:
            return self.consumer.join_classic(request, caller)
        return self._join_after_conversion(group, request, caller)

    def _join_after_conversion(self, group: Group, request: Any, caller: Caller) -> Outcome[Fields]:
        """An empty consumer group makes way for a classic one, if there will be one."""
        refusal = self.classic.check_new(request)
        if refusal != NONE:
            return Outcome((), join_refusal(refusal, request.member_id))
        answer: Deferred[Fields] = Deferred()

        def on_settled(code: int) -> None:
            if code != NONE:
                self._keep_offsets_of(group.group_id)
                answer.resolve(join_refusal(code, request.member_id))
                return
            joined = self.join_group(request, caller).response
            self._keep_offsets_of(group.group_id)
            if isinstance(joined, Deferred):
                joined.when_done(lambda done: answer.resolve(done.result()))
            else:
                answer.resolve(joined)

        return Outcome(group.tombstones(), answer, on_settled)

    def _keep_offsets_of(self, group_id: str) -> None:
        """What is left of a group without members: offsets age with a group only."""
        if group_id not in self.groups and self.offsets.has_group(group_id):
            self.classic.make_simple(group_id)

    def sync_group(self, request: Any, caller: Caller) -> Outcome[Fields]:
        if self._is_consumer_group(request.group_id):
            return self.consumer.sync_classic(request, caller)
        return self.classic.sync(request, caller)

    def heartbeat(self, request: Any, caller: Caller) -> Outcome[Fields]:
        if self._is_consumer_group(request.group_id):
            return self.consumer.heartbeat_classic(request, caller)
        return self.classic.heartbeat(request, caller)

    def leave_group(self, request: Any, caller: Caller) -> Outcome[Fields]:
        if self._is_consumer_group(request.group_id):
            return self.consumer.leave_classic(request, caller)
        return self.classic.leave(request, caller)

    def consumer_heartbeat(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return self.consumer.heartbeat(request, caller)

    def _is_consumer_group(self, group_id: str) -> bool:
        group = self.groups.get(group_id)
        return group is not None and group.kind == CONSUMER

    # -- decisions: offsets -----------------------------------------------------------------

    def commit_offsets(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return self.commits.commit(request, caller)

    def commit_one_offset(self, request: Any, caller: Caller) -> Outcome[int]:
        return self.commits.commit_one(request, caller)

    def commit_in_transaction(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return commit_in_transaction(self.context, request, caller)

    def delete_offsets(self, request: Any) -> Outcome[Fields]:
        return self.commits.delete_offsets(request)

    def delete_groups(self, group_ids: Sequence[str]) -> Outcome[list[Fields]]:
        return self.commits.delete_groups(group_ids)

    # -- looks: nothing is decided ----------------------------------------------------------

    def fetch_offsets(self, group: Any, caller: Caller, *, require_stable: bool) -> Fields:
        """`group` is one group of an OffsetFetch request."""
        return self.commits.fetch(group, caller, require_stable=require_stable)

    def describe_groups(self, group_ids: Sequence[str], caller: Caller) -> list[Fields]:
        return [self.classic.describe(group_id, caller.api_version) for group_id in group_ids]

    def describe_consumer_groups(self, group_ids: Sequence[str]) -> list[Fields]:
        return self.consumer.describe(group_ids)

    def list_groups(self, states: Collection[str], kinds: Collection[str]) -> list[Fields]:
        """Those in one of `states` and of one of `kinds`; an empty filter lets everything pass."""
        wanted_states = {state.lower() for state in states}
        wanted_kinds = {kind.lower() for kind in kinds}
        return [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state_name(),
                "group_type": group.kind,
            }
            for group in self.groups.values()
            if (not wanted_states or group.state_name().lower() in wanted_states)
            and (not wanted_kinds or group.kind in wanted_kinds)
        ]

    # -- state ------------------------------------------------------------------------------

    def replay(self, record: Record, producer_id: int = NO_PRODUCER_ID) -> None:
        """`producer_id` is that of the transaction in which the record was written, if any."""
        kind = formats.key_version(record.key)
        if kind <= formats.OFFSET_COMMIT_KEY:
            self._replay_commit(record, producer_id)
        elif kind == formats.GROUP_METADATA_KEY:
            stored = record.fact
            if stored is None and record.value is not None:
                stored = formats.read_group_value(record.value)
            self.classic.replay(formats.read_group_key(record.key), stored)
        elif kind in formats.CONSUMER_GROUP_KEYS:
            self.consumer.replay(kind, record)
        else:
            # Share and streams groups of a Kafka that had this directory before: kept, unread.
            log.debug("a record of kind %d means nothing here", kind)

    def _replay_commit(self, record: Record, producer_id: int) -> None:
        if record.fact is not None:
            group_id, topic, partition, commit = record.fact
        else:
            if formats.key_version(record.key) < 0:
                raise UnreadableRecord("a record without a key")
            group_id, topic, partition = formats.read_offset_key(record.key)
            commit = None if record.value is None else formats.read_offset_value(record.value)
        if commit is None:
            self.offsets.remove(group_id, topic, partition)
            return
        if group_id not in self.groups:
            self.classic.make_simple(group_id)
        if producer_id == NO_PRODUCER_ID:
            self.offsets.put(group_id, topic, partition, commit)
        else:
            self.offsets.put_pending(producer_id, (group_id, topic, partition), commit)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed=committed)

    def on_loaded(self) -> Outcome[None]:
        """Everything is replayed: from now on time passes for members and groups."""
        records = self.classic.on_loaded()
        loaded = self.consumer.on_loaded()
        return Outcome([*records, *loaded.records], None, loaded.on_settled)

    def on_tick(self) -> Outcome[bool]:
        """Forgets old offsets and groups; True if the rest has to be looked at in another turn."""
        return self.commits.sweep()

    def on_image(self, image: ClusterView) -> Outcome[None]:
        """Topics came, went or grew; those that went are told by `on_topics_deleted` as well."""
        outcome = self.consumer.on_image(image)
        self.context.image = image
        return outcome

    def on_topics_deleted(self, names: Collection[str]) -> Outcome[None]:
        return Outcome(self.commits.forget_topics(names), None, is_atomic=False)

    def on_config(self, config: GroupConfig) -> None:
        self.context.config = config

    def unload(self) -> None:
        """This broker no longer leads the partition: whoever waits has to ask another."""
        self.classic.unload()
        self.consumer.unload()
        self.groups.clear()
        self.context.memory.give_back()
