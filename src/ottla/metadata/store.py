"""The port to where metadata is kept: a tree of versioned nodes under Kafka's znode paths.

A store keeps bytes and versions and knows no meaning. All or nothing of a commit is seen, by
everybody, in one order; safety rests on the versions that a commit names, never on who is believed
to be the controller (DESIGN, principle 4).

Nodes above a node (`/brokers/topics` above `/brokers/topics/orders`) are the store's own business:
it makes them when they are missing and removes what has no node below it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.base.errors import OttlaError

ABSENT = -1
"""As `expected_version`: the node must not exist."""

CHANGES_KEPT = 1_000
"""A follower that missed more loads a snapshot instead."""


class Node(NamedTuple):
    """`created` is the number of the change that made it: the epoch of a broker's registration."""

    content: bytes
    version: int
    created: int


class NodeUpdate(NamedTuple):
    """A node after a change; `content` is None where the node was removed."""

    path: str
    content: bytes | None
    version: int
    created: int


class Write(NamedTuple):
    """Content None removes the node. `expected_version` None: whatever the version is."""

    path: str
    content: bytes | None
    expected_version: int | None


class Check(NamedTuple):
    """The commit fails unless the node has this version (ABSENT: unless there is none)."""

    path: str
    version: int


class Gone(NamedTuple):
    """The node has ended by itself, as a liveness node does with its session: tell everybody.

    The commit fails if the node is there (again): who came back must not be declared dead.
    """

    path: str


Operation = Write | Check | Gone


class Change(NamedTuple):
    """What one commit did. Numbers grow; they need not be dense.

    A change that followers hear may stand for several commits: then it has what they did together
    and the number of the last one. Whoever waits for its own commit waits for that number or more.
    """

    number: int
    updates: tuple[NodeUpdate, ...]


class Snapshot(NamedTuple):
    nodes: Mapping[str, Node]
    last_change: int


class VersionConflict(OttlaError):
    """Nothing was written: these nodes are not what the decision was made on. Decide again."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__("changed meanwhile: " + ", ".join(paths))
        self.paths = tuple(paths)


class StoreRefused(OttlaError):
    """This store must not be used: another cluster's, emptied, in use, or damaged."""


class StoreUnavailable(OttlaError):
    """The store did not answer, or the session has ended: whether a commit took effect is unknown.

    Read again and compare before acting (`refresh`, then the image).
    """


class ChangeTooLarge(OttlaError):
    """Nothing was written: the store does not take so much in one commit. Split the decision."""


Follower = Callable[[Change], None]


class Liveness(NamedTuple):
    """Whose liveness nodes are there at this moment, and who is the controller, if anybody."""

    brokers: frozenset[int]
    controller: int | None


class MetadataStore(Protocol):
    """Methods may block unless they say otherwise: the caller runs them in the pool, one at a time.

    Any of those that block may raise StoreUnavailable.
    """

    def load(self) -> Snapshot: ...

    def commit(self, operations: Sequence[Operation]) -> Change:
        """All of it, or VersionConflict: nothing. The followers of this store have been told of
        it when it returns."""
        ...

    def follow(self, follower: Follower) -> None:
        """Every change after the last `load`, in order, each once, on whatever thread: a follower
        only enqueues. Begins with the first `load` after this call. Never blocks.

        It goes on through lost connections and sessions. Nobody has to load again because of
        changes that were missed: those come as one change that makes up for them. What was
        enqueued before a `load` and is not newer than its `last_change` is to be skipped."""
        ...

    def watch(
        self, on_liveness_changed: Callable[[], None], on_session_lost: Callable[[], None]
    ) -> None:
        """`on_liveness_changed`: a liveness node or the controller's node may have ended by itself;
        no change tells of that, so ask `liveness`. `on_session_lost`: what this broker registered
        is gone; register again, load again. On whatever thread; both only enqueue."""
        ...

    def liveness(self) -> Liveness: ...

    def refresh(self) -> None:
        """When it returns, the followers have been told of every commit before this call."""
        ...

    def is_fenced(self) -> bool:
        """Whether this broker can no longer be sure of its session: it takes no new leadership,
        changes no in-sync set and does no admin work. Never blocks."""
        ...

    def last_silence_ms(self) -> int | None:
        """When the store was last silent for so long that sessions may have ended because of it,
        on the monotonic clock; None: never. Never blocks."""
        ...

    def register(self, broker_id: int, content: bytes) -> Change:
        """This broker is alive: `/brokers/ids/N` (gone when it is not) and `/brokers/epochs/N`."""
        ...

    def unregister(self, broker_id: int) -> None:
        """A clean goodbye: the liveness node goes, the broker stays known."""
        ...

    def campaign(self, broker_id: int) -> Change | None:
        """Becomes the controller, its epoch raised in the same commit; None while another is."""
        ...

    def resign(self, broker_id: int) -> None:
        """A controller that leaves: its node goes, so that another need not wait for a session."""
        ...

    def prune_changes(self) -> None:
        """Drops old changes beyond CHANGES_KEPT; a duty of the controller. Cheap when there is
        nothing to do."""
        ...

    def close(self) -> None: ...
