"""From new states of partitions to the operations of one commit.

Every state is written on top of the version that the image has. Versions alone do not guard
against everything, so the commit checks besides:

- A topic that is deleted and made again begins again with version 0. So every commit of states
  checks `/admin/delete_topics`, whose version grows with each deletion.
- Who is `eligible` depends on min.insync.replicas: a commit that makes somebody eligible checks
  the nodes that this setting was read from. Who lowers the setting looks after those who are
  eligible then (`min_in_sync`).
- Whether somebody may be elected who has not everything is a setting, too, and whoever forbids it
  is answered before the controller has heard: an election that may lose something checks the same
  nodes.
- Who becomes leader may have died, begun to stop, or come back with less, meanwhile: both nodes of
  its registration are checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.base.ids import NO_BROKER
from ottla.metadata import nodes, paths
from ottla.metadata.assignment import Moving, topic_write
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.metadata.nodes import StateContent
from ottla.metadata.store import Check, Operation, Write

PARTITIONS_MAX = 200
"""In one commit of the controller: what it holds up, and what a conflict makes it do again."""
BYTES_MAX = 256 * 1024
"""Far enough from ZooKeeper's 1 MB: the change node repeats everything that is written."""

BYTES_PER_STATE = 64
"""For the path and the framing of one operation."""


@dataclass(slots=True)
class PartitionWrites:
    """Collects states until the commit is full; `operations` are those of the commit."""

    image: MetadataImage
    _states: dict[tuple[str, int], PartitionState] = field(default_factory=dict)
    _writes: list[Write] = field(default_factory=list)
    _checks: dict[Check, None] = field(default_factory=dict)
    _moved_topics: dict[str, None] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, topic: TopicImage, index: int, state: PartitionState) -> bool:
        """False if nothing changes."""
        if state == topic.partitions[index]:
            return False
        self.write(topic, index, state)
        return True

    def write(self, topic: TopicImage, index: int, state: PartitionState) -> None:
        """Whether anything changes or not: the version grows."""
        old = topic.partitions[index]
        write = state_write(self.image, topic.name, index, state)
        self._states[topic.name, index] = state
        self._writes.append(write)
        self._bytes += len(write.content or b"") + len(write.path) + BYTES_PER_STATE
        if not set(state.eligible) <= set(old.eligible) or state.unclean_epoch != old.unclean_epoch:
            self._check_settings(topic)
        if state.leader != NO_BROKER and state.leader_epoch != old.leader_epoch:
            # Also where it led before: in the new epoch another life of it would lead, too.
            # Both: the node of another life may have the very same version.
            self.check(paths.broker_id(state.leader))
            self.check(paths.broker_epoch(state.leader))
        if _assignment(state) != _assignment(old) and topic.name not in self._moved_topics:
            self._moved_topics[topic.name] = None
            self._bytes += 32 * len(topic.partitions)

    def check(self, path: str) -> None:
        """The commit rests on this node being as the image has it."""
        self._checks[Check(path, self.image.version_of(path))] = None

    def is_full(self) -> bool:
        return len(self._writes) >= PARTITIONS_MAX or self._bytes >= BYTES_MAX

    def is_empty(self) -> bool:
        return not self._writes

    def changed(self) -> dict[tuple[str, int], PartitionState]:
        return self._states

    def operations(self) -> list[Operation]:
        if not self._writes:
            return []
        self.check(paths.TOPIC_DELETIONS)
        return [*self._checks, *map(self._topic_write, self._moved_topics), *self._writes]

    def _check_settings(self, topic: TopicImage) -> None:
        self.check(paths.broker_configs(""))
        self._checks[Check(paths.topic_configs(topic.name), topic.configs_version)] = None

    def _topic_write(self, name: str) -> Write:
        """The topic's node, with the replicas of all its partitions."""
        topic = self.image.topics[name]
        partitions = {
            index: self._states.get((name, index), state)
            for index, state in topic.partitions.items()
        }
        moving: Moving = {
            index: (state.adding, state.removing)
            for index, state in partitions.items()
            if state.is_reassigning()
        }
        return topic_write(
            topic, {index: state.replicas for index, state in partitions.items()}, moving
        )


def state_write(image: MetadataImage, topic: str, index: int, state: PartitionState) -> Write:
    """On top of the version of the partition that `image` has."""
    content = StateContent(
        state.leader,
        state.leader_epoch,
        state.in_sync,
        state.eligible,
        state.last_known,
        state.unclean_epoch,
    )
    version = image.topics[topic].partitions[index].partition_epoch
    encoded = nodes.partition_state(image.controller_epoch, content)
    return Write(paths.partition_state(topic, index), encoded, version)


def _assignment(state: PartitionState) -> tuple[tuple[int, ...], ...]:
    return state.replicas, state.adding, state.removing
