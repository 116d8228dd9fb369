"""Reading the whole tree while others write to it.

The tree is read node by node, so what is found belongs to many moments. But every write is in the
journal: the changes that came while reading are laid over what was read, and the result is the tree
after the last of them. Nothing has to stand still for it.
"""

from __future__ import annotations

import logging
import re
from typing import NamedTuple

from ottla.metadata import paths
from ottla.metadata.store import Change, Node, StoreRefused, StoreUnavailable
from ottla.runtime.zookeeper_connection import Watcher, ZooKeeperConnection
from ottla.runtime.zookeeper_journal import (
    CHANGES,
    DamagedChange,
    Recorded,
    decode,
    newer,
    newest,
    read_pruned,
)
from ottla.runtime.zookeeper_tree import Tree

log = logging.getLogger("ottla.zookeeper")

ATTEMPTS = 10
NOT_OURS = ("/zookeeper", CHANGES)
# Below these each name has its `state` and nothing else: spares two requests for each partition.
_PARTITIONS = re.compile(re.escape(paths.TOPICS) + r"[^/]+/partitions")


class Taken(NamedTuple):
    """The tree after the change node `position`, the newest one at that time."""

    nodes: dict[str, Node]
    tree: Tree
    position: str
    last_change: int
    change_count: int


def list_changes(connection: ZooKeeperConnection, watcher: Watcher | None = None) -> list[str]:
    names = connection.children(CHANGES, watcher)
    if names is None:
        raise StoreRefused(f"{CHANGES} is gone from ZooKeeper: somebody has emptied the store")
    return names


def pruned_past(connection: ZooKeeperConnection, position: str) -> bool:
    """Whether change nodes after `position` are gone already."""
    read = connection.read(CHANGES)
    return read is not None and read_pruned(read.content) > position


def read_changes(
    connection: ZooKeeperConnection, names: list[str]
) -> list[Recorded | DamagedChange | None]:
    """None for what has been pruned meanwhile."""
    found: list[Recorded | DamagedChange | None] = []
    for name, read in zip(
        names, connection.read_all([f"{CHANGES}/{name}" for name in names]), strict=True
    ):
        if read is None:
            found.append(None)
            continue
        try:
            found.append(decode(name, read.stat.czxid, read.content))
        except DamagedChange as damaged:
            found.append(damaged)
    return found


def take_snapshot(connection: ZooKeeperConnection, watcher: Watcher | None) -> Taken:
    """`watcher` hears of the first change that is not in it."""
    connection.sync()
    for _ in range(ATTEMPTS):
        before = list_changes(connection)
        pruned = connection.read(CHANGES)
        begin = newest(before, read_pruned(None if pruned is None else pruned.content))
        nodes, parents = read_tree(connection, "/")
        names = list_changes(connection, watcher)
        if begin not in names and pruned_past(connection, begin):
            continue
        recorded = read_changes(connection, newer(names, begin))
        sound = [one for one in recorded if isinstance(one, Recorded)]
        if len(sound) != len(recorded):
            continue  # the next attempt begins behind the damaged one
        tree = _lay_over(nodes, sound)
        for parent in parents:
            tree.add_parent(parent)
        position = newest(names, begin)
        stat = connection.stat(f"{CHANGES}/{position}") if position in names else None
        last_change = 0 if stat is None else stat.czxid
        return Taken(nodes, tree, position, last_change, len(names))
    raise StoreUnavailable("the changes in ZooKeeper come faster than they can be read")


def _lay_over(nodes: dict[str, Node], changes: list[Recorded]) -> Tree:
    tree = Tree(nodes)
    for one in changes:
        updates = tree.updates_of(one.number, one.entries)
        tree.apply(Change(one.number, updates))
        for path, content, version, created in updates:
            if content is None:
                nodes.pop(path, None)
            else:
                nodes[path] = Node(content, version, created)
    return tree


def read_tree(connection: ZooKeeperConnection, top: str) -> tuple[dict[str, Node], list[str]]:
    """What is below `top`: the nodes, and the parents without content of their own."""
    nodes: dict[str, Node] = {}
    parents: list[str] = []
    names = connection.children(top) or ()
    level = [f"{top.rstrip('/')}/{name}" for name in names]
    level = [path for path in level if path not in NOT_OURS]
    while level:
        inner = []
        for path, read in zip(level, connection.read_all(level), strict=True):
            if read is None:
                continue  # removed meanwhile
            if read.content is None:
                parents.append(path)
            else:
                nodes[path] = Node(read.content, read.stat.version, read.stat.czxid)
            if read.stat.numChildren:
                inner.append(path)
        level = []
        for path, below in zip(inner, connection.children_of_all(inner), strict=True):
            names = [f"{path}/{name}" for name in below or ()]
            if _PARTITIONS.fullmatch(path):
                parents += names
                names = [f"{name}/state" for name in names]
            level += names
    return nodes, parents
