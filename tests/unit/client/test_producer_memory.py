"""Goal: who waits for `buffer.memory` goes on as soon as there is enough of it, many at once and in
order; a flush waits for what was there when it began. Method: brokers in simulated time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.client.accumulator import Accumulator, TopicLanes
from ottla.client.cluster import Cluster
from ottla.client.pending import Flow
from ottla.client.producer_batch import load_varints
from ottla.client.producer_machine import ProducerMachine, size_of
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import read_settings
from ottla.protocol.primitives import NULL_UUID
from tests.unit.client.produce_world import TOPIC, ProduceWorld

VALUE = bytes(100)
SETTINGS = {"bootstrap.servers": "broker:9000"}


class Senders:
    """Callers of one producer that all send at the same time."""

    def __init__(self, **settings: Any) -> None:
        read = read_settings(ProducerSettings, SETTINGS, settings)
        self.machine = ProducerMachine(read, lambda: 0.5, lambda: self.world.now_ms)
        self.world = ProduceWorld(self.machine, 1, partitions=1, nodes=1, fault_rate=0.0)
        self.world.run(self.machine.room(TOPIC, None, 0, 1e9))

    def send(self, value: bytes) -> Flow[Any]:
        machine = self.machine
        append = partial(machine.append, TOPIC, value, None, None, 0, 1000, on_delivery=None)
        flow = machine.core.spawn(
            machine.in_time(append, TOPIC, 0, size_of(value, None, None), 60_000)
        )
        flow.when_done(lambda _: None)
        return flow


def test_those_who_wait_for_memory_share_batches_and_keep_their_order() -> None:
    senders = Senders(buffer_memory=40_000)
    values = [b"%05d" % number + VALUE for number in range(2_000)]
    flows = [senders.send(value) for value in values]
    senders.world.advance(20_000)
    assert all(flow.done for flow in flows)
    assert senders.world.logs[0].values == values
    assert senders.machine.sender.batches_sent < 60, "about a hundred records in each"


def test_one_who_gave_up_does_not_keep_the_memory_from_those_behind() -> None:
    senders = Senders(buffer_memory=1_000, linger_ms=0)
    first = senders.send(bytes(900))
    senders.world.core.end_turn()
    gives_up, waits = senders.send(bytes(900)), senders.send(bytes(900))
    senders.world.core.end_turn()
    assert [one.done for one in (first, gives_up, waits)] == [True, False, False]
    gives_up.cancel()
    senders.world.advance(1_000)
    assert waits.done
    assert senders.world.now_ms < 60_000
    assert len(senders.world.logs[0].values) == 2


def test_one_who_gives_up_with_the_memory_in_hand_passes_it_on() -> None:
    senders = Senders(buffer_memory=1_000, linger_ms=0)
    accumulator = senders.machine.accumulator
    accumulator.used_bytes = 1_000  # by somebody
    gives_up, waits = senders.send(bytes(900)), senders.send(bytes(900))
    senders.world.core.end_turn()
    accumulator.used_bytes = 0
    accumulator.wake()
    gives_up.cancel()
    senders.world.core.end_turn()
    assert waits.done


def test_a_batch_that_was_begun_while_memory_was_short_goes_when_it_has_lingered() -> None:
    senders = Senders(buffer_memory=10_000, linger_ms=50)
    accumulator = senders.machine.accumulator
    accumulator.used_bytes = 10_000  # by somebody
    waits, gives_up = senders.send(bytes(9_000)), senders.send(VALUE)
    senders.world.core.end_turn()
    accumulator.used_bytes = 9_000
    small = senders.machine.append(TOPIC, VALUE, None, None, 0, 1000, on_delivery=None)
    waits.cancel()
    gives_up.cancel()
    assert small is not None
    assert not accumulator.is_short
    senders.world.advance(1_000)
    assert small[0].done


def test_room_without_a_size_waits_for_no_memory() -> None:
    senders = Senders(buffer_memory=10_000, linger_ms=60_000)
    senders.send(VALUE)
    senders.world.settle()
    senders.world.run(senders.machine.room(TOPIC, None, 0, 1e9))
    assert senders.world.now_ms < 60_000
    assert senders.machine.accumulator.topics[TOPIC].lanes[0].open is not None, "it lingers"


def test_a_flush_waits_for_a_batch_before_one_that_was_split() -> None:
    load_varints()
    accumulator = Accumulator(read_settings(ProducerSettings, SETTINGS, {}), Cluster())
    topic = accumulator.topics[TOPIC] = TopicLanes(TOPIC)
    topic.resize(2, NULL_UUID)
    slow = accumulator.open_batch(topic.lanes[0], 100, 0.0)
    slow.append(1000, None, b"slow", None)
    flushed = accumulator.flushed()
    large = accumulator.open_batch(topic.lanes[1], 1_000, 0.0)
    for _ in range(2):
        large.append(1000, None, VALUE, None)
    large.encode(0, None)
    parts = large.split(100)
    accumulator.on_split(large, parts)
    for part in parts:
        part.succeed(0, -1)
        accumulator.on_done(part)
    assert not flushed.done
    slow.succeed(0, -1)
    accumulator.on_done(slow)
    assert flushed.done
