"""What every metadata store owes: the same tests for the one in memory and the one on disk.

A class of tests with a `store` fixture, to be inherited by the test file of each store.
"""

from __future__ import annotations

import pytest

from ottla.metadata import paths
from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.store import (
    ABSENT,
    CHANGES_KEPT,
    Change,
    Check,
    Gone,
    Liveness,
    MetadataStore,
    Node,
    NodeUpdate,
    VersionConflict,
    Write,
)
from tests.unit.metadata.builders import registration


class StoreContract:
    nodes_at_once = 10_000

    def test_it_begins_empty(self, store: MetadataStore) -> None:
        snapshot = store.load()
        assert snapshot.nodes == {}
        assert snapshot.last_change == 0

    def test_a_node_is_made_changed_and_removed(self, store: MetadataStore) -> None:
        made = store.commit([Write("/a", b"one", ABSENT)])
        assert made.updates == (NodeUpdate("/a", b"one", 0, made.number),)
        changed = store.commit([Write("/a", b"two", 0)])
        assert changed.updates == (NodeUpdate("/a", b"two", 1, made.number),)
        assert store.load().nodes == {"/a": Node(b"two", 1, made.number)}
        removed = store.commit([Write("/a", None, 1)])
        assert removed.updates == (NodeUpdate("/a", None, 2, made.number),)
        assert store.load().nodes == {}
        assert store.load().last_change == removed.number
        assert 0 < made.number < changed.number < removed.number

    def test_a_node_made_again_begins_anew(self, store: MetadataStore) -> None:
        store.commit([Write("/a", b"one", ABSENT)])
        store.commit([Write("/a", b"two", None)])
        change = store.commit([Write("/a", None, None), Write("/a", b"three", None)])
        assert store.load().nodes == {"/a": Node(b"three", 0, change.number)}

    def test_removing_what_is_not_there_is_no_error(self, store: MetadataStore) -> None:
        store.commit([Write("/a", None, None)])
        assert store.load().nodes == {}

    @pytest.mark.parametrize(
        "operation",
        [
            Write("/a", b"x", ABSENT),
            Write("/a", b"x", 1),
            Write("/b", b"x", 0),
            Write("/a", None, 7),
            Check("/a", 1),
            Check("/a", ABSENT),
            Check("/b", 0),
        ],
    )
    def test_a_wrong_version_stops_everything(
        self, store: MetadataStore, operation: Write | Check
    ) -> None:
        store.commit([Write("/a", b"one", ABSENT)])
        before = store.load()
        with pytest.raises(VersionConflict) as conflict:
            store.commit([Write("/c", b"new", ABSENT), operation, Write("/d", b"new", None)])
        assert conflict.value.paths == (operation.path,)
        assert store.load() == before

    def test_checks_that_hold_change_nothing(self, store: MetadataStore) -> None:
        store.commit([Write("/a", b"one", ABSENT)])
        change = store.commit([Check("/a", 0), Check("/b", ABSENT), Write("/c", b"x", ABSENT)])
        assert [update.path for update in change.updates] == ["/c"]
        assert store.load().nodes["/a"].version == 0

    def test_followers_hear_every_change_in_order(self, store: MetadataStore) -> None:
        heard: list[Change] = []
        before = store.commit([Write("/before", b"", None)])
        store.follow(heard.append)
        store.load()
        changes = [store.commit([Write("/a", str(each).encode(), None)]) for each in range(3)]
        with pytest.raises(VersionConflict):
            store.commit([Check("/a", 0)])
        assert heard == changes
        numbers = [before.number, *(change.number for change in heard)]
        assert numbers == sorted(set(numbers))

    def test_any_bytes_can_be_kept(self, store: MetadataStore) -> None:
        content = bytes(range(256))
        store.commit([Write("/a", content, ABSENT), Write("/b", b"", ABSENT)])
        assert store.load().nodes["/a"].content == content
        assert store.load().nodes["/b"].content == b""

    def test_many_nodes_at_once(self, store: MetadataStore) -> None:
        store.commit([Write(f"/n/{each}", b"x", ABSENT) for each in range(self.nodes_at_once)])
        assert len(store.load().nodes) == self.nodes_at_once

    def test_nodes_of_all_depths_come_and_go_in_any_order(self, store: MetadataStore) -> None:
        tree = ["/t/a/parts/0/state", "/t/a", "/t/a/parts/1/state", "/t/b"]
        store.commit([Write(path, b"x", ABSENT) for path in tree])
        assert sorted(store.load().nodes) == sorted(tree)
        store.commit([Write(path, None, None) for path in sorted(tree)])
        assert store.load().nodes == {}
        store.commit([Write(path, b"y", ABSENT) for path in tree])
        assert {node.version for node in store.load().nodes.values()} == {0}

    def test_what_is_gone_is_told_and_what_is_there_is_not(self, store: MetadataStore) -> None:
        change = store.commit([Gone("/ids/1"), Write("/a", b"x", ABSENT)])
        assert [(update.path, update.content) for update in change.updates] == [
            ("/ids/1", None),
            ("/a", b"x"),
        ]
        store.commit([Write("/ids/1", b"back", ABSENT)])
        with pytest.raises(VersionConflict) as conflict:
            store.commit([Gone("/ids/1"), Write("/a", b"y", None)])
        assert conflict.value.paths == ("/ids/1",)
        assert store.load().nodes["/a"].content == b"x"

    def test_liveness_is_who_registered_and_who_is_controller(self, store: MetadataStore) -> None:
        assert store.liveness() == Liveness(frozenset(), None)
        store.register(5, registration(5))
        store.campaign(5)
        assert store.liveness() == Liveness(frozenset({5}), 5)
        store.unregister(5)
        assert store.liveness().brokers == frozenset()

    def test_registration_gives_a_new_epoch_each_time(self, store: MetadataStore) -> None:
        first = store.register(5, registration(5))
        image = image_from_snapshot(store.load())
        assert image.brokers[5].epoch == first.number
        assert not image.brokers[5].fenced
        second = store.register(5, registration(5))
        assert image_from_snapshot(store.load()).brokers[5].epoch == second.number
        store.unregister(5)
        gone = image_from_snapshot(store.load()).brokers[5]
        assert gone.fenced
        assert gone.epoch == -1

    def test_each_controller_has_a_higher_epoch(self, store: MetadataStore) -> None:
        store.campaign(1)
        assert image_from_snapshot(store.load()).controller_id == 1
        assert image_from_snapshot(store.load()).controller_epoch == 1
        store.commit([Write(paths.CONTROLLER, None, None)])
        assert image_from_snapshot(store.load()).controller_id == -1
        store.campaign(2)
        image = image_from_snapshot(store.load())
        assert (image.controller_id, image.controller_epoch) == (2, 2)


class KeepsItsChanges:
    """For the stores that can be asked for their last changes."""

    def test_the_last_changes_are_kept(self, store: MetadataStore) -> None:
        changes = [store.commit([Write("/a", b"%d" % each, None)]) for each in range(3)]
        assert changes_after(store, 0) == changes
        assert changes_after(store, changes[1].number) == changes[2:]
        assert changes_after(store, changes[2].number) == []

    def test_old_changes_are_forgotten(self, store: MetadataStore) -> None:
        for each in range(CHANGES_KEPT + 200):
            store.commit([Write("/a", b"%d" % each, None)])
        last = store.load().last_change
        assert changes_after(store, 50) is None
        kept = changes_after(store, last - CHANGES_KEPT + 100)
        assert kept is not None
        assert len(kept) == CHANGES_KEPT - 100


def changes_after(store: MetadataStore, number: int) -> list[Change] | None:
    """Both stores here can tell; the port does not ask for it."""
    return store.changes_after(number)  # type: ignore[attr-defined, no-any-return]
