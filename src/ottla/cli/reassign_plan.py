"""Where replicas shall be: plans in Kafka's JSON, and a plan that spreads them evenly. Pure.

A generated plan moves as little as it can: a replica goes only if its broker is not among the
wanted ones, or has more than its share. Racks are kept apart where brokers in other racks are left.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.cli.failure import Failure

Plan = dict[TopicPartition, list[int]]
"""The replicas of each partition, the preferred leader first."""


def parse_plan(text: str, where: str) -> Plan:
    try:
        document = json.loads(text)
        plan = {(one["topic"], one["partition"]): one["replicas"] for one in document["partitions"]}
    except ValueError as cause:
        raise Failure(f"{where} is no plan of a reassignment: no JSON: {cause}") from cause
    except (KeyError, TypeError) as cause:
        raise Failure(
            f"{where} is no plan of a reassignment: it should have a list of partitions, each with"
            " topic, partition and replicas"
        ) from cause
    for (topic, partition), replicas in plan.items():
        if not _is_sound(topic, partition, replicas):
            raise Failure(f"{where} has an entry that makes no sense: {topic}-{partition}")
    if len(plan) < len(document["partitions"]):
        raise Failure(f"{where} names a partition twice")
    if not plan:
        raise Failure(f"{where} has no partition in it")
    return plan


def _is_sound(topic: Any, partition: Any, replicas: Any) -> bool:
    return (
        isinstance(topic, str)
        and isinstance(partition, int)
        and partition >= 0
        and isinstance(replicas, list)
        and bool(replicas)
        and all(isinstance(one, int) and one >= 0 for one in replicas)
        and len(set(replicas)) == len(replicas)
    )


def plan_document(plan: Plan) -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for (topic, partition), replicas in sorted(plan.items())
        ],
    }


def spread(current: Plan, racks: Mapping[int, str | None], factor: int | None) -> Plan:
    """`racks` has the brokers to use; `factor` None keeps the number of replicas."""
    for (topic, partition), replicas in current.items():
        wanted = factor or len(replicas)
        if wanted > len(racks):
            raise Failure(
                f"{topic}-{partition} shall have {wanted} replicas on {len(racks)} brokers"
            )
    spreading = _Spreading(racks)
    for place, replicas in sorted(current.items()):
        spreading.keep(place, replicas, factor or len(replicas))
    for place in sorted(current):
        spreading.fill(place, factor or len(current[place]))
    spreading.even_out()
    return {place: spreading.led(place, current[place]) for place in sorted(current)}


class _Spreading:
    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self._racks = racks
        self._load: Counter[int] = Counter(dict.fromkeys(racks, 0))
        self._leads: Counter[int] = Counter(dict.fromkeys(racks, 0))
        self._plan: Plan = {}

    def keep(self, place: TopicPartition, replicas: Sequence[int], factor: int) -> None:
        kept = [one for one in replicas if one in self._racks][:factor]
        self._plan[place] = kept
        self._load.update(kept)

    def fill(self, place: TopicPartition, factor: int) -> None:
        held = self._plan[place]
        while len(held) < factor:
            free = [one for one in self._racks if one not in held]
            best = min(free, key=lambda one: (self._crowd(one, held), self._load[one], one))
            held.append(best)
            self._load[best] += 1

    def _crowd(self, broker: int, others: Sequence[int]) -> int:
        """How many of the others share the broker's rack; who has no rack shares none."""
        rack = self._racks[broker]
        return sum(rack is not None and self._racks[one] == rack for one in others)

    def even_out(self) -> None:
        """From the fullest to the emptiest until they differ by one at most, or no move helps."""
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        for target in sorted(self._load, key=lambda one: (self._load[one], one)):
            for source in sorted(self._load, key=lambda one: (-self._load[one], one)):
                if self._load[source] - self._load[target] < 2:
                    break
                for held in self._plan.values():
                    if self._may_move(held, source, target):
                        held[held.index(source)] = target
                        self._load[source] -= 1
                        self._load[target] += 1
                        return True
        return False

    def _may_move(self, held: Sequence[int], source: int, target: int) -> bool:
        if source not in held or target in held:
            return False
        others = [one for one in held if one != source]
        return self._crowd(target, others) <= self._crowd(source, others)

    def led(self, place: TopicPartition, before: Sequence[int]) -> list[int]:
        """The replica that is preferred least often comes first; who was first, if it may stay."""
        held = self._plan[place]
        first = min(held, key=lambda one: (self._leads[one], one != before[0], held.index(one)))
        self._leads[first] += 1
        return [first, *(one for one in held if one != first)]
