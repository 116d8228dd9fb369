"""From a decision's operations to the steps of one ZooKeeper multi. Pure: it talks to nobody.

A multi runs its steps in their order and all or nothing. ZooKeeper knows no node without a parent
and removes none that has children, so the steps are put in order: what must be as it is, then
removals from the deepest on, then what is made or changed from the highest on, last the change
node. Parents that are missing are made, those that nothing is below any more are removed, in the
same multi. What followers are told keeps the order of the operations.

What it knows of the tree may be old: then ZooKeeper refuses the multi, and `Step.purpose` says
whether that is a conflict of the decision or the store's own business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import check
from ottla.metadata import paths
from ottla.metadata.store import ABSENT, Check, Gone, Operation, Write
from ottla.runtime.zookeeper_tree import Tree, ancestors_of, depth

# What a step does.
CHECK, DELETE, CREATE, SET, SEQUENCE = range(5)

# Why it is there: the decision named a version; it named none, and the version was read for it; or
# it is about parents, which are nobody's business but the store's.
DECIDED, READ, PARENTS = range(3)


class Step(NamedTuple):
    action: int
    path: str
    purpose: int = DECIDED
    content: bytes | None = None
    version: int = ABSENT
    ephemeral: bool = False


class Entry(NamedTuple):
    """What the change node says about one node: its content and version after the change."""

    path: str
    content: bytes | None
    version: int


class Plan(NamedTuple):
    steps: list[Step]
    entries: list[Entry]


def is_ephemeral(path: str) -> bool:
    return path == paths.CONTROLLER or path.startswith(paths.BROKER_IDS)


def versions_to_read(operations: Sequence[Operation]) -> list[str]:
    """The nodes that are written whatever their version is: it has to be known all the same."""
    wanted = [
        operation.path
        for operation in operations
        if isinstance(operation, Write) and operation.expected_version is None
    ]
    return list(dict.fromkeys(wanted))


def plan_commit(
    operations: Sequence[Operation],
    read: Mapping[str, int],
    tree: Tree,
    strays: Collection[str] = (),
) -> Plan:
    """`read` has the version of each of `versions_to_read`, ABSENT where there is no node. `strays`
    are parents that hold nothing but what this commit removes, though `tree` does not know it."""
    planner = _Planner(read, tree, strays)
    for operation in operations:
        planner.add(operation)
    return planner.finish()


class _Planner:
    def __init__(self, read: Mapping[str, int], tree: Tree, strays: Collection[str]) -> None:
        self._read = read
        self._strays = strays
        self._tree = tree
        self._checks: list[Step] = []
        self._absences: dict[str, int] = {}
        self._removals: list[Step] = []
        self._writes: list[Step] = []
        self._entries: list[Entry] = []
        self._removed: list[str] = []
        self._made: dict[str, None] = {}
        self._versions: dict[str, int] = {}
        """After the steps so far, of the nodes that they write."""

    def add(self, operation: Operation) -> None:
        if isinstance(operation, Check):
            if operation.version == ABSENT:
                self._must_be_absent(operation.path, DECIDED)
            else:
                self._checks.append(Step(CHECK, operation.path, version=operation.version))
        elif isinstance(operation, Gone):
            self._must_be_absent(operation.path, DECIDED)
            self._entries.append(Entry(operation.path, None, 0))
        elif operation.content is None:
            self._remove(operation)
        else:
            self._write(operation, operation.content)

    def _version(self, operation: Write) -> tuple[int, int]:
        """The version that the node must have by now, and who says so."""
        if operation.path in self._versions:
            version = self._versions[operation.path]
            # More than that no decision needs, and steps could no longer be put in order.
            check(version == ABSENT and operation.content is not None, "a node is written twice")
            return version, READ
        if operation.expected_version is None:
            return self._read[operation.path], READ
        return operation.expected_version, DECIDED

    def _must_be_absent(self, path: str, purpose: int) -> None:
        """ZooKeeper has no check for that: what can be made was not there. And below a parent that
        is not there, nothing is."""
        for ancestor in ancestors_of(path):
            if not self._tree.has(ancestor):
                path, purpose = ancestor, PARENTS
                break
        self._absences[path] = purpose

    def _remove(self, operation: Write) -> None:
        path = operation.path
        version, purpose = self._version(operation)
        self._versions[path] = ABSENT
        if version == ABSENT:
            self._must_be_absent(path, purpose)
            self._entries.append(Entry(path, None, 0))
        else:
            self._removals.append(Step(DELETE, path, purpose, version=version))
            self._removed.append(path)
            self._entries.append(Entry(path, None, version + 1))

    def _write(self, operation: Write, content: bytes) -> None:
        path = operation.path
        version, purpose = self._version(operation)
        if version == ABSENT and not self._tree.is_mere_parent(path):
            step = Step(CREATE, path, purpose, content, ephemeral=is_ephemeral(path))
            self._made[path] = None
            after = 0
        else:
            # A parent that the store made becomes a node of its own right: version 0 is its first.
            before = 0 if version == ABSENT else version
            step = Step(SET, path, purpose, content, before)
            after = before + 1
        self._writes.append(step)
        self._versions[path] = after
        self._entries.append(Entry(path, content, after))

    def finish(self) -> Plan:
        missing = self._missing_parents()
        idle = self._tree.parents_left_idle(self._removed, [*self._made, *missing])
        doomed = dict.fromkeys([*idle, *self._strays])
        removals = self._removals + [Step(DELETE, path, PARENTS, version=ABSENT) for path in doomed]
        writes = [Step(CREATE, path, PARENTS) for path in missing] + self._writes
        # Sorting is stable: what belongs to one path stays together, in its order.
        removals.sort(key=lambda step: -depth(step.path))
        writes.sort(key=lambda step: depth(step.path))
        return Plan([*self._checks, *self._absence_steps(), *removals, *writes], self._entries)

    def _absence_steps(self) -> list[Step]:
        steps = []
        for path, purpose in self._absences.items():
            steps.append(Step(CREATE, path, purpose, b""))
            steps.append(Step(DELETE, path, purpose, version=0))
        return steps

    def _missing_parents(self) -> list[str]:
        missing = {
            ancestor: None
            for path in self._made
            for ancestor in ancestors_of(path)
            if ancestor not in self._made and not self._tree.has(ancestor)
        }
        return list(missing)
