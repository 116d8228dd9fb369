"""A shard with consumer groups for tests: members that ask and are told, on virtual time.

Requests go through the codec, so they have exactly the fields that a handler would see.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.cluster_view import TopicView
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.shard import Caller, Fields
from ottla.protocol.messages import decode_request, encode_request
from sim.groups.hosted_shard import Cluster, HostedShard, Part, Topic, a_cluster
from tests.unit.coordinator.consumer_conversations import (
    BEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
    subscription,
)

GROUP = "g"
CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)
QUIET: Fields = {
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout_ms": -1,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}

Held = dict[str, list[int]]


class World:
    """One shard; `group()` is the group that everything here is about."""

    def __init__(self, *, config: GroupConfig = CONFIG, image: Cluster | None = None) -> None:
        self.hosted = HostedShard(config=config, image=image or a_cluster(t=4, u=2))
        self.time = self.hosted.time
        self._incarnations = 0

    def group(self) -> ConsumerGroup:
        group = self.hosted.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def state(self) -> str:
        return self.group().state_name()

    # -- asking -----------------------------------------------------------------------------

    def ask(self, member: str, epoch: int, **fields: Any) -> Deferred[Fields]:
        caller = fields.pop("caller", Caller("client", "/127.0.0.1", 1))
        wanted = {"group_id": GROUP, "member_id": member, "member_epoch": epoch}
        encoded = encode_request(BEAT, 1, {**QUIET, **wanted, **fields})
        request = decode_request(BEAT, 1, encoded)
        return self.hosted.host.write(lambda shard: shard.consumer_heartbeat(request, caller))

    def beat(self, member: str, epoch: int, *, owns: Held | None = None, **fields: Any) -> Fields:
        if owns is not None:
            fields["topic_partitions"] = self.partitions(owns)
        return self.ask(member, epoch, **fields).result()

    def join(self, member: str, *topics: str, **fields: Any) -> Fields:
        begin: Fields = {"rebalance_timeout_ms": 10_000, "topic_partitions": []}
        names = list(topics) if topics or "subscribed_topic_regex" not in fields else None
        answer = self.beat(member, 0, **{**begin, "subscribed_topic_names": names, **fields})
        assert answer["error_code"] == 0, answer
        return answer

    def leave(self, member: str, **fields: Any) -> Fields:
        return self.beat(member, -1, **fields)

    def classic(self, api_key: int, version: int, **fields: Any) -> Fields:
        answer = self.ask_classic(api_key, version, **fields)
        self.time.advance(0)
        return answer.result()

    def ask_classic(self, api_key: int, version: int, **fields: Any) -> Deferred[Fields]:
        request = decode_request(
            api_key, version, encode_request(api_key, version, {"group_id": GROUP, **fields})
        )
        caller = Caller("client", "/127.0.0.1", version)
        shard = self.hosted.host.shard
        decide = {
            JOIN_GROUP: shard.join_group,
            SYNC_GROUP: shard.sync_group,
            HEARTBEAT: shard.heartbeat,
            LEAVE_GROUP: shard.leave_group,
        }[api_key]
        return self.hosted.host.write(lambda _: decide(request, caller))

    def classic_join(self, member: str, *topics: str, **fields: Any) -> Fields:
        owned = fields.pop("owned", {})
        metadata = subscription(*topics, owned=owned)
        defaults = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "member_id": member,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
            "reason": None,
        }
        # v3 needs no id beforehand.
        version = fields.pop("version", 3 if not member else 9)
        return self.classic(JOIN_GROUP, version, **{**defaults, **fields})

    def classic_sync(
        self, member: str, generation: int, given: Mapping[str, bytes] = {}, **fields: Any
    ) -> Fields:
        return self.classic(
            SYNC_GROUP,
            5,
            member_id=member,
            generation_id=generation,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": one, "assignment": held} for one, held in given.items()],
            **fields,
        )

    def classic_beat(self, member: str, generation: int) -> int:
        answer = self.classic(
            HEARTBEAT, 4, member_id=member, generation_id=generation, group_instance_id=None
        )
        return int(answer["error_code"])

    def classic_leave(self, member: str, instance: str | None = None) -> int:
        one = {"member_id": member, "group_instance_id": instance, "reason": None}
        answer = self.classic(LEAVE_GROUP, 5, members=[one])
        return int(answer["members"][0]["error_code"])

    def commit(self, offset: int, *, member: str = "", epoch: int = -1, **fields: Any) -> int:
        """Of the first partition of t; the error code."""
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        wanted = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": epoch,
            "member_id": member,
            "group_instance_id": None,
            "topics": [{"name": "t", "partitions": [partition]}],
        }
        request = decode_request(
            OFFSET_COMMIT, 9, encode_request(OFFSET_COMMIT, 9, {**wanted, **fields})
        )
        caller = Caller("client", "/127.0.0.1", 9)
        answer = self.hosted.host.write(lambda shard: shard.commit_offsets(request, caller))
        return int(answer.result()["topics"][0]["partitions"][0]["error_code"])

    # -- the world --------------------------------------------------------------------------

    def partitions(self, owns: Held) -> list[Fields]:
        topics = self.hosted.image.topics
        return [{"topic_id": topics[name].topic_id, "partitions": on} for name, on in owns.items()]

    def told(self, answer: Fields) -> Held | None:
        """The assignment of an answer by the names of the topics."""
        if answer["assignment"] is None:
            return None
        names = self.hosted.image.topic_names_by_id
        return {
            names[one["topic_id"]]: one["partitions"]
            for one in answer["assignment"]["topic_partitions"]
        }

    def change_image(self, image: Cluster) -> None:
        self.hosted.image = image
        self.hosted.host.run(lambda shard: shard.on_image(image))

    def set_topics(self, **counts: int) -> None:
        """These are the topics now. One that stays keeps its id, one that comes has a new one."""
        self._incarnations += 1
        old = self.hosted.image.topics
        topics: dict[str, TopicView] = {}
        for name, count in counts.items():
            known = old.get(name)
            if known is not None and len(known.partitions) == count:
                topics[name] = known
                continue
            fresh = uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {self._incarnations}")
            topic_id = fresh if known is None else known.topic_id
            topics[name] = Topic(name, topic_id, dict.fromkeys(range(count), Part()))
        names = {topic.topic_id: name for name, topic in topics.items()}
        self.change_image(replace(self.hosted.image, topics=topics, topic_names_by_id=names))

    def recreate(self, name: str) -> None:
        """A topic is deleted and made anew: the same name, another id."""
        counts = {one: len(topic.partitions) for one, topic in self.hosted.image.topics.items()}
        self.hosted.image = replace(
            self.hosted.image,
            topics={one: at for one, at in self.hosted.image.topics.items() if one != name},
        )
        self.set_topics(**counts)

    def configure(self, **settings: str) -> None:
        """Settings of the group itself."""
        configs = {GROUP: {name.replace("_", "."): value for name, value in settings.items()}}
        self.change_image(replace(self.hosted.image, group_configs=configs))

    def check_replay(self) -> None:
        """What a restart would find is what there is, and nobody holds what another holds."""
        again = self.hosted.replayed().groups
        ours = self.hosted.shard.groups
        assert {one: seen(group) for one, group in ours.items()} == {
            one: seen(group) for one, group in again.items()
        }
        for group in ours.values():
            if isinstance(group, ConsumerGroup):
                check_holders(group)


def check_holders(group: ConsumerGroup) -> None:
    held: dict[tuple[uuid.UUID, int], str] = {}
    for member_id, member in group.members.items():
        for part in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in part.items():
                for partition in partitions:
                    place = (topic_id, partition)
                    assert place not in held, f"{place} is held by {held[place]} and {member_id}"
                    held[place] = member_id
    assert held == {
        (topic_id, partition): member_id
        for topic_id, holders in group.holders.items()
        for partition, member_id in holders.items()
    }


def seen(group: Any) -> Any:
    """All that the log says of a group."""
    if not isinstance(group, ConsumerGroup):
        return (group.kind, group.stored)
    return (
        group.epoch,
        group.metadata_hash,
        group.target_epoch,
        group.targets_made_ms,
        {one: (member.metadata, member.current) for one, member in group.members.items()},
        group.targets,
        group.patterns,
        +group.topic_counts,
        +group.pattern_counts,
        +group.assignor_counts,
        +group.classic_protocol_counts,
        group.classic_count,
        group.static_members,
        group.holders,
    )


def refusal_of(answer: Deferred[Fields]) -> int:
    """The error code with which an answer has failed."""
    try:
        return int(answer.result()["error_code"])
    except ProtocolError as refused:
        return refused.code


def names_of(held: Iterable[str]) -> list[str]:
    return sorted(held)
