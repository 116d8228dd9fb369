"""Goal: `ottla reassign` moves replicas while clients go on, shows and cancels moves, and its
throttle is gone when it has done its work.
Method: the command in this process, four brokers of `ottla.testing` over real sockets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client import Admin
from ottla.testing import Cluster
from tests.cluster.replicated import TOPIC, Replicated
from tests.cluster.waiting import until
from tests.compat.command import Ottla

THROTTLES = ("throttled.rate", "throttled.replicas")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(4) as cluster:
        yield cluster


@pytest.fixture
def ottla(cluster: Cluster) -> Iterator[Ottla]:
    ottla = Ottla(cluster.bootstrap)
    yield ottla
    ottla("topic", "delete", TOPIC, "--if-exists", "--yes")


def create(ottla: Ottla, replicas: str) -> None:
    done = ottla("topic", "create", TOPIC, "--replica-assignment", replicas)
    assert done.code == 0, done.err


def replicas_of(ottla: Ottla) -> list[list[int]]:
    (described,) = ottla("topic", "describe", TOPIC, "-o", "json").document()
    return [one["replicas"] for one in described["partitions"]]


def throttles(ottla: Ottla) -> set[str]:
    """Settings of a throttle that are there, of the topic and of a broker that takes part."""
    return {
        one["name"]
        for which in (("--topic", TOPIC), ("--broker", "1"))
        for one in ottla("config", "describe", *which, "-o", "json").document()
        if one["source"].startswith("DYNAMIC") and one["name"].endswith(THROTTLES)
    }


def bytes_at(cluster: Cluster, broker: int) -> int:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        directories = admin.describe_log_dirs()[broker]
    return sum(
        one.size_bytes for held in directories for one in held.replicas if one.topic == TOPIC
    )


def test_a_topic_moves_to_other_brokers(cluster: Cluster, ottla: Ottla, tmp_path: Path) -> None:
    create(ottla, "1:2:3,1:2:3")
    orders = Replicated(cluster)
    producer = orders.producer()
    orders.send(producer, 200)
    orders.flush(producer)
    made = ottla("reassign", "generate", TOPIC, "--brokers", "2,3,4")
    assert made.code == 0, made.err
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_bytes(made.out)
    orders.send(producer, 200)
    moved = ottla(
        *("reassign", "execute", str(plan), "--throttle", "100000000", "--before", str(back))
    )
    assert (moved.code, moved.out) == (0, b"moved 2 partitions\n"), moved.err
    orders.send(producer, 200)
    orders.flush(producer)
    until(lambda: all(set(one) == {2, 3, 4} for one in replicas_of(ottla)), "moved for all")
    assert not orders.failed
    assert len(orders.acked) == 600
    verified = ottla("reassign", "verify", str(plan), "-o", "json").document()
    assert [one["state"] for one in verified] == ["done", "done"]
    until(lambda: ottla("reassign", "status", "-o", "json").document() == [], "nothing moves")
    until(lambda: not throttles(ottla), "no throttle")
    # And back, from the plan that was written beforehand, given on standard input.
    assert ottla("reassign", "execute", "-", stdin=back.read_bytes()).code == 0
    until(lambda: replicas_of(ottla) == [[1, 2, 3], [1, 2, 3]], "as before")


def a_move_of_three_megabytes(cluster: Cluster, ottla: Ottla, directory: Path) -> Path:
    """From broker 2 to broker 3, of which one fetch does not take all."""
    create(ottla, "1:2")
    orders = Replicated(cluster)
    producer = orders.producer(**{"compression.type": "none"})
    for number in range(300):
        producer.produce(TOPIC, f"{number}".encode() + bytes(10_000), partition=0)
    orders.flush(producer)
    plan = directory / "plan.json"
    plan.write_text(
        f'{{"partitions": [{{"topic": "{TOPIC}", "partition": 0, "replicas": [1, 3]}}]}}'
    )
    return plan


def test_a_move_that_was_held_back_goes_on_when_the_throttle_is_raised(
    cluster: Cluster, ottla: Ottla, tmp_path: Path
) -> None:
    plan = a_move_of_three_megabytes(cluster, ottla, tmp_path)
    begun = ottla("reassign", "execute", str(plan), "--throttle", "1", "--no-wait")
    assert begun.code == 0, begun.err
    until(lambda: bytes_at(cluster, 3) > 0, "the first fetch")
    assert replicas_of(ottla) != [[1, 3]]
    rates = [f"{which}.replication.throttled.rate=100000000" for which in ("leader", "follower")]
    for broker in ("1", "2", "3"):
        given = (word for rate in rates for word in ("--config", rate))
        raised = ottla("config", "alter", "--broker", broker, *given)
        assert raised.code == 0, raised.err
    until(lambda: replicas_of(ottla) == [[1, 3]], "moved")
    assert ottla("reassign", "verify", str(plan)).code == 0
    until(lambda: not throttles(ottla), "no throttle")


def test_a_move_is_followed_throttled_and_cancelled(
    cluster: Cluster, ottla: Ottla, tmp_path: Path
) -> None:
    plan = a_move_of_three_megabytes(cluster, ottla, tmp_path)
    # At one byte a second it is under way for as long as a test could take.
    begun = ottla("reassign", "execute", str(plan), "--throttle", "1", "--no-wait")
    assert (begun.code, begun.out) == (0, b"began to move 1 partition\n"), begun.err
    until(lambda: ottla("reassign", "status", "-o", "json").document() != [], "a move")
    (move,) = ottla("reassign", "status", "-o", "json").document()
    assert (move["adding"], move["removing"]) == ([3], [2])
    assert "REMOVING" in ottla("reassign", "status").out.decode()
    (verified,) = ottla("reassign", "verify", str(plan), "-o", "json").document()
    assert verified["state"] == "moving"
    until(lambda: len(throttles(ottla)) == 4, "a throttle")
    cancelled = ottla("reassign", "cancel", str(plan))
    assert (cancelled.code, cancelled.out) == (0, b"cancelled 1 move\n"), cancelled.err
    until(lambda: replicas_of(ottla) == [[1, 2]], "as before")
    (verified,) = ottla("reassign", "verify", str(plan), "-o", "json").document()
    assert verified["state"] == "elsewhere"
    until(lambda: not throttles(ottla), "no throttle")
    assert ottla("reassign", "cancel").out == b"cancelled 0 moves\n"


def test_what_can_not_be_done_is_told_in_one_line(ottla: Ottla, tmp_path: Path) -> None:
    create(ottla, "1:2")
    unknown = f'{{"partitions": [{{"topic": "{TOPIC}", "partition": 0, "replicas": [1, 77]}}]}}'
    missing = f'{{"partitions": [{{"topic": "{TOPIC}", "partition": 9, "replicas": [1]}}]}}'
    for document in (unknown, missing, "nonsense"):
        refused = ottla("reassign", "execute", "-", stdin=document.encode())
        assert (refused.code, refused.err.count("\n")) == (1, 1), refused.err
    for arguments in ((TOPIC, "--brokers", "1,99"), ("no-such-topic",)):
        refused = ottla("reassign", "generate", *arguments)
        assert (refused.code, refused.err.count("\n")) == (1, 1), refused.err
    assert ottla("reassign", "execute", str(tmp_path / "none.json")).code == 1
    assert replicas_of(ottla) == [[1, 2]]
