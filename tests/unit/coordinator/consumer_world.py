"""A shard with consumer groups for tests: members that ask and are told, on virtual time.

Requests go through the codec, so they have exactly the fields that a handler would see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.shard import Fields
from sim.groups.asked_shard import (
    GROUP,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    AskedShard,
    Held,
    subscription,
)
from sim.groups.hosted_shard import Cluster, a_cluster

CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)


class World(AskedShard):
    """One shard; `group()` is the group that everything here is about."""

    def __init__(self, *, config: GroupConfig = CONFIG, image: Cluster | None = None) -> None:
        super().__init__(config, image or a_cluster(t=4, u=2))

    def group(self) -> ConsumerGroup:
        group = self.hosted.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def state(self) -> str:
        return self.group().state_name()

    # -- asking -----------------------------------------------------------------------------

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
        answer = self.ask_commit(member, epoch, {("t", 0): offset}, **fields).result()
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    # -- the world --------------------------------------------------------------------------

    def told(self, answer: Fields) -> Held | None:
        """The assignment of an answer by the names of the topics."""
        if answer["assignment"] is None:
            return None
        names = self.hosted.image.topic_names_by_id
        return {
            names[one["topic_id"]]: one["partitions"]
            for one in answer["assignment"]["topic_partitions"]
        }

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


def refusal_of(answer: Deferred[Fields]) -> int:
    """The error code with which an answer has failed."""
    try:
        return int(answer.result()["error_code"])
    except ProtocolError as refused:
        return refused.code


def names_of(held: Iterable[str]) -> list[str]:
    return sorted(held)
