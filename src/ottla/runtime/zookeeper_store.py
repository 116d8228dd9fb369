"""The metadata store of a cluster: Kafka's znode tree in ZooKeeper, and a journal of its changes.

A commit (`zookeeper_commit`) is one multi: its checks, its writes, and the change node that tells
the others. Every broker follows the change nodes (`zookeeper_follow`). What is about sessions is
here: the liveness node, the controller's node, the fence.

The methods of the port are called from the pool, one at a time; a thread of this module follows the
journal and the liveness nodes; kazoo's threads only take note. Nothing here decides anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from ottla.base.ids import NO_BROKER
from ottla.base.ports import Clock
from ottla.metadata import nodes, paths
from ottla.metadata.configs.zookeeper import ZooKeeperSettings
from ottla.metadata.store import (
    ABSENT,
    Change,
    Follower,
    Liveness,
    Operation,
    Snapshot,
    StoreRefused,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from ottla.runtime.zookeeper_commit import Committer
from ottla.runtime.zookeeper_connection import ZooKeeperConnection
from ottla.runtime.zookeeper_earlier import SessionFile, end_session
from ottla.runtime.zookeeper_fence import Fence, Heartbeat
from ottla.runtime.zookeeper_follow import ChangeFollower, Watch
from ottla.runtime.zookeeper_journal import CHANGES
from ottla.runtime.zookeeper_tree import ancestors_of

log = logging.getLogger("ottla.zookeeper")

BROKER_IDS = paths.BROKER_IDS.rstrip("/")

RETRY_S = 1.0
REGISTRATION_POLL_S = 0.2


class ZooKeeperStore:
    def __init__(
        self, settings: ZooKeeperSettings, clock: Clock, directory: str | None = None
    ) -> None:
        """Connects. Raises StoreUnavailable, StoreRefused and ConfigError.

        `directory` is the broker's own, locked by it: what an earlier life has left there may be
        ended.
        """
        self._session_file = None if directory is None else SessionFile(directory)
        self._clock = clock
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._on_liveness_changed: Callable[[], None] = _nobody
        self._on_session_lost: Callable[[], None] = _nobody
        self._complaint = ""
        self._damage = ""
        self._connection = ZooKeeperConnection(
            settings, on_connected=self._connected, on_session_lost=self._session_lost
        )
        self._fence = Fence(clock, lambda: self._connection.session_timeout_ms)
        self._changes = ChangeFollower(self._connection, self._wake.set)
        self._commits = Committer(self._connection, self._changes)
        self._ids_watch = Watch(self._wake.set)
        self._controller_watch = Watch(self._wake.set)
        self._heartbeat = Heartbeat(self._connection, self._fence, clock)
        self._thread = threading.Thread(target=self._run, name="zookeeper-follower", daemon=True)
        try:
            self._connection.open()
            for path in (*ancestors_of(paths.BROKER_IDS), CHANGES):
                self._connection.make_parent(path)
            earlier = None if self._session_file is None else self._session_file.read()
            if earlier is not None:
                end_session(settings, earlier)
        except BaseException:
            self._connection.close()
            raise
        self._heartbeat.start()
        self._thread.start()

    # -- reading and following --------------------------------------------------------------

    def load(self) -> Snapshot:
        return self._changes.load()

    def follow(self, follower: Follower) -> None:
        self._changes.follow(follower)

    def watch(
        self, on_liveness_changed: Callable[[], None], on_session_lost: Callable[[], None]
    ) -> None:
        self._on_liveness_changed = on_liveness_changed
        self._on_session_lost = on_session_lost

    def liveness(self) -> Liveness:
        names = self._connection.children(BROKER_IDS) or []
        brokers = frozenset(int(name) for name in names if name.isdecimal())
        return Liveness(brokers, self._controller())

    def _controller(self) -> int | None:
        read = self._connection.read(paths.CONTROLLER)
        if read is None or read.content is None:
            return None
        try:
            return nodes.read_controller(paths.CONTROLLER, read.content)
        except nodes.DamagedNode as damage:
            # Somebody is it, and who of the brokers lives is known all the same.
            if str(damage) != self._damage:
                self._damage = str(damage)
                log.error("%s", damage)
            return NO_BROKER

    def refresh(self) -> None:
        self._connection.sync()
        self._changes.catch_up()

    def is_fenced(self) -> bool:
        return self._fence.is_fenced()

    def last_silence_ms(self) -> int | None:
        return self._fence.last_silence_ms()

    def commit(self, operations: Sequence[Operation]) -> Change:
        return self._commits.commit(operations)

    def prune_changes(self) -> None:
        self._commits.prune_changes()

    # -- liveness ---------------------------------------------------------------------------

    def register(self, broker_id: int, content: bytes) -> Change:
        """StoreRefused when another session has this id and does not end: two brokers, one id."""
        session_count = self._connection.session_count
        if self._session_file is not None and self._connection.client.client_id is not None:
            self._session_file.keep(self._connection.client.client_id)
        # An earlier life of this broker may be on record until its session ends.
        patience_ms = self._connection.session_timeout_ms * 5 // 4 + 2_000
        deadline_ms = self._clock.monotonic_ms() + patience_ms
        while True:
            sent_ms = self._clock.monotonic_ms()
            change, owner = self._try_to_register(broker_id, content)
            if change is not None:
                break
            if self._clock.monotonic_ms() > deadline_ms:
                raise StoreRefused(
                    f"broker {broker_id} is registered already, by another process "
                    f"(session {owner:#x}): every broker needs a node.id of its own"
                )
            if self._closed.wait(REGISTRATION_POLL_S):
                raise StoreUnavailable("the store is closed")
        self._still(session_count)
        self._fence.session_proven(sent_ms)
        self._fence.registered()
        return change

    def _try_to_register(self, broker_id: int, content: bytes) -> tuple[Change | None, int]:
        """The node is made anew, so that its epoch is a new one. None where it is another
        session's, and whose it is."""
        path = paths.broker_id(broker_id)
        stat = self._connection.stat(path)
        operations: list[Operation] = [Write(path, content, ABSENT)]
        if stat is not None:
            if stat.ephemeralOwner != self._session_id():
                return None, stat.ephemeralOwner
            operations = [Write(path, None, stat.version), Write(path, content, None)]
        operations.append(Write(paths.broker_epoch(broker_id), content, None))
        try:
            return self.commit(operations), 0
        except VersionConflict:
            return None, 0  # somebody came or went meanwhile

    def unregister(self, broker_id: int) -> None:
        self._remove_own(paths.broker_id(broker_id))

    def campaign(self, broker_id: int) -> Change | None:
        session_count = self._connection.session_count
        stat = self._connection.stat(paths.CONTROLLER)
        content = nodes.controller(broker_id)
        operations: list[Operation] = [Write(paths.CONTROLLER, content, ABSENT)]
        if stat is not None:
            if stat.ephemeralOwner != self._session_id():
                return None
            operations = [
                Write(paths.CONTROLLER, None, stat.version),
                Write(paths.CONTROLLER, content, None),
            ]
        epoch, version = 1, ABSENT
        read = self._connection.read(paths.CONTROLLER_EPOCH)
        if read is not None and read.content is not None:
            epoch = nodes.read_controller_epoch(paths.CONTROLLER_EPOCH, read.content) + 1
            version = read.stat.version
        operations.append(Write(paths.CONTROLLER_EPOCH, nodes.controller_epoch(epoch), version))
        try:
            change = self.commit(operations)
        except VersionConflict:
            return None  # another was faster
        self._still(session_count)
        return change

    def resign(self, broker_id: int) -> None:
        self._remove_own(paths.CONTROLLER)

    def _remove_own(self, path: str) -> None:
        """A node of this session; one of another session is left to its owner."""
        stat = self._connection.stat(path)
        if stat is not None and stat.ephemeralOwner == self._session_id():
            try:
                self.commit([Write(path, None, stat.version)])
            except VersionConflict:
                self._remove_own(path)

    def _session_id(self) -> int:
        session_id = self._connection.session_id
        if session_id is None:
            raise StoreUnavailable("no session with ZooKeeper")
        return session_id

    def _still(self, session_count: int) -> None:
        """What was made for a session that has ended meanwhile has ended with it, or will be made
        anew: kazoo may have sent it in the next session."""
        if self._connection.session_count != session_count:
            raise StoreUnavailable("the session has ended meanwhile")

    # -- events -----------------------------------------------------------------------------

    def _connected(self) -> None:
        """On kazoo's thread; only takes note. Watches are gone with the connection they were on."""
        for watch in (self._changes.watch, self._ids_watch, self._controller_watch):
            watch.interrupted()
        self._heartbeat.soon()
        self._wake.set()

    def _session_lost(self) -> None:
        """On kazoo's thread; only takes note."""
        self._fence.session_lost()
        self._on_session_lost()

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._wake.wait(RETRY_S if self._is_behind() else None)
                self._wake.clear()
                if not self._closed.is_set() and self._connection.connected.is_set():
                    self._look()
        finally:
            self._fence.close()

    def _is_behind(self) -> bool:
        """Something could not be read: look again, though nothing may tell of it."""
        return self._connection.connected.is_set() and (
            (self._changes.watch.stale and self._changes.has_begun)
            or self._ids_watch.stale
            or self._controller_watch.stale
        )

    def _look(self) -> None:
        try:
            if self._changes.watch.stale and self._changes.has_begun:
                self._changes.catch_up()
            if self._ids_watch.stale or self._controller_watch.stale:
                self._watch_liveness()
                self._on_liveness_changed()
        except StoreUnavailable as unavailable:
            self._complain(logging.INFO, unavailable)
        except StoreRefused as refused:
            self._complain(logging.ERROR, refused)
        else:
            self._complaint = ""

    def _complain(self, level: int, error: Exception) -> None:
        """Once for each reason: it is tried again every second."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.log(level, "%s", error)

    def _watch_liveness(self) -> None:
        """One watch each, before anybody is told: what happens after it is told again."""
        try:
            if self._ids_watch.stale:
                self._connection.children(BROKER_IDS, self._ids_watch.arm())
            if self._controller_watch.stale:
                self._connection.stat(paths.CONTROLLER, self._controller_watch.arm())
        except BaseException:
            self._ids_watch.interrupted()
            self._controller_watch.interrupted()
            raise

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        heard = self._connection.close()
        if heard and self._session_file is not None:
            self._session_file.remove()
        self._heartbeat.close()
        self._thread.join()
        self._changes.unfollow_all()


def _nobody() -> None:
    """Nobody watches yet."""
