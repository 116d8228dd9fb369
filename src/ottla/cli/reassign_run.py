"""Reassignments at a cluster: begin, follow, throttle, cancel.

What is under way is known to the cluster alone; nothing is kept here, so that any command may be
ended at any moment and the moves go on. A throttle stays until it is taken away: by the command
that waited for the end, by `verify` once all is done, or by `cancel`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from ottla.base.errors import ConfigError, OttlaError
from ottla.base.ids import TopicPartition
from ottla.cli.addresses import check_anybody_listens, parse_addresses
from ottla.cli.failure import Failure
from ottla.cli.reassign_plan import Plan
from ottla.client import Admin
from ottla.client.admin_values import Reassignment
from ottla.client.errors import BrokerError

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LOOK_EVERY_S = 0.25
TIMEOUT_S = 5.0
IDLE_SECONDS_MAX = 15.0


class Progress(NamedTuple):
    """Of the replicas that are on their way: bytes there, bytes in all, partitions left."""

    copied_bytes: int
    total_bytes: int
    left: int


@contextmanager
def reassigner(bootstrap: str, settings: Mapping[str, str]) -> Iterator[Reassigner]:
    check_anybody_listens(parse_addresses(bootstrap), TIMEOUT_S)
    try:
        with Admin({**settings, "bootstrap.servers": bootstrap}) as admin:
            yield Reassigner(admin)
    except ConfigError as cause:
        raise Failure(f"bad client settings: {cause}") from cause
    except OttlaError as cause:
        raise Failure(str(cause)) from cause


class Reassigner:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    # -- what is where ----------------------------------------------------------------------

    def current(self, topics: Iterable[str]) -> Plan:
        return {
            (topic.name, partition.partition): partition.replicas
            for topic in self._admin.describe_topics(list(topics))
            for partition in topic.partitions
        }

    def racks(self) -> dict[int, str | None]:
        return {one.node_id: one.rack for one in self._admin.describe_cluster().brokers}

    def under_way(self) -> dict[TopicPartition, Reassignment]:
        return self._admin.list_reassignments()

    # -- doing ------------------------------------------------------------------------------

    def begin(self, plan: Plan, throttle_bytes_per_s: int | None) -> Plan:
        """Says where replicas were before; all of the plan begins, or a Failure says what did."""
        before = self._known(plan)
        if throttle_bytes_per_s is not None:
            self._throttle(plan, before, throttle_bytes_per_s)
        _raise_first(self._admin.alter_reassignments(plan), "reassignment")
        return before

    def _known(self, plan: Plan) -> Plan:
        current = self.current(dict.fromkeys(topic for topic, _ in plan))
        missing = [
            f"{topic}-{partition}" for topic, partition in plan if (topic, partition) not in current
        ]
        if missing:
            raise Failure(f"there is no partition {missing[0]}")
        return {place: current[place] for place in plan}

    def cancel(self, places: Iterable[TopicPartition] | None) -> list[TopicPartition]:
        """Those that were under way and go back now; all of them, or of those named."""
        wanted = None if places is None else set(places)
        found = [one for one in self.under_way() if wanted is None or one in wanted]
        if found:
            _raise_first(self._admin.alter_reassignments(dict.fromkeys(found)), "cancellation")
        return found

    def _throttle(self, plan: Plan, before: Plan, bytes_per_s: int) -> None:
        """Whoever has a replica sends within the rate, whoever gets one receives within it."""
        rates = {LEADER_RATE: str(bytes_per_s), FOLLOWER_RATE: str(bytes_per_s)}
        brokers = {one for some in (plan, before) for replicas in some.values() for one in replicas}
        for broker in sorted(brokers & self.racks().keys()):
            self._admin.alter_configs("broker", str(broker), rates)
        for topic in dict.fromkeys(topic for topic, _ in plan):
            mine = [place for place in plan if place[0] == topic]
            sending = [f"{place[1]}:{one}" for place in mine for one in before[place]]
            receiving = [
                f"{place[1]}:{one}"
                for place in mine
                for one in plan[place]
                if one not in before[place]
            ]
            lists = {LEADER_REPLICAS: ",".join(sending), FOLLOWER_REPLICAS: ",".join(receiving)}
            self._admin.alter_configs("topic", topic, lists)

    def unthrottle(self, topics: Iterable[str]) -> None:
        """Of these topics, and of all brokers that are there."""
        for topic in dict.fromkeys(topics):
            self._admin.alter_configs("topic", topic, {}, [LEADER_REPLICAS, FOLLOWER_REPLICAS])
        for broker in self.racks():
            self._admin.alter_configs("broker", str(broker), {}, [LEADER_RATE, FOLLOWER_RATE])

    # -- following --------------------------------------------------------------------------

    def follow(self, plan: Plan) -> Iterator[Progress]:
        """Until all replicas are where the plan wants them. Who is asked may not have heard of the
        beginning yet, so nothing under way is no end by itself; for long, somebody else ended it.
        """
        total = 0
        idle_since_s = time.monotonic()
        while True:
            moves = {one: move for one, move in self.under_way().items() if one in plan}
            copied, wanted = self._sizes(moves)
            # What has arrived is not listed any more: it counts in full.
            total = max(total, wanted)
            yield Progress(total - (wanted - copied), total, len(moves))
            if moves:
                idle_since_s = time.monotonic()
            elif self._known(plan) == plan:
                return
            elif time.monotonic() > idle_since_s + IDLE_SECONDS_MAX:
                raise Failure("the moves were ended by somebody else")
            time.sleep(LOOK_EVERY_S)

    def _sizes(self, moves: Mapping[TopicPartition, Reassignment]) -> tuple[int, int]:
        if not moves:
            return 0, 0
        held: dict[TopicPartition, dict[int, int]] = {}
        for broker, directories in self._admin.describe_log_dirs().items():
            for directory in directories:
                for one in directory.replicas:
                    if not one.is_future:
                        held.setdefault((one.topic, one.partition), {})[broker] = one.size_bytes
        copied = wanted = 0
        for place, move in moves.items():
            sizes = held.get(place, {})
            whole = max((sizes.get(one, 0) for one in move.replicas), default=0)
            wanted += whole * len(move.adding)
            copied += sum(min(sizes.get(one, 0), whole) for one in move.adding)
        return copied, wanted


def _raise_first(answers: Mapping[TopicPartition, BrokerError | None], what: str) -> None:
    refused = {place: error for place, error in answers.items() if error is not None}
    if refused:
        (topic, partition), error = next(iter(refused.items()))
        others = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
        begun = len(answers) - len(refused)
        raise Failure(f"{what} of {topic}-{partition}: {error}{others}; {begun} others have begun")
