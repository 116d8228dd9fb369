"""A hosted shard that is asked as by the network: each request goes through the codec.

So a request has exactly the fields that a handler would see. Everything is about one group.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator.cluster_view import TopicView
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.shard import Caller, Fields
from ottla.protocol.messages import decode_request, encode_request
from sim.groups.hosted_shard import Cluster, HostedShard, Part, Topic

GROUP = "g"
OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
BEAT = 68

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


class AskedShard:
    def __init__(self, config: GroupConfig, image: Cluster) -> None:
        self.hosted = HostedShard(config=config, image=image)
        self.time = self.hosted.time
        self._incarnations = 0

    # -- asking -----------------------------------------------------------------------------

    def ask(self, member: str, epoch: int, **fields: Any) -> Deferred[Fields]:
        caller = fields.pop("caller", Caller("client", "/127.0.0.1", 1))
        wanted = {"group_id": GROUP, "member_id": member, "member_epoch": epoch}
        encoded = encode_request(BEAT, 1, {**QUIET, **wanted, **fields})
        request = decode_request(BEAT, 1, encoded)
        return self.hosted.host.write(lambda shard: shard.consumer_heartbeat(request, caller))

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

    def ask_commit(
        self, member: str, epoch: int, offsets: Mapping[tuple[str, int], int], **fields: Any
    ) -> Deferred[Fields]:
        wanted = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": epoch,
            "member_id": member,
            "group_instance_id": None,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
                for (topic, partition), offset in offsets.items()
            ],
        }
        encoded = encode_request(OFFSET_COMMIT, 9, {**wanted, **fields})
        request = decode_request(OFFSET_COMMIT, 9, encoded)
        caller = Caller("client", "/127.0.0.1", 9)
        return self.hosted.host.write(lambda shard: shard.commit_offsets(request, caller))

    def ask_committed(self, topic: str, partitions: list[int]) -> Deferred[Fields]:
        group = {
            "group_id": GROUP,
            "member_id": None,
            "member_epoch": -1,
            "topics": [{"name": topic, "partition_indexes": partitions}],
        }
        encoded = encode_request(OFFSET_FETCH, 9, {"groups": [group], "require_stable": True})
        (asked,) = decode_request(OFFSET_FETCH, 9, encoded).groups
        caller = Caller("client", "/127.0.0.1", 9)
        return self.hosted.host.read(
            lambda shard: shard.fetch_offsets(asked, caller, require_stable=True)
        )

    # -- the world --------------------------------------------------------------------------

    def partitions(self, owns: Held) -> list[Fields]:
        topics = self.hosted.image.topics
        return [{"topic_id": topics[name].topic_id, "partitions": on} for name, on in owns.items()]

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


def subscription(
    *topics: str, owned: Mapping[str, Iterable[int]] | None = None, version: int = 3
) -> bytes:
    """As a classic consumer writes it."""
    parts = [struct.pack(">hi", version, len(topics)), *map(_text, topics), b"\xff\xff\xff\xff"]
    if version >= 1:
        held = owned or {}
        parts.append(struct.pack(">i", len(held)))
        for topic, indexes in held.items():
            listed = list(indexes)
            parts += (_text(topic), struct.pack(f">i{len(listed)}i", len(listed), *listed))
    if version >= 2:
        parts.append(struct.pack(">i", -1))
    if version >= 3:
        parts.append(b"\xff\xff")
    return b"".join(parts)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
