"""A metadata store in memory, for tests, for `ottla.testing` and for the simulator.

The same rules as the real ones: versions, all or nothing, one order, the last changes kept, nodes
that end with the session that made them. An ensemble is shared by the sessions of several brokers;
each session can be cut off, expire, or lose the answer to a commit. All on one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from ottla.base.ports import Clock
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
    StoreRefused,
    StoreUnavailable,
    VersionConflict,
    Write,
)

BEFORE, AFTER = "before", "after"

Deliver = Callable[[Callable[[], None]], None]


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


class MemoryEnsemble:
    """The nodes and the changes that the sessions of several brokers share."""

    def __init__(self, clock: Clock | None = None, session_timeout_ms: int = 9_000) -> None:
        self.clock = clock
        self.session_timeout_ms = session_timeout_ms
        self.nodes: dict[str, Node] = {}
        self.last_change = 0
        self._changes: list[Change] = []
        self._owners: dict[str, MemoryStore] = {}
        self._sessions: list[MemoryStore] = []

    def join(self, session: MemoryStore) -> None:
        self._sessions.append(session)

    def leave(self, session: MemoryStore) -> None:
        self._sessions.remove(session)
        self.end_session(session)

    def commit(self, operations: Sequence[Operation]) -> Change:
        touched = {
            operation.path: self.nodes[operation.path].version
            for operation in operations
            if operation.path in self.nodes
        }
        wrong = conflicts(touched, operations)
        if wrong:
            raise VersionConflict(wrong)
        number = self.last_change + 1
        updates = []
        for operation in operations:
            write = as_write(operation)
            if write is not None:
                update = updated(write, self.nodes.get(write.path), number)
                self._keep(update)
                updates.append(update)
        change = Change(number, tuple(updates))
        self.last_change = number
        self._changes.append(change)
        del self._changes[:-CHANGES_KEPT]
        for session in tuple(self._sessions):
            session.on_change(change)
        return change

    def own(self, path: str, session: MemoryStore) -> None:
        """The node ends with the session."""
        self._owners[path] = session

    def is_owner(self, path: str, session: MemoryStore) -> bool:
        return self._owners.get(path) is session

    def end_session(self, session: MemoryStore) -> None:
        """What it registered goes, and no change tells of it: the others have to ask."""
        owned = [path for path, owner in self._owners.items() if owner is session]
        for path in owned:
            del self._owners[path]
            self.nodes.pop(path, None)
        if owned:
            for other in tuple(self._sessions):
                if other is not session:
                    other.on_liveness_changed()

    def changes_after(self, number: int) -> list[Change] | None:
        """The changes since `number`; None when they are no longer all kept."""
        if number < self.last_change - len(self._changes):
            return None
        return [change for change in self._changes if change.number > number]

    def _keep(self, update: NodeUpdate) -> None:
        if update.content is None:
            self.nodes.pop(update.path, None)
            self._owners.pop(update.path, None)
        else:
            self.nodes[update.path] = Node(update.content, update.version, update.created)


class MemoryStore:
    """One session with an ensemble, by default with one of its own.

    What can go wrong, for whoever plays the network: `cut_off` and `heal`, `expire`,
    `lose_next_answer`. `deliver` decides when followers hear of a change, or of a liveness that
    changed; a `refresh` does not wait for it.
    """

    def __init__(
        self, ensemble: MemoryEnsemble | None = None, deliver: Deliver | None = None
    ) -> None:
        self.ensemble = ensemble or MemoryEnsemble()
        self.ensemble.join(self)
        self._deliver = deliver or at_once
        self._followers: list[Follower] = []
        self._unheard: deque[Change] = deque()
        self._tell_liveness: Callable[[], None] = nothing
        self._tell_session_lost: Callable[[], None] = nothing
        self._cut_off_ms: int | None = None
        self._healed_ms: int | None = None
        self._is_expired = False
        self._next_answer: str | None = None

    # -- the port ---------------------------------------------------------------------------

    def load(self) -> Snapshot:
        self._ask()
        return Snapshot(dict(self.ensemble.nodes), self.ensemble.last_change)

    def commit(self, operations: Sequence[Operation]) -> Change:
        return self._commit(operations)

    def _commit(self, operations: Sequence[Operation], own: str | None = None) -> Change:
        """`own` is the node that ends with this session."""
        self._ask()
        lost, self._next_answer = self._next_answer, None
        if lost == BEFORE:
            raise StoreUnavailable("the request was lost")
        change = self.ensemble.commit(operations)
        if own is not None:
            self.ensemble.own(own, self)
        if lost == AFTER:
            raise StoreUnavailable("the answer was lost")
        self._hear_all()
        return change

    def follow(self, follower: Follower) -> None:
        self._followers.append(follower)

    def watch(
        self, on_liveness_changed: Callable[[], None], on_session_lost: Callable[[], None]
    ) -> None:
        self._tell_liveness = on_liveness_changed
        self._tell_session_lost = on_session_lost

    def liveness(self) -> Liveness:
        self._ask()
        return liveness_of(self.ensemble.nodes)

    def refresh(self) -> None:
        self._ask()
        self._hear_all()

    def is_fenced(self) -> bool:
        if self._cut_off_ms is None:
            return self._is_expired
        clock = self.ensemble.clock
        if clock is None:
            return True
        return clock.monotonic_ms() - self._cut_off_ms >= self.ensemble.session_timeout_ms

    def last_silence_ms(self) -> int | None:
        """Any that was noticed at all: how long it was does not matter to who plays with it."""
        return self._healed_ms

    def register(self, broker_id: int, content: bytes) -> Change:
        path = paths.broker_id(broker_id)
        if path in self.ensemble.nodes and not self.ensemble.is_owner(path, self):
            raise StoreRefused(f"broker {broker_id} is running already: {path} is taken")
        return self._commit(registration(self.ensemble.nodes, broker_id, content), own=path)

    def unregister(self, broker_id: int) -> None:
        if paths.broker_id(broker_id) in self.ensemble.nodes:
            self.commit([Write(paths.broker_id(broker_id), None, None)])

    def campaign(self, broker_id: int) -> Change | None:
        if paths.CONTROLLER in self.ensemble.nodes:
            return None
        return self._commit(candidacy(self.ensemble.nodes, broker_id), own=paths.CONTROLLER)

    def resign(self, broker_id: int) -> None:
        if liveness_of(self.ensemble.nodes).controller == broker_id:
            self.commit([Write(paths.CONTROLLER, None, None)])

    def prune_changes(self) -> None:
        """Done with every commit."""

    def close(self) -> None:
        self._followers.clear()
        self.watch(nothing, nothing)
        self.ensemble.leave(self)

    def changes_after(self, number: int) -> list[Change] | None:
        return self.ensemble.changes_after(number)

    # -- what the ensemble tells ------------------------------------------------------------

    def on_change(self, change: Change) -> None:
        self._unheard.append(change)
        if self._cut_off_ms is None:
            self._deliver(self._hear_next)

    def on_liveness_changed(self) -> None:
        if self._cut_off_ms is None:
            self._deliver(self._tell_liveness)

    # -- what can go wrong ------------------------------------------------------------------

    def cut_off(self) -> None:
        """Nothing goes through, and nobody knows for how long."""
        clock = self.ensemble.clock
        self._cut_off_ms = 0 if clock is None else clock.monotonic_ms()

    def heal(self) -> None:
        self._cut_off_ms = None
        if self.ensemble.clock is not None:
            self._healed_ms = self.ensemble.clock.monotonic_ms()
        if self._is_expired:
            self._lose_session()
        else:
            self._hear_all()
            self._tell_liveness()

    def expire(self) -> None:
        """The ensemble ends the session. The broker hears of it when it is heard of again."""
        self._is_expired = True
        self.ensemble.end_session(self)
        if self._cut_off_ms is None:
            self._lose_session()

    def lose_next_answer(self, when: str) -> None:
        """Of the next commit: BEFORE it takes effect, or AFTER."""
        self._next_answer = when

    def _lose_session(self) -> None:
        self._is_expired = False
        self._hear_all()
        self._tell_session_lost()

    def _ask(self) -> None:
        if self._cut_off_ms is not None or self._is_expired:
            raise StoreUnavailable("the ensemble does not answer")

    def _hear_all(self) -> None:
        while self._unheard:
            self._hear_next()

    def _hear_next(self) -> None:
        """A change may have been heard before its delivery, because of a refresh."""
        if self._unheard and self._cut_off_ms is None:
            change = self._unheard.popleft()
            for follower in tuple(self._followers):
                follower(change)


def at_once(deliver: Callable[[], None]) -> None:
    deliver()


def nothing() -> None:
    """Nobody watches."""


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
