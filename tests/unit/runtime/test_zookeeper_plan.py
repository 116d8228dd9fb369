"""The steps of a multi: in an order that ZooKeeper takes, whatever the order of the decision."""

from __future__ import annotations

import pytest

from ottla.base.errors import InvariantError
from ottla.metadata import paths
from ottla.metadata.store import ABSENT, Check, Gone, Node, Operation, Write
from ottla.runtime.zookeeper_plan import (
    CHECK,
    CREATE,
    DECIDED,
    DELETE,
    PARENTS,
    READ,
    SET,
    Plan,
    plan_commit,
    versions_to_read,
)
from ottla.runtime.zookeeper_tree import Tree

TOPIC = paths.topic("t")
STATES = [paths.partition_state("t", index) for index in range(2)]
NAMES = {CHECK: "check", DELETE: "delete", CREATE: "create", SET: "set"}


def plan(
    operations: list[Operation],
    *,
    there: dict[str, int] | None = None,
    strays: tuple[str, ...] = (),
) -> Plan:
    nodes = {path: Node(b"", version, 1) for path, version in (there or {}).items()}
    read = {path: (there or {}).get(path, ABSENT) for path in versions_to_read(operations)}
    return plan_commit(operations, read, Tree(nodes), strays)


def story(made: Plan) -> list[str]:
    return [f"{NAMES[step.action]} {step.path}" for step in made.steps]


def test_parents_come_before_what_is_below_them() -> None:
    made = plan([Write(STATES[0], b"s", ABSENT), Write(TOPIC, b"t", ABSENT)])
    assert story(made) == [
        "create /brokers",
        "create /brokers/topics",
        "create /brokers/topics/t",
        "create /brokers/topics/t/partitions",
        "create /brokers/topics/t/partitions/0",
        "create /brokers/topics/t/partitions/0/state",
    ]
    assert [step.purpose for step in made.steps] == [PARENTS, PARENTS, DECIDED, PARENTS, PARENTS, 0]
    assert [entry.path for entry in made.entries] == [STATES[0], TOPIC]


def test_what_is_below_goes_before_its_parents_and_idle_parents_go_too() -> None:
    there = {TOPIC: 3, STATES[0]: 1, STATES[1]: 0}
    made = plan([Write(TOPIC, None, 3), *(Write(path, None, None) for path in STATES)], there=there)
    assert story(made) == [
        "delete /brokers/topics/t/partitions/0/state",
        "delete /brokers/topics/t/partitions/1/state",
        "delete /brokers/topics/t/partitions/0",
        "delete /brokers/topics/t/partitions/1",
        "delete /brokers/topics/t/partitions",
        "delete /brokers/topics/t",
    ]
    assert [entry.version for entry in made.entries] == [4, 2, 1]


def test_a_parent_that_gets_another_child_stays() -> None:
    made = plan(
        [Write(STATES[0], None, 0), Write(STATES[1], b"", ABSENT)], there={TOPIC: 0, STATES[0]: 0}
    )
    assert story(made) == [
        "delete /brokers/topics/t/partitions/0/state",
        "delete /brokers/topics/t/partitions/0",
        "create /brokers/topics/t/partitions/1",
        "create /brokers/topics/t/partitions/1/state",
    ]


def test_the_highest_parents_stay() -> None:
    assert story(plan([Write(TOPIC, None, 0)], there={TOPIC: 0})) == [f"delete {TOPIC}"]


def test_absence_is_shown_by_making_and_removing() -> None:
    path = paths.broker_id(1)
    made = plan([Gone(path), Check("/x", ABSENT)], there={paths.broker_id(2): 0})
    assert story(made) == [f"create {path}", f"delete {path}", "create /x", "delete /x"]
    assert made.entries == [(path, None, 0)]


def test_nothing_is_below_a_parent_that_is_not_there() -> None:
    """And nothing is left behind by looking."""
    made = plan([Gone(STATES[0]), Write(STATES[1], None, None)], there={"/brokers/topics/u": 0})
    assert story(made) == [f"create {TOPIC}", f"delete {TOPIC}"]
    assert {step.purpose for step in made.steps} == {PARENTS}


def test_versions_are_named_in_every_step() -> None:
    made = plan(
        [Write("/a", b"1", 4), Write("/b", b"1", None), Check("/c", 7), Write("/d", b"1", None)],
        there={"/b": 2},
    )
    assert [(NAMES[step.action], step.path, step.version, step.purpose) for step in made.steps] == [
        ("check", "/c", 7, DECIDED),
        ("set", "/a", 4, DECIDED),
        ("set", "/b", 2, READ),
        ("create", "/d", ABSENT, READ),
    ]
    assert [entry.version for entry in made.entries] == [5, 3, 0]


def test_a_node_is_made_anew() -> None:
    path = paths.broker_id(1)
    made = plan([Write(path, None, 5), Write(path, b"new", None)], there={path: 5})
    assert story(made) == [f"delete {path}", f"create {path}"]
    assert made.steps[1].ephemeral
    assert made.entries == [(path, None, 6), (path, b"new", 0)]


@pytest.mark.parametrize("second", [Write("/a", b"2", None), Write("/a", None, None)])
def test_a_node_is_written_once(second: Write) -> None:
    with pytest.raises(InvariantError):
        plan([Write("/a", b"1", ABSENT), second])


def test_liveness_nodes_end_with_their_session_and_no_others() -> None:
    wanted = [paths.CONTROLLER, paths.broker_id(3), paths.broker_epoch(3), paths.CONTROLLER_EPOCH]
    made = plan([Write(path, b"", ABSENT) for path in wanted])
    ephemeral = {step.path for step in made.steps if step.ephemeral}
    assert ephemeral == {paths.CONTROLLER, paths.broker_id(3)}


def test_strays_go_with_what_is_above_them() -> None:
    strays = (f"{TOPIC}/partitions", f"{TOPIC}/partitions/7")
    made = plan([Write(TOPIC, None, 0)], there={TOPIC: 0}, strays=strays)
    assert story(made) == [f"delete {strays[1]}", f"delete {strays[0]}", f"delete {TOPIC}"]
