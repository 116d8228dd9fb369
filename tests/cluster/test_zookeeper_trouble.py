"""`ZooKeeperStore` when answers get lost, servers fall silent or are gone, and by chance."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import (
    ABSENT,
    Change,
    Check,
    Gone,
    MetadataStore,
    Operation,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from ottla.runtime.clocks import MovableClock
from tests.cluster.proxy import Proxy
from tests.cluster.zookeeper import (
    SESSION_TIMEOUT_MS,
    ZooKeeper,
    connection_of,
    eventually,
    wait_until,
)
from tests.seeds import seed_for
from tests.unit.metadata.builders import registration

RANDOM_COMMITS = 150


@pytest.fixture
def proxy(zookeeper: ZooKeeper) -> Iterator[Proxy]:
    one = Proxy(zookeeper.servers.servers[0].address.client_port)
    yield one
    one.close()


def test_a_commit_whose_answer_got_lost_is_found_in_the_journal(
    zookeeper: ZooKeeper, proxy: Proxy
) -> None:
    store = zookeeper.store(hosts=proxy.address)
    store.load()
    with ThreadPoolExecutor(1) as threads:
        proxy.lose(answers=True)
        committing = threads.submit(store.commit, [Write("/a", b"1", ABSENT)])
        wait_until(lambda: zookeeper.client.exists("/a"), "the effect")
        proxy.cut()
        change = committing.result()
    stat = zookeeper.client.exists("/a")
    assert stat is not None
    assert change == Change(stat.czxid, change.updates)
    assert change.updates == (("/a", b"1", 0, stat.czxid),)
    assert store.load().nodes["/a"].content == b"1"


def test_a_commit_that_got_lost_itself_is_unknown(zookeeper: ZooKeeper, proxy: Proxy) -> None:
    store = zookeeper.store(hosts=proxy.address)
    store.load()
    with ThreadPoolExecutor(1) as threads:
        proxy.lose(requests=True)
        # So large that nothing else, such as a heartbeat, is taken for it.
        content = bytes(100_000)
        committing = threads.submit(store.commit, [Write("/a", content, ABSENT)])
        wait_until(lambda: proxy.lost_bytes() > len(content), "the loss")
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            committing.result()
    eventually(store.refresh, "the connection")
    assert store.load().nodes == {}


def test_a_registration_whose_answer_got_lost_is_made_again(
    zookeeper: ZooKeeper, proxy: Proxy
) -> None:
    """Whether it is found or not: afterwards the broker is alive once, with the newest epoch."""
    store = zookeeper.store(hosts=proxy.address)
    store.load()
    with ThreadPoolExecutor(1) as threads:
        proxy.lose(answers=True)
        registering = threads.submit(store.register, 1, registration(1))
        wait_until(lambda: proxy.lost_bytes() > 0, "the loss")
        proxy.cut()
        if registering.exception() is not None:
            assert isinstance(registering.exception(), StoreUnavailable)
            eventually(lambda: store.register(1, registration(1)), "the connection")
    assert not store.is_fenced()
    stat = zookeeper.client.exists("/brokers/ids/1")
    assert stat is not None
    assert store.load().nodes["/brokers/ids/1"].created == stat.czxid


def test_changes_come_again_after_a_cut(zookeeper: ZooKeeper, proxy: Proxy) -> None:
    store, other = zookeeper.store(hosts=proxy.address), zookeeper.store()
    heard: list[int] = []
    store.follow(lambda change: heard.append(change.number))
    store.load()
    numbers = []
    for _ in range(5):
        numbers.append(other.commit([Write("/a", b"x", None)]).number)
        proxy.cut()
        numbers.append(other.commit([Write("/a", b"x", None)]).number)
    wait_until(lambda: heard == numbers, f"{numbers}")


def test_a_silent_server_is_left_for_a_new_connection(zookeeper: ZooKeeper, proxy: Proxy) -> None:
    """kazoo does not notice while something is sent all the time."""
    clock = MovableClock()
    store = zookeeper.store(clock, hosts=proxy.address)
    store.register(1, registration(1))
    proxy.lose(requests=True)

    def connected_anew() -> bool:
        store._heartbeat.soon()
        clock.advance(1_000)
        return len(proxy.links) > 1

    wait_until(connected_anew, "a new connection")
    eventually(store.refresh, "an answer")
    wait_until(lambda: not store.is_fenced(), "the heartbeat")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_that_gave_up_is_started_again(zookeeper: ZooKeeper, proxy: Proxy) -> None:
    """An answer to nothing: kazoo ends its thread for good on that."""
    lost: list[int] = []
    store = zookeeper.store(hosts=proxy.address)
    store.watch(lambda: None, lambda: lost.append(1))
    store.register(1, registration(1))
    identity = connection_of(store).client_id
    client, _ = proxy.links[0].ends
    client.sendall(b"\x00\x00\x00\x10" + b"\x7f\xff\xff\xff" + bytes(12))

    def alive() -> bool:
        store._heartbeat.soon()
        return bool(lost)

    wait_until(alive, "the loss")
    zookeeper.end_session(identity)  # which nobody has ended yet
    eventually(lambda: store.register(1, registration(1)), "a new session")
    assert not store.is_fenced()


def test_an_ensemble_loses_one_server_after_the_other_and_then_falls_silent(
    ensemble: ZooKeeper,
) -> None:
    clock = MovableClock()
    stores = [ensemble.store(clock) for _ in range(3)]
    lost: list[int] = []
    heard: list[int] = []
    for number, store in enumerate(stores, 1):
        store.watch(lambda: None, lambda: lost.append(1))
        store.register(number, registration(number))
    stores[2].follow(lambda change: heard.append(change.number))
    stores[2].load()
    for server in ensemble.servers.servers:
        server.kill()
        for store in stores:
            eventually(partial(store.commit, [Write("/a", b"x", None)]), "two servers")
        server.launch()
        server.wait_until_serving()
    for store in stores:
        eventually(store.refresh, "three servers")
        # A heartbeat may have been lost with each server; sessions were not.
        store._heartbeat.soon()
        wait_until(lambda store=store: not store.is_fenced(), "a heartbeat")  # type: ignore[misc]
    assert stores[0].load().nodes["/a"].version >= 8
    assert heard == sorted(set(heard))
    assert len(heard) >= 9
    assert lost == []
    with ensemble.paused():
        clock.advance(SESSION_TIMEOUT_MS + 1)
        assert all(store.is_fenced() for store in stores)
    for store in stores:
        eventually(store.refresh, "the servers")
        store._heartbeat.soon()
        wait_until(lambda store=store: not store.is_fenced(), "a heartbeat")  # type: ignore[misc]


# ---------------------------------------------------------------------------------- by chance
def test_it_does_what_the_store_in_memory_does(zookeeper: ZooKeeper) -> None:
    """The same random commits to both: the same conflicts, the same nodes, versions and order."""
    chance = random.Random(seed_for("zookeeper store"))
    first, second, model = zookeeper.store(), zookeeper.store(), MemoryStore()
    for each in range(RANDOM_COMMITS):
        operations = _draw(chance, model)
        store = chance.choice((first, second))
        assert _outcome(store, operations) == _outcome(model, operations), (each, operations)
    for store in (first, second):
        store.refresh()
        assert _contents(store) == _contents(model)
    below = set(zookeeper.client.get_children("/brokers/topics"))
    assert below == {path.split("/")[3] for path in model.load().nodes}


def _draw(chance: random.Random, model: MemoryStore) -> list[Operation]:
    """Mostly what fits the model: versions that are right, nodes above before those below."""
    nodes = model.load().nodes
    topics = [f"/brokers/topics/{name}" for name in "ab"]
    states = [f"{topic}/partitions/{index}/state" for topic in topics for index in range(2)]
    operations: list[Operation] = []
    for path in chance.sample([*topics, *states], chance.randint(1, 6)):
        version = nodes[path].version if path in nodes else ABSENT
        if chance.random() < 0.05:
            version += 1
        expected = None if chance.random() < 0.3 else version
        kind = chance.random()
        if kind < 0.15:
            operations.append(Check(path, version))
        elif kind < 0.2:
            operations.append(Gone(path))
        elif kind < 0.6:
            operations.append(Write(path, b"%d" % chance.randrange(100), expected))
        else:
            operations.append(Write(path, None, expected))
    return _possible(operations, set(nodes))


def _possible(operations: list[Operation], present: set[str]) -> list[Operation]:
    """A topic is made before its partitions and goes after them: decisions see to that."""
    left = set(present)
    for operation in operations:
        if isinstance(operation, Write):
            (left.add if operation.content is not None else left.discard)(operation.path)

    def is_possible(operation: Operation) -> bool:
        if not isinstance(operation, Write):
            return True
        if operation.content is None:
            return not any(path.startswith(operation.path + "/") for path in left)
        topic = "/".join(operation.path.split("/")[:4])
        return topic in present or topic == operation.path

    return [operation for operation in operations if is_possible(operation)]


def _outcome(store: MetadataStore, operations: list[Operation]) -> object:
    try:
        change = store.commit(operations)
    except VersionConflict:
        return "conflict"
    return [(path, content, version) for path, content, version, _ in change.updates]


def _contents(store: MetadataStore) -> dict[str, tuple[bytes, int]]:
    return {path: node[:2] for path, node in store.load().nodes.items()}
