"""The story of acks and unclean election: what each choice loses when the wrong broker dies.

Two disasters, each for several topics at once. In the first the leader alone has the last orders
when it is killed; in the second it was the only one in sync. Brokers are frozen and killed by the
commands that people have for it, and an order counts as lost if the producer was told that it is
safe and no consumer can read it afterwards. Orders lost where the settings forbid it make the story
a Failure.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from ottla.base.errors import OttlaError
from ottla.cli.demos.orders import Orders, read_all
from ottla.cli.demos.own_cluster import OwnCluster, until_true
from ottla.cli.demos.teller import Teller
from ottla.cli.failure import Failure

ORDERS = 100
LEADER, OTHERS = 1, (2, 3)
REFUSAL_MS = 4_000


@dataclass(slots=True)
class Case:
    """One topic; `may_lose` says whether its settings allow a loss in this disaster."""

    topic: str
    choice: str
    acks: str
    configs: dict[str, str]
    may_lose: bool
    delivery_timeout_ms: int = 110_000
    orders: Orders | None = None
    lost: int = 0
    back_after_s: float | None = None

    @property
    def promised(self) -> set[str]:
        assert self.orders is not None
        return set(self.orders.acked)


def first_cases() -> list[Case]:
    return [
        Case("acks-0", "acks=0", "0", {}, may_lose=True),
        Case("acks-1", "acks=1", "1", {}, may_lose=True),
        Case("acks-all", "acks=all", "all", {}, may_lose=False),
    ]


def second_cases() -> list[Case]:
    alone = {"min.insync.replicas": "1"}
    unclean = {"unclean.leader.election.enable": "true"}
    return [
        Case(
            "unclean-on",
            "acks=all, one in sync is enough, unclean election",
            "all",
            alone | unclean,
            may_lose=True,
        ),
        Case(
            "unclean-off",
            "acks=all, one in sync is enough, no unclean election",
            "all",
            alone,
            may_lose=False,
        ),
        Case(
            "two-in-sync",
            "acks=all, min.insync.replicas=2",
            "all",
            {"min.insync.replicas": "2"},
            may_lose=False,
            delivery_timeout_ms=REFUSAL_MS,
        ),
    ]


class Acks:
    def __init__(self, teller: Teller, cluster: OwnCluster) -> None:
        self._teller = teller
        self._cluster = cluster
        self._start_s = time.monotonic()
        self._cases = {"first": first_cases(), "second": second_cases()}

    def tell(self) -> None:
        self._teller.chapter(1, "Three brokers, and six topics with a choice each")
        self._create()
        self._teller.chapter(2, "The leader dies with orders that nobody has copied")
        self._first_disaster()
        self._teller.chapter(3, "The last broker in sync dies")
        self._second_disaster()
        self._teller.chapter(4, "The count")
        self._count()

    def close(self) -> None:
        for case in self._all():
            if case.orders is not None:
                case.orders.stop()

    def _all(self) -> list[Case]:
        return [case for cases in self._cases.values() for case in cases]

    # ----------------------------------------------------------------------------- the chapters

    def _create(self) -> None:
        for case in self._all():
            self._cluster.create_topic(case.topic, [[LEADER, *OTHERS]], case.configs)
            self._teller.say(f"{case.topic}: {case.choice}")
        for case in self._all():
            self._until_led(case, LEADER)
            self._open(case)

    def _open(self, case: Case) -> None:
        """One order is everywhere before anything happens, and the producer knows its way."""
        case.orders = orders = Orders(
            self._cluster.bootstrap,
            case.topic,
            acks=case.acks,
            delivery_timeout_ms=case.delivery_timeout_ms,
        )
        orders.send(0)

        def opened() -> bool:
            if orders.failed:  # its patience is for the story, not for a slow machine
                orders.failed.clear()
                orders.send(0)
            return orders.acked_count == 1

        until_true(opened, f"an order in {case.topic}")

    def _first_disaster(self) -> None:
        for broker in OTHERS:
            self._do("pause", broker)
        zero, one, everybody = (self._orders(case) for case in self._cases["first"])
        # A question of theirs is waiting at the leader, and its answer is on the way to them with
        # whatever comes first: one order, that is.
        one.send(0)
        until_true(lambda: one.acked_count == 2, "an acknowledgement by the leader alone")
        for orders in (zero, one, everybody):
            for _ in range(ORDERS):
                orders.send(0)
        until_true(lambda: zero.acked_count == 1 + ORDERS, "orders sent with acks=0")
        until_true(lambda: one.acked_count == 2 + ORDERS, "acknowledgements with acks=1")
        for case in self._cases["first"]:
            orders = self._orders(case)
            self._teller.quote(case.choice, f"{orders.acked_count} of {orders.sent} promised")
        self._do("kill", LEADER)
        for broker in OTHERS:
            self._do("resume", broker)
        with self._teller.waiting("the others elect a leader of what they have"):
            for case in self._cases["first"]:
                self._until_led(case, *OTHERS)
                self._orders(case).stop()
        for case in self._cases["first"]:
            self._judge(case)
        self._do("start", LEADER)

    def _second_disaster(self) -> None:
        cases = self._cases["second"]
        with self._teller.waiting("everybody catches up, and broker 1 leads again"):
            until_true(lambda: all(self._in_sync(one) == 3 for one in cases), "full in-sync sets")
            self._elect(cases)
        for broker in OTHERS:
            self._do("stop", broker)
        until_true(lambda: all(self._in_sync(one) == 1 for one in cases), "one in sync")
        for case in cases:
            for _ in range(ORDERS):
                self._orders(case).send(0)
            self._orders(case).stop()
            acked = self._orders(case).acked_count - 1
            refused = len(self._orders(case).failed)
            self._teller.quote(case.choice, f"{acked} acknowledged, {refused} refused")
        self._do("kill", LEADER)
        killed_s = time.monotonic()
        for broker in OTHERS:
            self._do("start", broker)
        unclean, clean, _ = cases
        with self._teller.waiting("2 and 3 are back, but neither has the last orders"):
            self._until_led(unclean, *OTHERS)
        unclean.back_after_s = time.monotonic() - killed_s
        self._teller.quote(unclean.topic, f"led again after {unclean.back_after_s:.1f} s")
        waits = "waits for broker 1" if self._leader(clean) is None else "has a leader"
        self._teller.quote(clean.topic, waits)
        self._do("start", LEADER)
        with self._teller.waiting("broker 1 is back"):
            for case in cases:
                self._until_led(case, LEADER, *OTHERS)
        clean.back_after_s = time.monotonic() - killed_s
        for case in cases:
            self._judge(case)

    def _elect(self, cases: list[Case]) -> None:
        """Back to the preferred leader, as it would come by itself within minutes."""

        def led() -> bool:
            # Whoever is asked may not know yet that all are in sync; then it is asked again.
            with contextlib.suppress(OttlaError):
                self._cluster.admin.elect_leaders([(case.topic, 0) for case in cases])
            return all(self._leader(case) == LEADER for case in cases)

        until_true(led, "the preferred leader")

    def _judge(self, case: Case) -> None:
        found = read_all(self._cluster.bootstrap, case.topic, 1)
        case.lost = len(case.promised - found.keys())
        self._teller.verdict(f"{case.choice}: lost {case.lost} of {len(case.promised)}")

    def _count(self) -> None:
        for case in self._all():
            acked, refused = len(case.promised), len(self._orders(case).failed)
            back = "" if case.back_after_s is None else f", back after {case.back_after_s:.1f} s"
            self._teller.say(
                f"{case.choice}: promised {acked}, refused {refused}, lost {case.lost}{back}"
            )
        lost = {case.topic: case.lost for case in self._all()}
        figures = ", ".join(f"{topic} {count}" for topic, count in lost.items())
        self._teller.last_line(f"acks: lost {figures}; {time.monotonic() - self._start_s:.1f} s")
        for case in self._all():
            if case.lost and not case.may_lose:
                raise Failure(f"{case.choice} lost {case.lost} orders, which it must not")

    # --------------------------------------------------------------------------------- helpers

    def _do(self, command: str, broker_id: int) -> None:
        self._teller.command(f"ottla cluster {command} {broker_id}")
        self._cluster.tell(command, broker_id)

    def _orders(self, case: Case) -> Orders:
        assert case.orders is not None
        return case.orders

    def _leader(self, case: Case) -> int | None:
        return self._cluster.partitions(case.topic)[0].leader

    def _until_led(self, case: Case, *by: int) -> None:
        until_true(lambda: self._leader(case) in by, f"a leader of {case.topic}")

    def _in_sync(self, case: Case) -> int:
        return len(self._cluster.partitions(case.topic)[0].in_sync)
