"""What a broker knows of the tree, as it follows the journal."""

from __future__ import annotations

from ottla.metadata import paths
from ottla.metadata.store import Change, Node, NodeUpdate
from ottla.runtime.zookeeper_tree import Known, Tree, ancestors_of

TOPIC = paths.topic("t")
STATE = paths.partition_state("t", 0)


def test_parents_are_known_without_being_named() -> None:
    tree = Tree({STATE: Node(b"", 0, 1)})
    assert [tree.is_mere_parent(path) for path in ancestors_of(STATE)] == [True] * 5
    assert not tree.has("/brokers/ids")


def test_the_journal_is_completed_by_who_made_a_node() -> None:
    tree = Tree({"/a": Node(b"", 3, 7)})
    entries = [("/a", b"x", 4), ("/b", b"x", 0), ("/c", None, 0), ("/a", None, 5), ("/a", b"y", 0)]
    assert [update.created for update in tree.updates_of(9, entries)] == [7, 9, 9, 7, 9]


def test_a_topic_goes_with_its_parents_in_any_order() -> None:
    tree = Tree()
    tree.apply(Change(1, (NodeUpdate(STATE, b"", 0, 1), NodeUpdate(TOPIC, b"", 0, 1))))
    assert tree.known() == {STATE: Known(0, 1), TOPIC: Known(0, 1)}
    tree.apply(Change(2, (NodeUpdate(TOPIC, None, 1, 1), NodeUpdate(STATE, None, 1, 1))))
    assert tree.known() == {}
    assert not tree.has(TOPIC)
    assert not tree.has(f"{TOPIC}/partitions")
    assert tree.has("/brokers/topics")


def test_removing_what_is_not_there_changes_nothing() -> None:
    tree = Tree({STATE: Node(b"", 0, 1)})
    tree.apply(Change(2, (NodeUpdate(paths.partition_state("t", 1), None, 0, 2),)))
    assert tree.has(STATE)
    assert tree.has(f"{TOPIC}/partitions")


def test_the_difference_to_a_snapshot_makes_up_for_missed_changes() -> None:
    old = {"/same": Node(b"s", 0, 1), "/gone": Node(b"g", 2, 1), "/again": Node(b"a", 0, 1)}
    new = {
        "/same": Node(b"s", 0, 1),
        "/again": Node(b"b", 0, 8),
        "/new": Node(b"n", 1, 7),
    }
    assert Tree(old).difference(9, new) == Change(
        9,
        (
            NodeUpdate("/gone", None, 3, 1),
            NodeUpdate("/again", None, 1, 1),
            NodeUpdate("/again", b"b", 0, 8),
            NodeUpdate("/new", b"n", 1, 7),
        ),
    )
    assert Tree(new).difference(9, new).updates == ()
