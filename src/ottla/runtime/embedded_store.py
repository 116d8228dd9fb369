"""The metadata store of a single node: one SQLite file, no server.

Owns `metadata.sqlite` in the directory it is given. A write-ahead log with `synchronous=FULL`: a
commit is one fsync, and a process killed at any moment leaves all of it or nothing. The exclusive
lock keeps a second process out and spares the shared-memory file.

Used from the threads of the pool: one connection, one lock, one operation at a time. There is
nobody else, so this node is always alive and always the controller; each start raises the epoch,
as an election would.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.base.errors import StorageError
from ottla.metadata import paths
from ottla.metadata.memory_store import (
    as_write,
    candidacy,
    conflicts,
    liveness_of,
    registration,
    updated,
)
from ottla.metadata.store import (
    CHANGES_KEPT,
    Change,
    Follower,
    Liveness,
    Node,
    NodeUpdate,
    Operation,
    Snapshot,
    StoreRefused,
    VersionConflict,
    Write,
)

FILE_NAME = "metadata.sqlite"
# What the file is called after its content has moved into a cluster's store.
ADOPTED_FILE_NAME = "metadata.sqlite.adopted"
SCHEMA_VERSION = 1

# Old changes are dropped in bundles: dropping one with every commit would touch one more page.
PRUNE_EVERY = 100

SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE node (
    path TEXT PRIMARY KEY, content BLOB NOT NULL, version INTEGER NOT NULL, created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE change (number INTEGER PRIMARY KEY, updates TEXT NOT NULL);
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


class EmbeddedStore:
    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE_NAME)
        self._lock = threading.Lock()
        self._followers: list[Follower] = []
        is_new = not os.path.exists(self.path)
        try:
            self._database = _open(self.path)
        except sqlite3.Error as cause:
            raise StoreRefused(f"cannot use {self.path}: {cause}") from cause
        if is_new:
            _sync_directory(directory)
        self._last_change: int = self._run("SELECT coalesce(max(number), 0) FROM change")[0][0]

    def load(self) -> Snapshot:
        with self._lock:
            rows = self._run("SELECT path, content, version, created FROM node ORDER BY path")
            return Snapshot({path: Node(*node) for path, *node in rows}, self._last_change)

    def commit(self, operations: Sequence[Operation]) -> Change:
        with self._lock:
            return self._commit(operations)

    def follow(self, follower: Follower) -> None:
        with self._lock:
            self._followers.append(follower)

    def changes_after(self, number: int) -> list[Change] | None:
        """The changes since `number`; None when they are no longer all kept."""
        with self._lock:
            rows = self._run("SELECT * FROM change WHERE number > ? ORDER BY number", number)
            if len(rows) < self._last_change - number:
                return None
            return [Change(found, _decode_updates(updates)) for found, updates in rows]

    def register(self, broker_id: int, content: bytes) -> Change:
        with self._lock:
            present = self._read([paths.broker_id(broker_id)])
            return self._commit(registration(present, broker_id, content))

    def unregister(self, broker_id: int) -> None:
        with self._lock:
            self._commit([Write(paths.broker_id(broker_id), None, None)])

    def campaign(self, broker_id: int) -> Change | None:
        """The node of an earlier life of this process is no rival: it is replaced."""
        with self._lock:
            present = self._read([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
            return self._commit(candidacy(present, broker_id))

    def resign(self, broker_id: int) -> None:
        """There is nobody who could take over."""

    def watch(
        self, on_liveness_changed: Callable[[], None], on_session_lost: Callable[[], None]
    ) -> None:
        """One process is the whole cluster: nothing ends by itself."""

    def liveness(self) -> Liveness:
        with self._lock:
            rows = self._run(
                "SELECT path, content, version, created FROM node WHERE path = ? OR path GLOB ?",
                paths.CONTROLLER,
                paths.BROKER_IDS + "*",
            )
        return liveness_of({path: Node(*node) for path, *node in rows})

    def refresh(self) -> None:
        """The followers are told at once."""

    def is_fenced(self) -> bool:
        return False

    def last_silence_ms(self) -> int | None:
        return None

    def prune_changes(self) -> None:
        """Commits drop what is too old, a hundred at a time."""

    def close(self) -> None:
        with self._lock:
            self._followers.clear()
            self._database.close()

    def _commit(self, operations: Sequence[Operation]) -> Change:
        present = self._read([operation.path for operation in operations])
        wrong = conflicts({path: node.version for path, node in present.items()}, operations)
        if wrong:
            raise VersionConflict(wrong)
        number = self._last_change + 1
        updates = []
        for operation in operations:
            write = as_write(operation)
            if write is not None:
                update = updated(write, present.get(write.path), number)
                _remember(present, update)
                updates.append(update)
        change = Change(number, tuple(updates))
        self._write(change)
        self._last_change = number
        for follower in tuple(self._followers):
            follower(change)
        return change

    def _write(self, change: Change) -> None:
        kept = [
            (update.path, update.content, update.version, update.created)
            for update in change.updates
            if update.content is not None
        ]
        removed = [(update.path,) for update in change.updates if update.content is None]
        database = self._database
        try:
            with database:  # commits, or rolls back on any error
                database.execute("BEGIN IMMEDIATE")
                database.executemany("DELETE FROM node WHERE path = ?", removed)
                database.executemany("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?)", kept)
                database.execute(
                    "INSERT INTO change VALUES (?, ?)",
                    (change.number, _encode_updates(change.updates)),
                )
                if change.number % PRUNE_EVERY == 0:
                    database.execute(
                        "DELETE FROM change WHERE number <= ?", (change.number - CHANGES_KEPT,)
                    )
        except sqlite3.Error as cause:
            raise StorageError(self.path, "commit") from cause

    def _read(self, wanted: Iterable[str]) -> dict[str, Node]:
        nodes = {}
        for path in wanted:
            rows = self._run("SELECT content, version, created FROM node WHERE path = ?", path)
            if rows:
                nodes[path] = Node(*rows[0])
        return nodes

    def _run(self, statement: str, *values: str | int) -> list[Any]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as cause:
            raise StorageError(self.path, "read") from cause


def _open(path: str) -> sqlite3.Connection:
    """Raises sqlite3.Error; StoreRefused for a file of another Ottla."""
    # No isolation level: transactions begin and end where this module says so.
    database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        _prepare(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _prepare(database: sqlite3.Connection, path: str) -> None:
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 0:
        database.executescript(SCHEMA)
    elif version != SCHEMA_VERSION:
        raise StoreRefused(f"{path} was written by another version of Ottla (schema {version})")
    # Writing takes the lock: a second process is refused now, not at its first commit.
    database.execute("BEGIN IMMEDIATE")
    database.execute("COMMIT")


def _remember(present: dict[str, Node], update: NodeUpdate) -> None:
    """A node may be removed and made again in one commit; the second write sees the first."""
    if update.content is None:
        present.pop(update.path, None)
    else:
        present[update.path] = Node(update.content, update.version, update.created)


def _encode_updates(updates: Iterable[NodeUpdate]) -> str:
    return json.dumps(
        [
            (path, None if content is None else content.decode("latin-1"), version, created)
            for path, content, version, created in updates
        ]
    )


def _decode_updates(text: str) -> tuple[NodeUpdate, ...]:
    return tuple(
        NodeUpdate(path, None if content is None else content.encode("latin-1"), version, created)
        for path, content, version, created in json.loads(text)
    )


def _sync_directory(directory: str) -> None:
    """The new file's name must survive a power cut as its content does."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
