"""What this broker knows of the tree in ZooKeeper: which nodes there are, not what is in them.

Follows the journal as everybody does, so it is as old as the last change that was heard. Parents
that only hold others (`/brokers/topics/orders/partitions`) are known too: every store makes and
removes them by the same rule, so the journal need not name them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.metadata.store import Change, Node, NodeUpdate

# Parents down to here (`/brokers/topics`) stay when nothing is below them: they are few, they are
# watched, and taking them away and making them again would be everybody's conflict.
DEPTH_KEPT = 2


class Known(NamedTuple):
    version: int
    created: int


class Tree:
    def __init__(self, nodes: Mapping[str, Node] | None = None) -> None:
        self._nodes: dict[str, Known] = {}
        self._parents: set[str] = set()
        self._children: Counter[str] = Counter()
        for path, node in (nodes or {}).items():
            self._put(path, Known(node.version, node.created))

    def has(self, path: str) -> bool:
        return path in self._nodes or path in self._parents

    def is_mere_parent(self, path: str) -> bool:
        return path in self._parents

    def known(self) -> Mapping[str, Known]:
        return self._nodes

    def add_parent(self, path: str) -> None:
        """A node without content was found."""
        if path != "/" and not self.has(path):
            self._parents.add(path)
            self._link(path)

    def forget_parent(self, path: str) -> None:
        """A parent was expected here and is not there."""
        if path in self._parents:
            self._parents.discard(path)
            self._children[parent_of(path)] -= 1

    # -- following the journal --------------------------------------------------------------

    def updates_of(
        self, number: int, entries: Iterable[tuple[str, bytes | None, int]]
    ) -> tuple[NodeUpdate, ...]:
        """With the change that made each node, which the journal does not say."""
        made: dict[str, int] = {}
        updates = []
        for path, content, version in entries:
            known = self._nodes.get(path)
            created = made.get(path, number if known is None else known.created)
            if content is not None and version == 0:
                created = number
            made[path] = number if content is None else created
            updates.append(NodeUpdate(path, content, version, created))
        return tuple(updates)

    def apply(self, change: Change) -> None:
        removed = [update.path for update in change.updates if update.content is None]
        for path in sorted(removed, key=depth, reverse=True):
            self._remove(path)
        for update in change.updates:
            if update.content is not None:
                self._put(update.path, Known(update.version, update.created))
        for path in removed:
            self._drop_idle(parent_of(path))

    def difference(self, number: int, nodes: Mapping[str, Node]) -> Change:
        """What turns this tree into `nodes`, as if one commit had done it."""
        updates: list[NodeUpdate] = []
        for path, known in self._nodes.items():
            node = nodes.get(path)
            if node is None or node.created != known.created:
                updates.append(NodeUpdate(path, None, known.version + 1, known.created))
        for path, node in nodes.items():
            if self._nodes.get(path) != Known(node.version, node.created):
                updates.append(NodeUpdate(path, *node))
        return Change(number, tuple(updates))

    def parents_left_idle(self, removed: Iterable[str], made: Iterable[str]) -> list[str]:
        """The parents that would hold nothing any more."""
        left = Counter[str]()
        for path in made:
            left[parent_of(path)] += 1
        idle = []
        waiting = deque(sorted(removed, key=depth, reverse=True))
        while waiting:
            parent = parent_of(waiting.popleft())
            left[parent] -= 1
            if (
                parent in self._parents
                and depth(parent) > DEPTH_KEPT
                and self._children[parent] + left[parent] == 0
            ):
                idle.append(parent)
                waiting.append(parent)
        return idle

    def _put(self, path: str, known: Known) -> None:
        if path in self._parents:
            self._parents.discard(path)
        elif path not in self._nodes:
            self._link(path)
        self._nodes[path] = known

    def _link(self, path: str) -> None:
        """Makes the parents known that must be there for `path` to be."""
        parent = parent_of(path)
        while parent != "/":
            self._children[parent] += 1
            if self.has(parent):
                return
            self._parents.add(parent)
            parent = parent_of(parent)

    def _remove(self, path: str) -> None:
        if self._nodes.pop(path, None) is None:
            return
        if self._children[path] > 0:
            self._parents.add(path)  # its children go in the same change, or the journal lies
        else:
            self._children.pop(path, None)
            self._children[parent_of(path)] -= 1

    def _drop_idle(self, path: str) -> None:
        while path in self._parents and depth(path) > DEPTH_KEPT and self._children[path] <= 0:
            self._parents.discard(path)
            self._children.pop(path, None)
            path = parent_of(path)
            self._children[path] -= 1


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def ancestors_of(path: str) -> list[str]:
    """From the highest on, without the root."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


def depth(path: str) -> int:
    return path.count("/")
