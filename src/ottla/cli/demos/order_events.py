"""The story of order-events: three brokers, a shop that never stops, and a leader that is killed.

Everything is real: brokers, ZooKeeper and the members of the group are processes, the leader dies
of SIGKILL, and the figures compare what the producer was told with what the members showed. An
order that was acknowledged and never delivered makes the story a Failure.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ottla.cli.demos.member import MemberProcess
from ottla.cli.demos.orders import Orders
from ottla.cli.demos.own_cluster import POLL_S, STEP_SECONDS_MAX, OwnCluster, until_true
from ottla.cli.demos.teller import Teller
from ottla.cli.failure import Failure
from ottla.client.admin_values import PartitionDescription

TOPIC = "order-events"
GROUP = "shipping"
PARTITIONS = 3
MEMBERS = ("anna", "ben", "cleo")
ORDERS_PER_S = 60.0
ORDERS_BEFORE = 100
ORDERS_AFTER = 200
MEMBER_SETTINGS = {
    "heartbeat.interval.ms": "500",
    # Nobody here dies but a broker; a member that is waiting for one must not be taken for dead.
    "session.timeout.ms": "45000",
    "metadata.max.age.ms": "1000",
    "retry.backoff.max.ms": "200",
    "reconnect.backoff.max.ms": "500",
}


class OrderEvents:
    def __init__(self, teller: Teller, cluster: OwnCluster) -> None:
        self._teller = teller
        self._cluster = cluster
        self._start_s = time.monotonic()
        self._members: list[MemberProcess] = []
        self._orders: Orders | None = None
        self._killed = 0
        self._acked_before = 0

    def tell(self) -> None:
        chapters = [
            ("Three brokers and a ZooKeeper", self._brokers),
            ("A topic with three partitions, each on all three", self._topic),
            ("Orders come in, a group of three ships them", self._business),
            ("The leader of partition 0 is killed", self._kill),
            ("Business goes on", self._goes_on),
            ("The broker comes back and catches up", self._comes_back),
            ("The count", self._count),
        ]
        for number, (title, chapter) in enumerate(chapters, 1):
            self._teller.chapter(number, title)
            chapter()

    def close(self) -> None:
        if self._orders is not None:
            self._orders.stop()
        for member in self._members:
            member.close()

    # ----------------------------------------------------------------------------- the chapters

    def _brokers(self) -> None:
        self._teller.command("ottla cluster up")
        for line in self._cluster.said:
            self._teller.quote("cluster", line.partition("; ")[0])

    def _topic(self) -> None:
        self._teller.command(f"ottla topic create {TOPIC} --replica-assignment 1:2:3,2:3:1,3:1:2")
        self._cluster.create_topic(TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        until_true(
            lambda: all(one.leader is not None for one in self._cluster.partitions(TOPIC)),
            "leaders",
        )
        self._show_partitions()

    def _business(self) -> None:
        settings = self._write_settings()
        arguments = [TOPIC, "--group", GROUP, "--follow"]
        self._teller.command(f"ottla consume {' '.join(arguments)}    (three times)")
        where = ["-b", self._cluster.bootstrap, "--command-config", str(settings)]
        self._members = [MemberProcess(name, [*arguments, *where]) for name in MEMBERS]
        with self._teller.waiting("the group shares the partitions"):
            self._until(lambda: all(len(one.owned) == 1 for one in self._members), "three shares")
        for member in self._members:
            self._teller.quote(member.name, f"has {', '.join(sorted(member.owned))}")
        self._teller.say(f"a producer with acks=all sends {ORDERS_PER_S:.0f} orders a second")
        self._orders = Orders(self._cluster.bootstrap, TOPIC, orders_per_s=ORDERS_PER_S)
        self._orders.start()
        self._until(lambda: self._delivered() >= ORDERS_BEFORE, "the first orders")
        self._show_business()

    def _kill(self) -> None:
        before = self._cluster.partitions(TOPIC)[0]
        if before.leader is None:
            raise Failure(f"{TOPIC}-0 has no leader to kill")
        self._killed = before.leader
        assert self._orders is not None
        self._acked_before = self._orders.acked_count
        self._teller.command(f"ottla cluster kill {self._killed}")
        self._cluster.tell("kill", self._killed)
        killed_s = time.monotonic()
        with self._teller.waiting(
            f"broker {self._killed} is gone; the others wait for the end of its session"
        ):
            self._until(self._is_elected, "an election")
        now = self._cluster.partitions(TOPIC)[0]
        self._teller.verdict(
            f"{TOPIC}-0: leader {before.leader} -> {now.leader}, epoch {before.leader_epoch} ->"
            f" {now.leader_epoch}, in sync {_listed(now.in_sync)};"
            f" {time.monotonic() - killed_s:.1f} s after the kill"
        )
        self._show_partitions()

    def _is_elected(self) -> bool:
        partitions = self._cluster.partitions(TOPIC)
        return all(
            one.leader not in (None, self._killed) and self._killed not in one.in_sync
            for one in partitions
        )

    def _goes_on(self) -> None:
        target = self._delivered() + ORDERS_AFTER
        with self._teller.waiting("producer and members find the new leaders by themselves"):
            self._until(lambda: self._delivered() >= target, "orders after the election")
        self._show_business()

    def _comes_back(self) -> None:
        self._teller.command(f"ottla cluster start {self._killed}")
        self._cluster.tell("start", self._killed)
        assert self._orders is not None
        missed = self._orders.acked_count - self._acked_before
        with self._teller.waiting(f"it copies what it missed, about {missed} orders"):
            self._until(
                lambda: all(len(one.in_sync) == 3 for one in self._cluster.partitions(TOPIC)),
                "full in-sync sets",
            )
        self._show_partitions()
        self._teller.say("it follows what it led before, until the preferred leaders are restored")

    def _count(self) -> None:
        assert self._orders is not None
        self._orders.stop()
        orders = self._orders
        with self._teller.waiting("the producer has stopped; the members ship what is left"):
            self._until(lambda: orders.acked.keys() <= self._shipped().keys(), "the last orders")
        for member in self._members:
            member.stop()
        shipped = self._shipped()
        lost = len(orders.acked.keys() - shipped.keys())
        again = sum(count > 1 for count in shipped.values())
        doubled = len(self._places()) - len(shipped)
        for member in self._members:
            self._teller.quote(member.name, f"shipped {len(member.deliveries)}")
        self._teller.verdict(
            f"in the log twice: {doubled}; shipped again after a rebalance: {again}"
        )
        self._teller.last_line(
            f"{TOPIC}: acknowledged {len(orders.acked)}, delivered {len(shipped)}, lost {lost},"
            f" failed {len(orders.failed)}; gap {orders.longest_gap_s.get(0, 0.0):.1f} s;"
            f" {time.monotonic() - self._start_s:.1f} s"
        )
        if lost or doubled:
            raise Failure(f"{lost} orders were lost and {doubled} are in the log twice")

    # --------------------------------------------------------------------------------- helpers

    def _write_settings(self) -> Path:
        path = self._cluster.directory / "member.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in MEMBER_SETTINGS.items()))
        return path

    def _shipped(self) -> Counter[str]:
        return Counter(one.value for member in self._members for one in member.deliveries)

    def _places(self) -> set[tuple[int, int]]:
        return {
            (one.partition, one.offset) for member in self._members for one in member.deliveries
        }

    def _delivered(self) -> int:
        return sum(len(member.deliveries) for member in self._members)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Listens to the members meanwhile."""
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while not holds():
            if time.monotonic() > deadline:
                raise Failure(f"the demo waited in vain for {what}")
            for member in self._members:
                member.catch_up(POLL_S / 10)
                member.check_is_there()
            if not self._members:
                time.sleep(POLL_S)

    def _show_business(self) -> None:
        assert self._orders is not None
        self._teller.quote("producer", f"{self._orders.acked_count} orders acknowledged")
        for member in self._members:
            last = member.deliveries[-1].value if member.deliveries else "nothing yet"
            self._teller.quote(member.name, f"{len(member.deliveries)} shipped, last {last}")

    def _show_partitions(self) -> None:
        for one in self._cluster.partitions(TOPIC):
            self._teller.say(_partition_line(one))


def _partition_line(one: PartitionDescription) -> str:
    leader = "none" if one.leader is None else one.leader
    return (
        f"{TOPIC}-{one.partition}: leader {leader}, epoch {one.leader_epoch},"
        f" replicas {_listed(one.replicas)}, in sync {_listed(one.in_sync)}"
    )


def _listed(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))
