"""Goal: what a commit has returned survives everything, what it has not is all there or not at all.
Method: the tests that every store has to pass; stores opened again after close and after kill -9 of
a process that commits; refusal of what is damaged, in use or of another time.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.base.errors import StorageError
from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.store import ABSENT, Change, StoreRefused, VersionConflict, Write
from ottla.runtime.embedded_store import FILE_NAME, EmbeddedStore
from tests.unit.metadata.builders import registration
from tests.unit.metadata.store_contract import KeepsItsChanges, StoreContract

Open = Callable[[], EmbeddedStore]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Open]:
    """Opens the store of this test, as often as it likes; what is left open is closed."""
    stores: list[EmbeddedStore] = []

    def opened() -> EmbeddedStore:
        stores.append(EmbeddedStore(str(tmp_path)))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


class TestEmbeddedStore(StoreContract, KeepsItsChanges):
    @pytest.fixture
    def store(self, open_store: Open) -> EmbeddedStore:
        return open_store()


def test_everything_is_there_after_a_restart(open_store: Open) -> None:
    store = open_store()
    store.commit([Write("/a", b"one", ABSENT), Write("/b", b"two", ABSENT)])
    change = store.commit([Write("/a", b"changed", 0)])
    before = store.load()
    store.close()
    store = open_store()
    assert store.load() == before
    assert store.changes_after(1) == [change]
    assert store.commit([Write("/c", b"", ABSENT)]).number == 3


def test_each_start_raises_the_epoch_of_controller_and_broker(open_store: Open) -> None:
    store = open_store()
    epochs = []
    for _ in range(3):
        store.register(1, registration(1))
        store.campaign(1)
        image = image_from_snapshot(store.load())
        epochs.append((image.controller_epoch, image.brokers[1].epoch))
        store.close()
        store = open_store()
    assert [epoch for epoch, _ in epochs] == [1, 2, 3]
    assert sorted({epoch for _, epoch in epochs}) == [epoch for _, epoch in epochs]


def test_a_second_process_is_refused(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(StoreRefused, match="locked"):
        open_store()
    store.close()
    open_store()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path, open_store: Open) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is not a database" * 100)
    with pytest.raises(StoreRefused, match="not a database"):
        open_store()


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused):
        EmbeddedStore(str(tmp_path / "nowhere"))


def test_a_store_of_another_version_is_refused(tmp_path: Path, open_store: Open) -> None:
    open_store().close()
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreRefused, match="another version"):
        open_store()


def test_a_full_disk_fails_the_commit_and_nothing_else(open_store: Open) -> None:
    store = open_store()
    store.commit([Write("/a", b"one", ABSENT)])
    before = store.load()
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError) as failure:
        store.commit([Write("/b", b"x" * 100_000, ABSENT), Write("/a", b"two", 0)])
    assert failure.value.operation == "commit"
    assert store.load() == before
    store._database.execute("PRAGMA max_page_count = 1000000")
    assert store.commit([Write("/b", b"x" * 100_000, ABSENT)]).number == before.last_change + 1


def test_a_closed_store_says_so(open_store: Open) -> None:
    store = open_store()
    store.close()
    with pytest.raises(StorageError):
        store.load()


def test_threads_of_the_pool_take_turns(open_store: Open) -> None:
    store = open_store()
    store.commit([Write("/count", b"0", ABSENT)])
    heard: list[Change] = []
    store.follow(heard.append)

    def count() -> None:
        added = 0
        while added < 20:
            node = store.load().nodes["/count"]
            try:
                store.commit([Write("/count", b"%d" % (int(node.content) + 1), node.version)])
            except VersionConflict:
                continue
            added += 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.load().nodes["/count"].content == b"80"
    assert [change.number for change in heard] == list(range(2, 82))


WRITER = """
import sys
from ottla.metadata.store import Write
from ottla.runtime.embedded_store import EmbeddedStore

store = EmbeddedStore(sys.argv[1])
number = store.load().last_change
while True:
    number += 1
    content = b"%d" % number
    store.commit([Write(f"/n/{each}", content, None) for each in range(50)])
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_a_process_killed_at_any_moment_leaves_whole_commits(tmp_path: Path) -> None:
    acknowledged = 0
    for kill_after in (1, 7, 20, 3, 11):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert writer.stdout is not None
        for _ in range(kill_after):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split("\n")
        writer.stdout.close()
        writer.wait()
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1])])
        store = EmbeddedStore(str(tmp_path))
        snapshot = store.load()
        contents = {int(node.content) for node in snapshot.nodes.values()}
        assert contents == {snapshot.last_change}, "half a commit"
        assert snapshot.last_change >= acknowledged, "an acknowledged commit is gone"
        store.close()
