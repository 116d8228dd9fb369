"""The one door into the image: a snapshot makes the first one, each change the next.

`apply` reads the changed nodes and copies what they touch: a topic and the table of topics for a
partition, the table of brokers for a broker. A change that is damaged anywhere raises DamagedNode
and nothing of it is taken: half a change would be a state that the cluster never had.

A change that the image has already seen is ignored, because a broker hears of its own commits
twice: as the result, and as a follower.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ottla.base.ids import NO_BROKER
from ottla.metadata import nodes, paths
from ottla.metadata.image import (
    ABSENT_VERSION,
    EMPTY_IMAGE,
    BrokerRegistration,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from ottla.metadata.nodes import DamagedNode, StateContent, TopicContent
from ottla.metadata.store import Change, NodeUpdate, Snapshot

_NO_ID = uuid.UUID(int=0)


def image_from_snapshot(snapshot: Snapshot) -> MetadataImage:
    updates = tuple(NodeUpdate(path, *node) for path, node in snapshot.nodes.items())
    image = apply(EMPTY_IMAGE, Change(max(snapshot.last_change, 0), updates))
    return replace(image, last_change=snapshot.last_change)


def apply(image: MetadataImage, change: Change) -> MetadataImage:
    if change.number <= image.last_change:
        return image
    draft = _Draft(image)
    for update in change.updates:
        draft.take(update)
    return draft.finish(change.number)


class _TopicDraft:
    """The nodes of one topic that a change touches."""

    __slots__ = ("configs", "states", "topic")

    def __init__(self) -> None:
        self.topic: NodeUpdate | None = None
        self.configs: NodeUpdate | None = None
        self.states: dict[int, NodeUpdate] = {}


class _Draft:
    """An image in the making. Tables are copied when they are first written to."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._fields: dict[str, Any] = {}
        self._topics: dict[str, _TopicDraft] = {}

    def take(self, update: NodeUpdate) -> None:
        path = update.path
        if path.startswith(paths.TOPICS):
            self._take_topic(update)
            return
        if path.startswith(paths.TOPIC_CONFIGS):
            self._topic(path[len(paths.TOPIC_CONFIGS) :]).configs = update
            return
        self._table("versions")[path] = update.version
        if update.content is None:
            del self._table("versions")[path]
        taker = _SINGLE_NODES.get(path)
        if taker is not None:
            taker(self, update)
            return
        folder, _, name = path.rpartition("/")
        folder_taker = _FOLDERS.get(folder + "/")
        if folder_taker is not None:
            folder_taker(self, update, name)

    def finish(self, number: int) -> MetadataImage:
        for name, draft in self._topics.items():
            self._finish_topic(name, draft)
        if len(self._changed("topic_names_by_id")) != len(self._changed("topics")):
            raise DamagedNode(paths.TOPICS, "two topics have the same id")
        return replace(self._image, last_change=number, **self._fields)

    def _table(self, field: str) -> dict[Any, Any]:
        if field not in self._fields:
            self._fields[field] = dict(getattr(self._image, field))
        table: dict[Any, Any] = self._fields[field]
        return table

    def _changed(self, field: str) -> Mapping[Any, Any]:
        table: Mapping[Any, Any] = self._fields.get(field, getattr(self._image, field))
        return table

    def _topic(self, name: str) -> _TopicDraft:
        draft = self._topics.get(name)
        if draft is None:
            draft = self._topics[name] = _TopicDraft()
        return draft

    def _take_topic(self, update: NodeUpdate) -> None:
        match update.path[len(paths.TOPICS) :].split("/"):
            case [name]:
                self._topic(name).topic = update
            case [name, "partitions", index, "state"] if nodes.is_number(index):
                self._topic(name).states[int(index)] = update
            case _:
                raise DamagedNode(update.path, "there is no such node")

    def _finish_topic(self, name: str, draft: _TopicDraft) -> None:
        old = self._image.topics.get(name)
        removed = draft.topic is not None and draft.topic.content is None
        if removed or (draft.topic is None and old is None):
            _check_nothing_left(name, draft)
            if old is not None:
                del self._table("topics")[name]
                self._forget_id(old)
            return
        topic = _merge_topic(name, old, draft)
        self._table("topics")[name] = topic
        if old is None or old.topic_id != topic.topic_id:
            if old is not None:
                self._forget_id(old)
            self._table("topic_names_by_id")[topic.topic_id] = name

    def _forget_id(self, topic: TopicImage) -> None:
        names_by_id = self._table("topic_names_by_id")
        if names_by_id.get(topic.topic_id) == topic.name:
            del names_by_id[topic.topic_id]

    def take_cluster_id(self, update: NodeUpdate) -> None:
        self._set(update, "cluster_id", nodes.read_cluster_id, "")

    def take_controller(self, update: NodeUpdate) -> None:
        self._set(update, "controller_id", nodes.read_controller, NO_BROKER)

    def take_controller_epoch(self, update: NodeUpdate) -> None:
        self._set(update, "controller_epoch", nodes.read_controller_epoch, 0)

    def take_features(self, update: NodeUpdate) -> None:
        self._set(update, "features", nodes.read_features, {})

    def take_producer_id_block(self, update: NodeUpdate) -> None:
        self._set(update, "next_producer_id", _read_next_producer_id, 0)

    def _set(
        self, update: NodeUpdate, field: str, read: Callable[[str, bytes], Any], absent: Any
    ) -> None:
        content = update.content
        self._fields[field] = absent if content is None else read(update.path, content)

    def take_broker(self, update: NodeUpdate, name: str) -> None:
        """The liveness node: while it is there, the broker is alive and this is its epoch."""
        broker_id = _broker_id(update.path, name)
        brokers = self._table("brokers")
        if update.content is not None:
            brokers[broker_id] = _registration(broker_id, update, alive=True)
        elif paths.broker_epoch(broker_id) not in self._changed("versions"):
            brokers.pop(broker_id, None)
        elif broker_id in brokers:
            brokers[broker_id] = replace(
                brokers[broker_id],
                epoch=-1,
                fenced=True,
                shutting_down=False,
                unclean=False,
                offline={},
            )

    def take_broker_epoch(self, update: NodeUpdate, name: str) -> None:
        """The lasting node: the cluster knows the broker as long as it is there."""
        broker_id = _broker_id(update.path, name)
        brokers = self._table("brokers")
        if update.content is not None:
            known = brokers.get(broker_id)
            if known is None or known.epoch == -1:
                brokers[broker_id] = _registration(broker_id, update, alive=False)
        elif paths.broker_id(broker_id) not in self._changed("versions"):
            brokers.pop(broker_id, None)

    def take_broker_configs(self, update: NodeUpdate, name: str) -> None:
        self._take_configs(update, "broker_configs", "" if name == paths.DEFAULT_ENTITY else name)

    def take_client_metrics_configs(self, update: NodeUpdate, name: str) -> None:
        self._take_configs(update, "client_metrics_configs", _entity_name(update.path, name))

    def take_group_configs(self, update: NodeUpdate, name: str) -> None:
        self._take_configs(update, "group_configs", _entity_name(update.path, name))

    def _take_configs(self, update: NodeUpdate, field: str, name: str) -> None:
        if update.content is None:
            self._table(field).pop(name, None)
        else:
            self._table(field)[name] = nodes.read_configs(update.path, update.content)


_SINGLE_NODES: dict[str, Callable[[_Draft, NodeUpdate], None]] = {
    paths.CLUSTER_ID: _Draft.take_cluster_id,
    paths.CONTROLLER: _Draft.take_controller,
    paths.CONTROLLER_EPOCH: _Draft.take_controller_epoch,
    paths.FEATURES: _Draft.take_features,
    paths.PRODUCER_ID_BLOCK: _Draft.take_producer_id_block,
}
_FOLDERS: dict[str, Callable[[_Draft, NodeUpdate, str], None]] = {
    paths.BROKER_IDS: _Draft.take_broker,
    paths.BROKER_EPOCHS: _Draft.take_broker_epoch,
    paths.BROKER_CONFIGS: _Draft.take_broker_configs,
    paths.CLIENT_METRICS_CONFIGS: _Draft.take_client_metrics_configs,
    paths.GROUP_CONFIGS: _Draft.take_group_configs,
}


def _read_next_producer_id(path: str, content: bytes) -> int:
    return nodes.read_producer_id_block_end(path, content) + 1


def _broker_id(path: str, name: str) -> int:
    if not nodes.is_number(name):
        raise DamagedNode(path, f"{name!r} is not a broker id")
    return int(name)


def _entity_name(path: str, name: str) -> str:
    try:
        return paths.entity_name(name)
    except ValueError as cause:
        raise DamagedNode(path, "its name is not one that was escaped") from cause


def _registration(broker_id: int, update: NodeUpdate, *, alive: bool) -> BrokerRegistration:
    content = nodes.read_broker(update.path, update.content or b"")
    return BrokerRegistration(
        broker_id=broker_id,
        epoch=update.created if alive else -1,
        endpoints=content.endpoints,
        rack=content.rack,
        fenced=content.fenced or not alive,
        shutting_down=content.shutting_down and alive,
        unclean=content.unclean and alive,
        security_protocols=content.security_protocols,
        offline=content.offline if alive else {},
    )


def _check_nothing_left(name: str, draft: _TopicDraft) -> None:
    for update in (draft.configs, *draft.states.values()):
        if update is not None and update.content is not None:
            raise DamagedNode(update.path, f"there is no topic {name}")


def _merge_topic(name: str, old: TopicImage | None, draft: _TopicDraft) -> TopicImage:
    before = old or TopicImage(name, _NO_ID, {})
    topic_id, version, partitions = before.topic_id, before.version, before.partitions
    if draft.topic is not None and draft.topic.content is not None:
        content = nodes.read_topic(draft.topic.path, draft.topic.content)
        topic_id, version = content.topic_id, draft.topic.version
        partitions = _merge_partitions(name, content, before, draft.states)
    elif draft.states:
        partitions = _update_states(name, partitions, draft.states)
    configs, configs_version = before.configs, before.configs_version
    if draft.configs is not None:
        configs, configs_version = _read_topic_configs(draft.configs)
    return TopicImage(name, topic_id, partitions, configs, version, configs_version)


def _read_topic_configs(update: NodeUpdate) -> tuple[Mapping[str, str], int]:
    if update.content is None:
        return {}, ABSENT_VERSION
    return nodes.read_configs(update.path, update.content), update.version


def _update_states(
    name: str, old: Mapping[int, PartitionState], states: Mapping[int, NodeUpdate]
) -> Mapping[int, PartitionState]:
    partitions = dict(old)
    for index, update in states.items():
        before = old.get(index)
        if before is None or update.content is None:
            raise DamagedNode(update.path, f"topic {name} and its partitions do not agree")
        content = nodes.read_partition_state(update.path, update.content)
        partitions[index] = _checked_state(
            update.path,
            content,
            update.version,
            before.replicas,
            before.adding,
            before.removing,
        )
    return partitions


def _merge_partitions(
    name: str, content: TopicContent, old: TopicImage, states: Mapping[int, NodeUpdate]
) -> dict[int, PartitionState]:
    """The topic node has changed: every partition is put together again."""
    for index, update in states.items():
        if index not in content.replicas and update.content is not None:
            raise DamagedNode(update.path, f"topic {name} has no such partition")
    known = old.partitions if old.topic_id == content.topic_id else {}
    return {
        index: _merge_partition(
            paths.partition_state(name, index),
            known.get(index),
            states.get(index),
            (
                content.replicas[index],
                content.adding.get(index, ()),
                content.removing.get(index, ()),
            ),
        )
        for index in range(len(content.replicas))
    }


def _merge_partition(
    path: str,
    before: PartitionState | None,
    update: NodeUpdate | None,
    assignment: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> PartitionState:
    if update is not None and update.content is not None:
        state = nodes.read_partition_state(path, update.content)
        return _checked_state(path, state, update.version, *assignment)
    if before is None or update is not None:
        raise DamagedNode(path, "it is missing")
    if assignment == (before.replicas, before.adding, before.removing):
        return before
    return _checked_state(path, _content_of(before), before.partition_epoch, *assignment)


def _content_of(state: PartitionState) -> StateContent:
    return StateContent(
        state.leader,
        state.leader_epoch,
        state.in_sync,
        state.eligible,
        state.last_known,
        state.unclean_epoch,
    )


def _checked_state(
    path: str,
    state: StateContent,
    version: int,
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> PartitionState:
    """Z2: leader in the in-sync set, the set within the replicas and never empty."""
    in_sync = state.in_sync
    if not in_sync or not set(in_sync) <= set(replicas):
        raise DamagedNode(path, "the in-sync set is empty or not within the replicas")
    if state.leader != NO_BROKER and state.leader not in in_sync:
        raise DamagedNode(path, "the leader is not in the in-sync set")
    return PartitionState(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=replicas,
        in_sync=in_sync,
        partition_epoch=version,
        adding=adding,
        removing=removing,
        eligible=state.eligible,
        last_known=state.last_known,
        unclean_epoch=state.unclean_epoch,
    )
