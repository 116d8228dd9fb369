"""Commits to ZooKeeper: one multi each, written again where this broker's knowledge was too old.

ZooKeeper decides about every version. A refusal is a conflict of the decision, or the store's own
business: parents that came or went, or a version that was read here because the decision named
none. Only the latter are tried again.

A commit whose answer got lost may have happened: its id is looked for in the journal, and only if
it can't be found there the caller hears StoreUnavailable and has to compare for itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from kazoo.exceptions import NoNodeError, NotEmptyError

from ottla.metadata.store import (
    ABSENT,
    CHANGES_KEPT,
    Change,
    Operation,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from ottla.runtime.zookeeper_connection import StepFailed, ZooKeeperConnection
from ottla.runtime.zookeeper_follow import ChangeFollower
from ottla.runtime.zookeeper_journal import CHANGES, PREFIX, decode, encode, to_prune
from ottla.runtime.zookeeper_plan import (
    CREATE,
    DELETE,
    PARENTS,
    READ,
    SEQUENCE,
    SET,
    Plan,
    Step,
    plan_commit,
    versions_to_read,
)
from ottla.runtime.zookeeper_snapshot import list_changes, read_tree
from ottla.runtime.zookeeper_tree import ancestors_of

# Others write too; who loses the race reads again. So many lost in a row are no race any more.
ATTEMPTS = 20
# Journal nodes go in bundles: dropping one with each commit would double the writes.
PRUNE_SLACK = 100
PRUNE_AT_ONCE = 500


class Committer:
    def __init__(self, connection: ZooKeeperConnection, changes: ChangeFollower) -> None:
        self._connection = connection
        self._changes = changes

    def commit(self, operations: Sequence[Operation]) -> Change:
        commit_id = uuid.uuid4().hex
        strays: set[str] = set()
        self._changes.await_commit(commit_id)
        try:
            for _ in range(ATTEMPTS):
                plan = self._plan(operations, strays, commit_id)
                try:
                    answers = self._connection.multi(plan.steps)
                except StepFailed as failed:
                    self._judge(failed, operations)
                    if isinstance(failed.error, NotEmptyError):
                        strays.discard(failed.step.path)
                        strays |= self._strays_below(failed.step.path, operations)
                    continue
                except StoreUnavailable as unknown:
                    return self._find_out(commit_id, unknown)
                return self._told(commit_id, str(answers[-1]).rpartition("/")[2])
        finally:
            self._changes.forget(commit_id)
        raise VersionConflict([operation.path for operation in operations])

    def _plan(self, operations: Sequence[Operation], strays: set[str], commit_id: str) -> Plan:
        wanted = versions_to_read(operations)
        read = {
            path: ABSENT if found is None or found.content is None else found.stat.version
            for path, found in zip(wanted, self._connection.read_all(wanted), strict=True)
        }
        plan = plan_commit(operations, read, self._changes.tree(), strays)
        plan.steps.append(Step(SEQUENCE, PREFIX, content=encode(commit_id, plan.entries)))
        return plan

    def _judge(self, failed: StepFailed, operations: Sequence[Operation]) -> None:
        """Returns if the multi should be written anew, with what is known then."""
        step = failed.step
        parents = (
            step.purpose == PARENTS
            or isinstance(failed.error, NotEmptyError)
            or (step.action == CREATE and isinstance(failed.error, NoNodeError))
            or (step.action == CREATE and self._is_mere_parent(step.path))
        )
        if not parents and step.purpose != READ:
            raise VersionConflict([step.path]) from failed
        self._changes.catch_up()
        if parents:
            self._look_at_parents(operations)

    def _strays_below(self, top: str, operations: Sequence[Operation]) -> set[str]:
        """Parents that will hold nothing: left behind by who did not know that it took the last."""
        nodes, parents = read_tree(self._connection, top)
        stay = set(nodes)
        for operation in operations:
            if isinstance(operation, Write):
                (stay.discard if operation.content is None else stay.add)(operation.path)
        return {
            parent for parent in parents if not any(path.startswith(parent + "/") for path in stay)
        }

    def _is_mere_parent(self, path: str) -> bool:
        read = self._connection.read(path)
        return read is not None and read.content is None

    def _look_at_parents(self, operations: Sequence[Operation]) -> None:
        wanted = {
            path: None
            for operation in operations
            for path in (*ancestors_of(operation.path), operation.path)
        }
        found = zip(wanted, self._connection.read_all(list(wanted)), strict=True)
        self._changes.parents_found(
            {path: read is not None for path, read in found if read is None or read.content is None}
        )

    def _told(self, commit_id: str, name: str) -> Change:
        """The followers hear of it before the caller does."""
        self._changes.catch_up()
        change = self._changes.heard(commit_id)
        if change is not None:
            return change
        # It was told as a part of something larger.
        read = self._connection.read(f"{CHANGES}/{name}")
        if read is None:
            raise StoreUnavailable("the commit took effect, but its change is gone already")
        recorded = decode(name, read.stat.czxid, read.content)
        tree = self._changes.tree()
        return Change(recorded.number, tree.updates_of(recorded.number, recorded.entries))

    def _find_out(self, commit_id: str, unknown: StoreUnavailable) -> Change:
        """The answer got lost: the journal knows whether the commit took effect."""
        self._connection.sync()
        self._changes.catch_up()
        change = self._changes.heard(commit_id)
        if change is None:
            raise unknown
        return change

    def prune_changes(self) -> None:
        if self._changes.change_count <= CHANGES_KEPT + PRUNE_SLACK:
            return
        while True:
            names = list_changes(self._connection)
            doomed = to_prune(names, CHANGES_KEPT, PRUNE_AT_ONCE)
            marker = self._connection.stat(CHANGES)
            if not doomed or marker is None:
                return
            steps = [Step(SET, CHANGES, content=doomed[-1].encode(), version=marker.version)]
            steps += [Step(DELETE, f"{CHANGES}/{name}") for name in doomed]
            try:
                self._connection.multi(steps)
            except StepFailed:
                return  # another controller is at it
            self._changes.change_count = CHANGES_KEPT
