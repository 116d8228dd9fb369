"""A metadata store in memory, for tests, for `ottla.testing` and for the simulator.

The same rules as the real ones: versions, all or nothing, one order, the last changes kept. It is
used from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ottla.metadata import nodes, paths
from ottla.metadata.store import (
    ABSENT,
    CHANGES_KEPT,
    Change,
    Check,
    Follower,
    Gone,
    Liveness,
    Node,
    NodeUpdate,
    Operation,
    Snapshot,
    VersionConflict,
    Write,
)


def conflicts(current: Mapping[str, int], operations: Sequence[Operation]) -> list[str]:
    """The paths whose version is not the one that an operation rests on.

    `current` has the version of every node named in `operations` that exists.
    """
    wrong = []
    for operation in operations:
        expected = _expected(operation)
        if expected is not None and current.get(operation.path, ABSENT) != expected:
            wrong.append(operation.path)
    return wrong


def _expected(operation: Operation) -> int | None:
    if isinstance(operation, Gone):
        return ABSENT
    return operation.version if isinstance(operation, Check) else operation.expected_version


def as_write(operation: Operation) -> Write | None:
    """What followers are told of an operation; None for a mere check."""
    if isinstance(operation, Gone):
        return Write(operation.path, None, ABSENT)
    return None if isinstance(operation, Check) else operation


def liveness_of(present: Mapping[str, Node]) -> Liveness:
    brokers = [
        int(path.removeprefix(paths.BROKER_IDS))
        for path in present
        if path.startswith(paths.BROKER_IDS)
    ]
    controller = present.get(paths.CONTROLLER)
    if controller is None:
        return Liveness(frozenset(brokers), None)
    return Liveness(frozenset(brokers), nodes.read_controller(paths.CONTROLLER, controller.content))


def updated(operation: Write, node: Node | None, number: int) -> NodeUpdate:
    """The node after the write: created by this change, or one version further."""
    if node is None:
        return NodeUpdate(operation.path, operation.content, 0, number)
    return NodeUpdate(operation.path, operation.content, node.version + 1, node.created)


class MemoryStore:
    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._changes: list[Change] = []
        self._last_change = 0
        self._followers: list[Follower] = []

    def load(self) -> Snapshot:
        return Snapshot(dict(self._nodes), self._last_change)

    def commit(self, operations: Sequence[Operation]) -> Change:
        touched = {
            operation.path: self._nodes[operation.path].version
            for operation in operations
            if operation.path in self._nodes
        }
        wrong = conflicts(touched, operations)
        if wrong:
            raise VersionConflict(wrong)
        number = self._last_change + 1
        updates = []
        for operation in operations:
            write = as_write(operation)
            if write is not None:
                update = updated(write, self._nodes.get(write.path), number)
                self._keep(update)
                updates.append(update)
        change = Change(number, tuple(updates))
        self._last_change = number
        self._changes.append(change)
        del self._changes[:-CHANGES_KEPT]
        for follower in tuple(self._followers):
            follower(change)
        return change

    def follow(self, follower: Follower) -> None:
        self._followers.append(follower)

    def changes_after(self, number: int) -> list[Change] | None:
        """The changes since `number`; None when they are no longer all kept."""
        if number < self._last_change - len(self._changes):
            return None
        return [change for change in self._changes if change.number > number]

    def register(self, broker_id: int, content: bytes) -> Change:
        return self.commit(registration(self._nodes, broker_id, content))

    def unregister(self, broker_id: int) -> None:
        if paths.broker_id(broker_id) in self._nodes:
            self.commit([Write(paths.broker_id(broker_id), None, None)])

    def campaign(self, broker_id: int) -> Change | None:
        if paths.CONTROLLER in self._nodes:
            return None
        return self.commit(candidacy(self._nodes, broker_id))

    def resign(self, broker_id: int) -> None:
        if liveness_of(self._nodes).controller == broker_id:
            self.commit([Write(paths.CONTROLLER, None, None)])

    def watch(
        self, on_liveness_changed: Callable[[], None], on_session_lost: Callable[[], None]
    ) -> None:
        """There are no sessions here: nothing ends by itself."""

    def liveness(self) -> Liveness:
        return liveness_of(self._nodes)

    def refresh(self) -> None:
        """The followers are told at once."""

    def is_fenced(self) -> bool:
        return False

    def prune_changes(self) -> None:
        """Each commit drops what is too old."""

    def close(self) -> None:
        self._followers.clear()

    def _keep(self, update: NodeUpdate) -> None:
        if update.content is None:
            self._nodes.pop(update.path, None)
        else:
            self._nodes[update.path] = Node(update.content, update.version, update.created)


def registration(present: Mapping[str, Node], broker_id: int, content: bytes) -> list[Operation]:
    """A broker comes to life: the liveness node is made anew, so that its epoch is a new one."""
    operations: list[Operation] = []
    if paths.broker_id(broker_id) in present:
        operations.append(Write(paths.broker_id(broker_id), None, None))
    operations.append(Write(paths.broker_id(broker_id), content, None))
    operations.append(Write(paths.broker_epoch(broker_id), content, None))
    return operations


def candidacy(present: Mapping[str, Node], broker_id: int) -> list[Operation]:
    """The controller's node and its epoch, raised, in one commit."""
    epoch_node = present.get(paths.CONTROLLER_EPOCH)
    epoch, version = 1, ABSENT
    if epoch_node is not None:
        epoch = nodes.read_controller_epoch(paths.CONTROLLER_EPOCH, epoch_node.content) + 1
        version = epoch_node.version
    operations: list[Operation] = []
    if paths.CONTROLLER in present:
        operations.append(Write(paths.CONTROLLER, None, None))
    operations.append(Write(paths.CONTROLLER, nodes.controller(broker_id), None))
    operations.append(Write(paths.CONTROLLER_EPOCH, nodes.controller_epoch(epoch), version))
    return operations
