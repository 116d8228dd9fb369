"""`ZooKeeperStore` on a real ZooKeeper: the contract of every store, and what is its own.

Sessions end by the server's word here, never by waiting for a time-out.
"""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.ids import NO_BROKER
from ottla.metadata import paths
from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.nodes import DamagedNode
from ottla.metadata.store import (
    ABSENT,
    Change,
    ChangeTooLarge,
    Check,
    Gone,
    Liveness,
    Node,
    StoreRefused,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from ottla.runtime import zookeeper_commit
from ottla.runtime.clocks import MovableClock, SystemClock
from ottla.runtime.zookeeper_earlier import FILE_NAME
from ottla.runtime.zookeeper_store import ZooKeeperStore
from tests.cluster.proxy import Proxy
from tests.cluster.zookeeper import (
    SESSION_TIMEOUT_MS,
    ZooKeeper,
    connection_of,
    eventually,
    wait_until,
)
from tests.unit.metadata.builders import registration
from tests.unit.metadata.store_contract import StoreContract

WATCHES_OF_A_STORE = 3


class TestZooKeeperStore(StoreContract):
    nodes_at_once = 2_000  # what a multi holds

    @pytest.fixture
    def store(self, zookeeper: ZooKeeper) -> ZooKeeperStore:
        return zookeeper.store()


class Mirror:
    """What a follower makes of the changes: the nodes that a snapshot would have."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.changes: list[Change] = []
        store.follow(self.changes.append)
        self._snapshot = store.load()

    def nodes(self) -> dict[str, Node]:
        nodes = dict(self._snapshot.nodes)
        for change in tuple(self.changes):
            for path, content, version, created in change.updates:
                if content is None:
                    nodes.pop(path, None)
                else:
                    nodes[path] = Node(content, version, created)
        return nodes

    def numbers(self) -> list[int]:
        return [change.number for change in self.changes]


class Ears:
    def __init__(self, store: ZooKeeperStore) -> None:
        self.liveness_changed = threading.Event()
        self.sessions_lost = 0
        store.watch(self.liveness_changed.set, self._lost)

    def _lost(self) -> None:
        self.sessions_lost += 1


# -------------------------------------------------------------------------------- the journal
def test_every_broker_hears_every_change_once_in_one_order(zookeeper: ZooKeeper) -> None:
    stores = [zookeeper.store() for _ in range(3)]
    mirrors = [Mirror(store) for store in stores]

    def write(which: int) -> list[int]:
        return [
            stores[which].commit([Write(f"/of/{which}/{each}", b"x", ABSENT)]).number
            for each in range(20)
        ]

    with ThreadPoolExecutor(3) as threads:
        numbers = [number for own in threads.map(write, range(3)) for number in own]
    for store, mirror in zip(stores, mirrors, strict=True):
        store.refresh()
        assert mirror.numbers() == sorted(numbers)
        assert mirror.nodes() == dict(store.load().nodes)
        assert len(mirror.nodes()) == 60


def test_a_change_comes_by_itself(zookeeper: ZooKeeper) -> None:
    writer, reader = zookeeper.store(), zookeeper.store()
    mirror = Mirror(reader)
    for each in range(5):
        writer.commit([Write("/a", b"%d" % each, None)])
    wait_until(lambda: mirror.nodes().get("/a", Node(b"", 0, 0)).content == b"4", "the last one")


def test_writes_without_a_version_never_conflict(zookeeper: ZooKeeper) -> None:
    stores = [zookeeper.store() for _ in range(2)]

    def write(store: ZooKeeperStore) -> None:
        for _ in range(20):
            store.commit([Write("/a", b"x", None)])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, stores))
    assert stores[0].load().nodes["/a"].version == 39


def test_one_of_two_deciders_wins(zookeeper: ZooKeeper) -> None:
    stores = [zookeeper.store() for _ in range(2)]
    stores[0].commit([Write("/a", b"0", ABSENT)])
    won = [0, 0]

    def count(which: int) -> None:
        store = stores[which]
        for _ in range(10):
            store.refresh()
            node = store.load().nodes["/a"]
            try:
                store.commit([Write("/a", b"%d" % (int(node.content) + 1), node.version)])
                won[which] += 1
            except VersionConflict as conflict:
                assert conflict.paths == ("/a",)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(count, range(2)))
    stores[0].refresh()
    node = stores[0].load().nodes["/a"]
    assert (int(node.content), node.version) == (sum(won), sum(won))


def test_snapshots_taken_while_others_write_are_whole(zookeeper: ZooKeeper) -> None:
    """Each commit writes the same text to nodes far apart: a snapshot has one text, not two."""
    writer, reader = zookeeper.store(), zookeeper.store()
    places = [f"/{name}" for name in "az"] + [f"/m/{each}" for each in range(50)]
    writer.commit([Write(path, b"begin", ABSENT) for path in places])
    done = threading.Event()

    def write() -> int:
        count = 0
        while not done.is_set():
            count += 1
            writer.commit([Write(path, b"%d" % count, None) for path in places])
        return count

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        try:
            for _ in range(10):
                mirror = Mirror(reader)
                snapshot = reader.load()
                assert len({snapshot.nodes[path].content for path in places}) == 1
                assert mirror.numbers() == sorted(set(mirror.numbers()))
        finally:
            done.set()
        assert writing.result() > 0


def test_who_missed_pruned_changes_hears_one_that_makes_up_for_them(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_commit, "CHANGES_KEPT", 20)
    monkeypatch.setattr(zookeeper_commit, "PRUNE_SLACK", 5)
    monkeypatch.setattr(zookeeper_commit, "PRUNE_AT_ONCE", 10)
    writer, reader = zookeeper.store(), zookeeper.store()
    writer.commit([Write("/kept", b"k", ABSENT), Write("/doomed", b"d", ABSENT)])
    writer.commit([Write("/again", b"old", ABSENT), Write("/changed", b"1", ABSENT)])
    reader.load()
    mirror = Mirror(reader)
    with reader._changes._lock:  # it does not come to reading
        writer.commit([Write("/doomed", None, 0), Write("/changed", b"2", 0)])
        writer.commit([Write("/again", None, 0), Write("/again", b"new", None)])
        for each in range(60):
            writer.commit([Write("/count", b"%d" % each, None)])
        last = writer.commit([Write("/count", b"last", None)])
        writer.prune_changes()
    assert len(zookeeper.client.get_children("/changes")) == 20
    reader.refresh()
    assert mirror.numbers() == [last.number]
    assert mirror.nodes() == dict(writer.load().nodes)
    # Made again is another node, though its version is the same.
    assert [update.content for update in mirror.changes[0].updates if update.path == "/again"] == [
        None,
        b"new",
    ]
    after = writer.commit([Write("/kept", b"still following", 0)])
    reader.refresh()
    assert mirror.numbers() == [last.number, after.number]


def test_pruning_does_nothing_while_the_journal_is_short(zookeeper: ZooKeeper) -> None:
    store = zookeeper.store()
    for each in range(3):
        store.commit([Write("/a", b"%d" % each, None)])
    store.prune_changes()
    assert len(zookeeper.client.get_children("/changes")) == 3


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"{}", b"[" * 100_000, b'{"id":"x","updates":[["/a","\xe2\x82\xac",0]]}'],
    ids=["empty", "binary", "without updates", "deep", "no bytes"],
)
def test_a_damaged_change_node_is_read_past(
    zookeeper: ZooKeeper, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = zookeeper.store()
    store.commit([Write("/a", b"1", ABSENT)])
    mirror = Mirror(store)
    zookeeper.client.create("/changes/change-", content, sequence=True)
    change = store.commit([Write("/a", b"2", 0)])
    assert mirror.nodes() == {"/a": Node(b"2", 1, mirror._snapshot.nodes["/a"].created)}
    assert change.updates[0][:3] == ("/a", b"2", 1)
    assert len([line for line in caplog.messages if "holds no change" in line]) == 1
    assert store.load().last_change == change.number
    store.commit([Write("/a", b"3", 1)])
    assert mirror.nodes()["/a"].content == b"3"


def test_what_others_keep_beside_the_changes_does_not_matter(zookeeper: ZooKeeper) -> None:
    store = zookeeper.store()
    mirror = Mirror(store)
    zookeeper.client.create("/changes/zzz", b"")
    store.commit([Write("/a", b"1", ABSENT)])
    store.commit([Write("/a", b"2", 0)])
    assert mirror.nodes()["/a"].content == b"2"
    assert store.load().nodes["/a"].content == b"2"


# -------------------------------------------------------------------------------- the tree
def test_parents_of_a_deleted_topic_are_gone(zookeeper: ZooKeeper) -> None:
    store, other = zookeeper.store(), zookeeper.store()
    other.load()
    topic = [paths.topic("t"), *(paths.partition_state("t", index) for index in range(3))]
    for _ in range(2):  # the other one has to know of it too
        store.commit([Write(path, b"x", ABSENT) for path in topic])
        other.refresh()
        other.commit([Write(path, None, 0) for path in topic])
        store.refresh()
        assert zookeeper.client.get_children("/brokers/topics") == []


def test_old_knowledge_of_parents_is_no_conflict(zookeeper: ZooKeeper) -> None:
    store, other = zookeeper.store(), zookeeper.store()
    topic = [paths.topic("t"), *(paths.partition_state("t", index) for index in range(2))]
    store.commit([Write(path, b"x", ABSENT) for path in topic])
    other.load()
    with other._changes._lock:
        # Behind its back: one partition goes, another comes.
        store.commit([Write(topic[1], None, 0), Write(topic[2], None, 0)])
    other.commit([Write(paths.partition_state("t", 5), b"y", ABSENT)])
    with store._changes._lock:
        other.commit([Write(paths.partition_state("t", 6), b"y", ABSENT)])
    store.commit([Write(paths.partition_state("t", 5), None, 0)])
    assert sorted(other.load().nodes) == [paths.topic("t"), paths.partition_state("t", 6)]


def test_parents_that_hold_nothing_do_not_keep_a_topic(zookeeper: ZooKeeper) -> None:
    store = zookeeper.store()
    store.commit([Write(paths.topic("t"), b"x", ABSENT)])
    zookeeper.client.create(f"{paths.topic('t')}/partitions", None)
    zookeeper.client.create(f"{paths.topic('t')}/partitions/9", None)
    store.commit([Write(paths.topic("t"), None, 0)])
    assert zookeeper.client.get_children("/brokers/topics") == []


def test_a_node_with_children_that_nobody_knew_is_a_conflict(zookeeper: ZooKeeper) -> None:
    store = zookeeper.store()
    store.commit([Write("/x/y/topic", b"x", ABSENT)])
    zookeeper.client.create("/x/y/topic/stranger", b"")
    with pytest.raises(VersionConflict):
        store.commit([Write("/x/y/topic", None, 0)])
    assert "/x/y/topic" in store.load().nodes


def test_too_much_for_one_commit_is_said_and_nothing_happens(zookeeper: ZooKeeper) -> None:
    store = zookeeper.store()
    with pytest.raises(ChangeTooLarge):
        store.commit([Write(f"/n/{each}", b"x" * 10_000, ABSENT) for each in range(60)])
    store.commit([Write(f"/n/{each}", b"x" * 10_000, ABSENT) for each in range(40)])
    assert len(store.load().nodes) == 40


def test_an_emptied_store_is_refused(zookeeper: ZooKeeper) -> None:
    store = zookeeper.store()
    store.commit([Write("/a", b"1", ABSENT)])
    for name in zookeeper.client.get_children("/"):
        zookeeper.client.delete(f"/{name}", recursive=True)
    for ask in (store.refresh, store.load):
        with pytest.raises(StoreRefused):
            ask()


# -------------------------------------------------------------------------------- watches
def test_watches_do_not_add_up(zookeeper: ZooKeeper) -> None:
    """Brokers come and go, connections break, sessions end: three watches for each store."""
    # A server notices after the goodbye that a connection has ended.
    wait_until(lambda: zookeeper.watch_count() == 0, "those of earlier tests are gone")
    stores = [zookeeper.store() for _ in range(3)]
    for number, store in enumerate(stores, 1):
        store.load()
        store.register(number, registration(number))
    for _ in range(5):
        passing = zookeeper.store()
        passing.load()
        passing.register(9, registration(9))
        passing.campaign(9)
        passing.close()
    for each in range(10):
        stores[each % 3].commit([Write("/a", b"x", None)])
        stores[each % 3].liveness()
        stores[each % 3].load()
    wait_until(lambda: zookeeper.watch_count() == 3 * WATCHES_OF_A_STORE, "one each")
    for _ in range(3):
        for store in stores:
            store._connection.drop()
            eventually(store.refresh, "an answer")
    zookeeper.expire(stores[0])
    eventually(lambda: stores[0].register(1, registration(1)), "the new session")
    stores[1].commit([Write("/a", b"x", None)])
    wait_until(lambda: zookeeper.watch_count() == 3 * WATCHES_OF_A_STORE, "still one each")
    for store in stores:
        client = connection_of(store)
        watchers = [*client._child_watchers.values(), *client._data_watchers.values()]  # type: ignore[attr-defined]
        assert max(len(one) for one in watchers) == 1


# -------------------------------------------------------------------------------- liveness
def test_the_end_of_a_broker_is_heard_and_can_be_declared(zookeeper: ZooKeeper) -> None:
    first, second = zookeeper.store(), zookeeper.store()
    ears = Ears(first)
    first.register(1, registration(1))
    second.register(2, registration(2))
    second.campaign(2)
    wait_until(lambda: first.liveness() == Liveness(frozenset({1, 2}), 2), "both")
    with pytest.raises(VersionConflict):
        first.commit([Gone(paths.broker_id(2))])
    wait_until(lambda: not first._is_behind(), "quiet")
    ears.liveness_changed.clear()
    second.close()
    wait_until(ears.liveness_changed.is_set, "the end of a session")
    wait_until(lambda: first.liveness() == Liveness(frozenset({1}), None), "one left")
    # The journal does not tell of it until somebody declares it.
    mirror = Mirror(first)
    change = first.commit([Gone(paths.broker_id(2)), Gone(paths.CONTROLLER)])
    assert [(update.path, update.content) for update in change.updates] == [
        (paths.broker_id(2), None),
        (paths.CONTROLLER, None),
    ]
    assert paths.broker_id(2) not in mirror.nodes()


def test_one_controller_at_a_time(zookeeper: ZooKeeper) -> None:
    first, second = zookeeper.store(), zookeeper.store()
    assert first.campaign(1) is not None
    assert second.campaign(2) is None
    second.resign(2)
    assert first.liveness().controller == 1
    first.resign(1)
    assert second.campaign(2) is not None
    assert first.campaign(1) is None
    image = image_from_snapshot(first.load())
    assert (image.controller_id, image.controller_epoch) == (2, 2)


def test_an_unreadable_controller_is_somebody_and_hides_nobody(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = zookeeper.store(), zookeeper.store()
    first.register(1, registration(1))
    assert first.campaign(1) is not None
    zookeeper.client.set(paths.CONTROLLER, b"{")
    for _ in range(3):
        assert second.liveness() == Liveness(frozenset({1}), NO_BROKER)
    assert second.campaign(2) is None
    # By this name only: what another test has left behind may complain too.
    errors = [one for one in caplog.records if one.levelname == "ERROR"]
    assert [one.getMessage() for one in errors if one.name == "ottla.zookeeper"] == [
        f"node {paths.CONTROLLER} is damaged: it is not JSON"
    ]
    first.resign(1)
    zookeeper.client.set(paths.CONTROLLER_EPOCH, b"one")
    with pytest.raises(DamagedNode, match="controller_epoch is damaged"):
        second.campaign(2)
    assert second.liveness().controller is None


def test_only_the_owner_says_goodbye(zookeeper: ZooKeeper) -> None:
    first, second = zookeeper.store(), zookeeper.store()
    first.register(1, registration(1))
    second.unregister(1)
    assert second.liveness().brokers == {1}
    first.unregister(1)
    assert second.liveness().brokers == set()


def test_a_second_broker_with_the_same_id_is_refused(zookeeper: ZooKeeper) -> None:
    first = zookeeper.store()
    first.register(1, registration(1))
    clock = MovableClock()
    second = zookeeper.store(clock)

    def register() -> None:
        with pytest.raises(StoreRefused, match="broker 1 is registered already"):
            second.register(1, registration(1))

    with ThreadPoolExecutor(1) as threads:
        registering = threads.submit(eventually, register, "a refusal")
        while not registering.done():
            clock.advance(1_000)
            zookeeper.client.exists("/")
        registering.result()
    assert first.liveness().brokers == {1}


def test_a_broker_waits_for_the_end_of_its_earlier_life(zookeeper: ZooKeeper) -> None:
    earlier, later = zookeeper.store(), zookeeper.store()
    epoch = earlier.register(1, registration(1)).number
    with ThreadPoolExecutor(1) as threads:
        registering = threads.submit(later.register, 1, registration(1))
        zookeeper.expire(earlier)
        change = registering.result()
    assert change.number > epoch
    assert image_from_snapshot(later.load()).brokers[1].epoch == change.number


def test_the_next_start_ends_the_session_of_a_killed_broker(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    # One that is not heard of again: alive, it would take its session back.
    proxy = Proxy(zookeeper.servers.servers[0].address.client_port)
    killed = zookeeper.store(hosts=proxy.address, directory=tmp_path)
    epoch = killed.register(1, registration(1)).number
    proxy.close()
    later = zookeeper.store(directory=tmp_path)
    # Nobody has to wait for a time-out: nothing is on record any more.
    assert later.liveness().brokers == frozenset()
    assert later.register(1, registration(1)).number > epoch
    assert later.liveness().brokers == {1}


def test_a_copy_of_the_data_ends_nobodys_session(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    alive = zookeeper.store(directory=original)
    alive.register(1, registration(1))
    shutil.copytree(original, copy)
    assert (copy / FILE_NAME).exists()
    zookeeper.store(directory=copy)
    alive.refresh()
    assert not alive.is_fenced()
    assert alive.liveness().brokers == {1}


def test_a_clean_end_leaves_no_session_to_end(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    store = zookeeper.store(directory=tmp_path)
    store.register(1, registration(1))
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    store.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"session":1,"password":"zz"}', b"\xff"])
def test_a_damaged_session_file_is_ignored(
    zookeeper: ZooKeeper, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    zookeeper.store(directory=tmp_path).register(1, registration(1))


# -------------------------------------------------------------------------------- trouble
def test_a_lost_session_is_told_once_and_can_be_made_anew(zookeeper: ZooKeeper) -> None:
    store, other = zookeeper.store(), zookeeper.store()
    ears = Ears(store)
    mirror = Mirror(store)
    store.register(1, registration(1))
    store.campaign(1)
    assert not store.is_fenced()
    zookeeper.expire(store)
    wait_until(lambda: ears.sessions_lost == 1, "the loss")
    assert store.is_fenced()
    wait_until(lambda: other.liveness() == Liveness(frozenset(), None), "nothing is left of it")
    eventually(lambda: store.register(1, registration(1)), "the new session")
    assert not store.is_fenced()
    assert store.campaign(1) is not None
    assert ears.sessions_lost == 1
    other.commit([Write("/a", b"1", ABSENT)])
    wait_until(lambda: "/a" in mirror.nodes(), "changes still come")
    assert mirror.numbers() == sorted(set(mirror.numbers()))


def test_a_broker_is_fenced_until_it_registers(zookeeper: ZooKeeper) -> None:
    store = zookeeper.store()
    assert store.is_fenced()
    store.load()
    assert store.is_fenced()
    store.register(1, registration(1))
    assert not store.is_fenced()


def test_a_heartbeat_counts_from_its_sending(zookeeper: ZooKeeper) -> None:
    clock = MovableClock()
    store = zookeeper.store(clock)
    store.register(1, registration(1))
    assert not store.is_fenced()
    clock.advance(SESSION_TIMEOUT_MS + 1)
    assert store.is_fenced()
    store._heartbeat.soon()
    wait_until(lambda: not store.is_fenced(), "the next heartbeat")


def test_the_time_out_is_the_one_that_the_server_grants(zookeeper: ZooKeeper) -> None:
    """Which may be another than was asked for: the fence goes by it."""
    settings = replace(zookeeper.settings(), session_timeout_ms=900_000)
    clock = MovableClock()
    store = ZooKeeperStore(settings, clock)
    try:
        store.register(1, registration(1))
        assert store._connection.session_timeout_ms == 600_000
        clock.advance(600_000 + 1)
        assert store.is_fenced()
    finally:
        store.close()


def test_nobody_answers(zookeeper: ZooKeeper) -> None:
    hasty = replace(zookeeper.settings(hosts="127.0.0.1:1"), connection_timeout_ms=500)
    with pytest.raises(StoreUnavailable, match=r"ZooKeeper at 127\.0\.0\.1:1 "):
        ZooKeeperStore(hasty, SystemClock())


def test_checks_alone_are_a_change_too(zookeeper: ZooKeeper) -> None:
    store = zookeeper.store()
    store.commit([Write("/a", b"1", ABSENT)])
    assert store.commit([Check("/a", 0)]).updates == ()
