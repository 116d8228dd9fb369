"""The image of a running broker, when nodes are damaged: what is sound is taken, the rest stays.

Whoever wrote a damaged node, a broker goes on: with what it knew of that topic, broker or setting
before, and with everything else as the store has it. A topic is taken as a whole or not at all.
Above all, a damaged topic is never taken for a deleted one: its records would be deleted with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ottla.metadata import paths
from ottla.metadata.changes import apply
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.nodes import DamagedNode
from ottla.metadata.store import Change, NodeUpdate, Snapshot


class Taken(NamedTuple):
    image: MetadataImage
    damaged: list[DamagedNode]


def apply_sound(image: MetadataImage, change: Change) -> Taken:
    """As `changes.apply`, without what is damaged."""
    damaged: list[DamagedNode] = []
    updates = change.updates
    while True:
        try:
            return Taken(apply(image, Change(change.number, updates)), damaged)
        except DamagedNode as damage:
            damaged.append(damage)
            sound = tuple(one for one in updates if not _goes_with(one, damage))
            if len(sound) == len(updates):
                # It can't be said what is damaged: nothing of it is taken.
                return Taken(replace(image, last_change=change.number), damaged)
            updates = sound


def reload_sound(old: MetadataImage, snapshot: Snapshot) -> Taken:
    """The image of a snapshot; where that is damaged, what `old` has."""
    updates = tuple(NodeUpdate(path, *node) for path, node in snapshot.nodes.items())
    taken = apply_sound(EMPTY_IMAGE, Change(max(snapshot.last_change, 0), updates))
    if taken.damaged and not taken.image.versions:
        return Taken(replace(old, last_change=snapshot.last_change), taken.damaged)
    image = replace(taken.image, last_change=snapshot.last_change)
    for damage in taken.damaged:
        image = _keep(image, old, damage.path)
    return Taken(image, taken.damaged)


def _goes_with(update: NodeUpdate, damage: DamagedNode) -> bool:
    topic = _topic_of(damage.path)
    return update.path == damage.path or (topic is not None and _topic_of(update.path) == topic)


def _topic_of(path: str) -> str | None:
    for folder in (paths.TOPICS, paths.TOPIC_CONFIGS):
        if path.startswith(folder):
            return path[len(folder) :].split("/", 1)[0]
    return None


# Which table of the image a folder of nodes is kept in.
_TABLES = {
    paths.BROKER_CONFIGS: "broker_configs",
    paths.CLIENT_METRICS_CONFIGS: "client_metrics_configs",
    paths.GROUP_CONFIGS: "group_configs",
}
_SINGLE = {
    paths.CLUSTER_ID: "cluster_id",
    paths.CONTROLLER: "controller_id",
    paths.CONTROLLER_EPOCH: "controller_epoch",
    paths.FEATURES: "features",
    paths.PRODUCER_ID_BLOCK: "next_producer_id",
}


def _keep(image: MetadataImage, old: MetadataImage, path: str) -> MetadataImage:
    topic = _topic_of(path)
    if topic is not None:
        return _keep_topic(image, old, topic)
    fields: dict[str, Any] = {}
    folder, _, name = path.rpartition("/")
    if path in _SINGLE:
        fields[_SINGLE[path]] = getattr(old, _SINGLE[path])
    elif folder + "/" in (paths.BROKER_IDS, paths.BROKER_EPOCHS):
        broker = int(name) if name.isdecimal() else -1
        if broker in old.brokers:
            fields["brokers"] = {**image.brokers, broker: old.brokers[broker]}
    elif folder + "/" in _TABLES:
        table = _TABLES[folder + "/"]
        key = _key(table, name)
        before = getattr(old, table)
        if key in before:
            fields[table] = {**getattr(image, table), key: before[key]}
    return replace(image, **fields)


def _key(table: str, name: str) -> str | None:
    if table == "broker_configs":
        return "" if name == paths.DEFAULT_ENTITY else name
    try:
        return paths.entity_name(name)
    except ValueError:
        return None  # nothing can have been kept under a name that can't be read


def _keep_topic(image: MetadataImage, old: MetadataImage, name: str) -> MetadataImage:
    topic = old.topics.get(name)
    if topic is None:
        return image
    return replace(
        image,
        topics={**image.topics, name: topic},
        topic_names_by_id={**image.topic_names_by_id, topic.topic_id: name},
    )
