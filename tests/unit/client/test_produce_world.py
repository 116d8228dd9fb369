"""An idempotent producer among brokers that misbehave: nothing twice, nothing lost that was
acknowledged, nothing out of order, and everybody gets an answer. Seeds make the histories.
"""

from __future__ import annotations

import itertools
import os
import random
from functools import partial
from typing import Any

import pytest

from ottla.base.errors import InvariantError
from ottla.client.delivery import outcome_of, place_of
from ottla.client.errors import BrokerError, BufferFullError, TimedOutError
from ottla.client.lanes import Lane
from ottla.client.nodes import DATA
from ottla.client.producer_batch import ProducerBatch
from ottla.client.producer_machine import ProducerMachine, size_of
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import read_settings
from ottla.protocol import error_codes as codes
from tests.seeds import seed_for
from tests.unit.client.produce_world import FAULTS, TOPIC, ProduceWorld

SEEDS = int(os.environ.get("OTTLA_PRODUCE_SEEDS", "40"))


class Story:
    """One producer, one seed: sends, waits, and compares what it was told with the logs."""

    def __init__(self, seed: int, fault_rate: float, **settings: Any) -> None:
        self.chance = random.Random(seed)
        read = read_settings(
            ProducerSettings, {"bootstrap.servers": "broker:9000,broker:9001"}, settings
        )
        numbers = itertools.count(1)
        chance = random.Random(seed + 1)
        self.world: ProduceWorld | None = None
        self.machine = ProducerMachine(
            read, chance.random, lambda: self.world.now_ms if self.world else 0.0
        )
        limit = self.chance.choice([600, 1 << 20])
        self.world = ProduceWorld(
            self.machine, seed + 2, fault_rate=fault_rate, batch_bytes_max=limit
        )
        self._numbers = numbers
        self.sent: list[tuple[int, Any, int]] = []  # (number, batch, index)
        self.told: dict[int, list[int]] = {}

    def send(self, partition: int) -> None:
        assert self.world is not None
        number = next(self._numbers)
        value = b"%d " % number + bytes(self.chance.choice([0, 5, 100]))

        def tell(metadata: Any, error: Any) -> None:
            self.told.setdefault(partition, []).append(number)

        machine = self.machine
        record = (TOPIC, value, None, None, partition, 1000)
        append = partial(machine.append, *record, on_delivery=tell)
        place = append()
        self.world.settle()
        while place is None:
            size, deadline_ms = size_of(value, None, None), self.world.now_ms + 60_000
            try:
                waiting = machine.in_time(append, TOPIC, partition, size, deadline_ms)
                place = self.world.run(waiting)
            except BufferFullError:
                continue
        self.sent.append((number, *place))

    def run(self, records: int) -> None:
        assert self.world is not None
        self.machine.sender.on_done = lambda batch: batch.run_callbacks()
        for _ in range(records):
            self.send(self.chance.randrange(3))
            if self.chance.random() < 0.1:
                self.world.advance(self.chance.choice([1, 10, 200, 1500]))
        self.world.advance(self.machine.settings.delivery_timeout_ms + 10_000)
        self._go_on_in_peace()

    def _go_on_in_peace(self) -> None:
        """Whatever happened, what is sent when all is well again arrives."""
        assert self.world is not None
        self.world.fault_rate = 0
        for partition in range(3):
            self.send(partition)
        self.world.advance(self.machine.settings.delivery_timeout_ms + 10_000)
        for _, batch, index in self.sent[-3:]:
            where, _ = place_of(batch, index)
            assert where.error is None, where.error

    def check(self) -> int:
        """How many records were acknowledged, without the last three."""
        assert self.world is not None
        logs = [[int(value.split()[0]) for value in log.values] for log in self.world.logs]
        acknowledged = 0
        for number, batch, index in self.sent:
            where, at = place_of(batch, index)
            assert where.done, f"record {number} has no outcome"
            metadata, error = outcome_of(where, at, 0)
            log = logs[where.lane.partition]
            if error is None:
                assert metadata is not None
                assert metadata.offset == -1 or log[metadata.offset] == number
                assert number in log
                acknowledged += 1
            else:
                assert isinstance(error, TimedOutError), error
        for log in logs:
            assert log == sorted(set(log)), "twice, or out of order"
        for partition, told in self.told.items():
            mine = [number for number, batch, _ in self.sent if batch.lane.partition == partition]
            assert told == mine, "callbacks out of order, or not once each"
        assert self.machine.accumulator.used_bytes == 0
        assert self.machine.accumulator.unfinished == 0
        return acknowledged - 3


@pytest.mark.parametrize("number", range(SEEDS))
def test_nothing_twice_nothing_lost_nothing_out_of_order(number: int) -> None:
    seed = seed_for(f"produce world {number}")
    chance = random.Random(seed)
    story = Story(
        seed,
        chance.choice([0.1, 0.3, 0.6]),
        linger_ms=chance.choice([0, 5]),
        batch_size=chance.choice([0, 200, 1000, 16_384]),
        max_in_flight_requests_per_connection=chance.choice([1, 2, 5]),
        request_timeout_ms=chance.choice([500, 2000]),
        delivery_timeout_ms=chance.choice([4_000, 120_000, 120_000]),
        buffer_memory=chance.choice([2_000, 1 << 20]),
        compression_type=chance.choice(["none", "none", "lz4"]),
    )
    story.run(120)
    acknowledged = story.check()
    if story.machine.settings.delivery_timeout_ms == 120_000:
        assert acknowledged == 120


def test_without_faults_everything_arrives_at_once() -> None:
    story = Story(1, 0.0)
    story.run(200)
    assert story.check() == 200
    assert story.machine.sender.batches_retried == 0


def test_the_world_knows_every_fault() -> None:
    """Else the seeds would prove less than they seem to."""
    seen: set[str] = set()
    for seed in range(8):
        story = Story(seed, 0.6)
        story.run(60)
        assert story.world is not None
        seen |= set(story.world.faults)
    assert seen == set(FAULTS)


def test_who_was_refused_until_the_time_was_over_is_told_why() -> None:
    settings = read_settings(ProducerSettings, {"bootstrap.servers": "broker:9000"}, {})
    machine = ProducerMachine(settings, lambda: 0.5, lambda: world.now_ms)
    world = ProduceWorld(machine, 1, partitions=1, nodes=1, fault_rate=0.0)
    world.run(machine.room(TOPIC, None, 0, 1e9))
    world.logs[0].append = lambda batch: (codes.NOT_ENOUGH_REPLICAS, -1)  # type: ignore[method-assign]
    place = machine.append(TOPIC, b"v", None, None, 0, 1000, on_delivery=None)
    assert place is not None
    world.advance(settings.delivery_timeout_ms + 1_000)
    _, error = outcome_of(place[0], place[1], 0)
    assert isinstance(error, TimedOutError)
    assert "NOT_ENOUGH_REPLICAS" in str(error)
    assert isinstance(error.__cause__, BrokerError)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_more_requests_wait_for_an_answer_than_are_allowed(count: int) -> None:
    given = {"bootstrap.servers": "broker:9000", "max.in.flight.requests.per.connection": count}
    settings = read_settings(ProducerSettings, given, {"batch_size": 0, "linger_ms": 0})
    machine = ProducerMachine(settings, lambda: 0.5, lambda: world.now_ms)
    world = ProduceWorld(machine, 1, partitions=2, nodes=1, fault_rate=0.0)
    world.run(machine.room(TOPIC, None, 0, 1e9))
    for number in range(20):
        if number == 2:  # a first one of each partition goes alone
            world.advance(1_000)
            world._draw_fault = lambda: "deaf"  # type: ignore[method-assign]
        machine.append(TOPIC, b"v", None, None, number % 2, 1000, on_delivery=None)
        world.settle()
    world.advance(1_000)
    assert len(machine.core.nodes.connections[0, DATA].in_flight) == count


def test_without_idempotence_one_at_a_time_keeps_the_order() -> None:
    for seed in range(10):
        story = Story(seed, 0.3, enable_idempotence=False, max_in_flight_requests_per_connection=1)
        story.run(60)
        assert story.world is not None
        for log in story.world.logs:
            numbers = [int(value.split()[0]) for value in log.values]
            first_seen = list(dict.fromkeys(numbers))
            assert first_seen == sorted(first_seen)


def _settle_gap_at_once(lane: Lane) -> bool:
    return lane.needs_new_epoch and not lane.on_wire


def _put_back_behind(lane: Lane, batch: ProducerBatch) -> None:
    lane.waiting.append(batch)


# Each with a seed that finds it. Where a change of the producer makes that one find it no more, the
# others are tried, which takes seconds: then put a new one here.
PLANTED: dict[str, tuple[str, Any, int]] = {
    "more in flight than brokers remember": ("_is_far_ahead", lambda lane: False, 45),
    "a second batch before the first of an epoch": ("_is_first_of_epoch", lambda lane: False, 8),
    "a new epoch for what may be stored": ("settle_gap", _settle_gap_at_once, 53),
    "what is sent again goes to the end": ("put_back", _put_back_behind, 70),
    "a gap is left as it is": ("settle_gap", lambda lane: False, 0),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, broken, first_seed = PLANTED[bug]
    monkeypatch.setattr(Lane, name, broken)
    for seed in (first_seed, *range(300)):
        story = Story(seed, 0.6, linger_ms=0, batch_size=200, delivery_timeout_ms=40_000)
        try:
            story.run(100)
            story.check()
        except (AssertionError, InvariantError, IndexError, ValueError):
            return
    pytest.fail("nobody noticed")
