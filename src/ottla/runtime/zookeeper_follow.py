"""Following the journal: every change once, in order, whoever asks for it and on whatever thread.

Owns the position in the journal and what is known of the tree at that position; both move only
here, under one lock, together with telling the followers. Knows nothing of sessions: the journal
outlives them.

There is one watch on the journal at a time. It is asked for with the list of changes, so that none
can come between, and again only when it has fired or its connection is gone; kazoo and ZooKeeper
keep one watch for each path and callback, so even a mistake here could not add up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from kazoo.protocol.states import WatchedEvent

from ottla.base.errors import check
from ottla.metadata.store import Change, Follower, Snapshot
from ottla.runtime.zookeeper_connection import Watcher, ZooKeeperConnection
from ottla.runtime.zookeeper_journal import DamagedChange, Recorded, newer
from ottla.runtime.zookeeper_snapshot import (
    Taken,
    list_changes,
    pruned_past,
    read_changes,
    take_snapshot,
)
from ottla.runtime.zookeeper_tree import Tree

log = logging.getLogger("ottla.zookeeper")


class Watch:
    """One place that is watched. `stale`: something may have happened there since it was read."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.stale = True
        self._armed = False
        self._wake = wake

    def arm(self) -> Watcher | None:
        """The watcher for the next reading; None where one is outstanding."""
        self.stale = False
        if self._armed:
            return None
        self._armed = True
        return self.fired

    def fired(self, event: WatchedEvent) -> None:
        """On kazoo's thread, also when a connection is lost: only takes note."""
        self.interrupted()
        self._wake()

    def interrupted(self) -> None:
        """The connection is gone, or the reading failed: whether a watch was left is unknown."""
        self._armed = False
        self.stale = True


class ChangeFollower:
    def __init__(self, connection: ZooKeeperConnection, wake: Callable[[], None]) -> None:
        self.watch = Watch(wake)
        self.change_count = 0
        """Change nodes in the journal when it was last listed."""
        self._connection = connection
        self._lock = threading.Lock()
        self._followers: list[Follower] = []
        self._tree = Tree()
        self._position: str | None = None
        self._awaited: dict[str, Change | None] = {}

    def follow(self, follower: Follower) -> None:
        self._followers.append(follower)

    def unfollow_all(self) -> None:
        self._followers.clear()

    @property
    def has_begun(self) -> bool:
        return self._position is not None

    def load(self) -> Snapshot:
        with self._lock:
            taken = self._take()
            self._adopt(taken)
            return Snapshot(taken.nodes, taken.last_change)

    def tree(self) -> Tree:
        """What is known; only for planning, which ZooKeeper judges."""
        if self._position is None:
            self.load()
        return self._tree

    def parents_found(self, found: Mapping[str, bool]) -> None:
        """What is known of parents was wrong: this is what was found instead."""
        with self._lock:
            for path, there in found.items():
                if there:
                    self._tree.add_parent(path)
                else:
                    self._tree.forget_parent(path)

    # -- own commits ------------------------------------------------------------------------

    def await_commit(self, commit_id: str) -> None:
        self._awaited[commit_id] = None

    def heard(self, commit_id: str) -> Change | None:
        return self._awaited.get(commit_id)

    def forget(self, commit_id: str) -> None:
        self._awaited.pop(commit_id, None)

    # -- the journal ------------------------------------------------------------------------

    def catch_up(self) -> None:
        """When it returns, the followers have been told of all that was in the journal."""
        with self._lock:
            if self._position is None:
                self._adopt(self._take())
                return
            names = self._list()
            self.change_count = len(names)
            if self._position not in names and pruned_past(self._connection, self._position):
                self._make_up("changes were pruned before this broker had read them")
                return
            for recorded in read_changes(self._connection, newer(names, self._position)):
                if isinstance(recorded, Recorded):
                    self._deliver(recorded)
                    continue
                reason = recorded if isinstance(recorded, DamagedChange) else "a change was pruned"
                self._make_up(str(reason))
                return

    def _list(self) -> list[str]:
        try:
            return list_changes(self._connection, self.watch.arm())
        except BaseException:
            self.watch.interrupted()
            raise

    def _take(self) -> Taken:
        try:
            return take_snapshot(self._connection, self.watch.arm())
        except BaseException:
            self.watch.interrupted()
            raise

    def _adopt(self, taken: Taken) -> None:
        self._tree = taken.tree
        self._position = taken.position
        self.change_count = taken.change_count

    def _make_up(self, reason: str) -> None:
        """Changes can't be had one by one any more: all they did, as one."""
        log.warning("%s: everything is read again", reason)
        taken = self._take()
        change = self._tree.difference(taken.last_change, taken.nodes)
        self._adopt(taken)
        if change.updates:
            self._tell(change)

    def _deliver(self, recorded: Recorded) -> None:
        check(recorded.name > (self._position or ""), "a change comes once, in its order")
        change = Change(recorded.number, self._tree.updates_of(recorded.number, recorded.entries))
        self._tree.apply(change)
        self._position = recorded.name
        if recorded.commit_id in self._awaited:
            self._awaited[recorded.commit_id] = change
        self._tell(change)

    def _tell(self, change: Change) -> None:
        for follower in tuple(self._followers):
            follower(change)
