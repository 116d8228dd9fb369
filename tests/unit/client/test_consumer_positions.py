"""Goal: a partition that cannot be read keeps nobody else waiting, and what the application has to
know of it waits once. Method: scripted brokers, time as a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.consumer_calls import ConsumerCalls
from ottla.client.consumer_errors import LogTruncatedError, NoOffsetError, OffsetOutOfRangeError
from ottla.client.errors import AuthorizationError
from ottla.protocol import api_keys as keys
from ottla.protocol import error_codes as codes
from tests.unit.client.consumer_world import ConsumerWorld
from tests.unit.client.pure_world import FIRST_PORT, Later

GOOD, BAD = ("good", 0), ("bad", 0)
HOUR_MS = 3_600_000.0


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    yield
    while ConsumerWorld.alive:
        ConsumerWorld.alive.pop().machine.core.close()


def two_topics(nodes: int = 1, **settings: Any) -> ConsumerWorld:
    """A consumer of a good partition and, before it, one to be made bad."""
    world = ConsumerWorld({"auto_offset_reset": "earliest", **settings}, nodes)
    world.log("bad").append(b"from the bad one")
    world.log("good").append(b"a")
    world.machine.assign([BAD, GOOD])
    return world


def refusing(code: int) -> Any:
    """Answers to ListOffsets that refuse the bad partition."""

    def of(topic: str, one: Any) -> dict[str, Any]:
        is_bad = (topic, one.partition_index) == BAD
        return {
            "partition_index": one.partition_index,
            "error_code": code if is_bad else codes.NONE,
            "timestamp": -1,
            "offset": -1 if is_bad else 0,
            "leader_epoch": 0,
        }

    return lambda request, version: {
        "throttle_time_ms": 0,
        "topics": [
            {"name": one.name, "partitions": [of(one.name, each) for each in one.partitions]}
            for one in request.topics
        ],
    }


@pytest.mark.parametrize("group", [{}, {"group_id": "g"}])
def test_a_topic_that_is_gone_keeps_nobody_waiting(group: dict[str, Any]) -> None:
    world = two_topics(**group)
    del world.logs[BAD]
    assert world.values(1_000) == [b"a"]


def test_a_partition_without_a_leader_keeps_nobody_waiting_and_comes_when_it_has_one() -> None:
    world = two_topics(group_id="g")
    world.logs[BAD].leader = -1
    assert world.values(1_000) == [b"a"]
    assert world.values(10_000) == []
    world.logs[BAD].leader = 0
    assert world.values(2_000) == [b"from the bad one"]


@pytest.mark.parametrize("code", [codes.NOT_LEADER_OR_FOLLOWER, codes.TOPIC_AUTHORIZATION_FAILED])
def test_a_partition_that_is_refused_keeps_nobody_waiting(code: int) -> None:
    world = two_topics()
    world.overrides[keys.LIST_OFFSETS] = refusing(code)
    found: list[bytes] = []
    for _ in range(2):
        try:
            found += world.values(1_000)
        except AuthorizationError:
            assert code == codes.TOPIC_AUTHORIZATION_FAILED
    assert found == [b"a"]


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_broker_that_is_gone_keeps_nobody_waiting_for_the_others(is_silent: bool) -> None:
    """Its partition with one replica stays; the other one has moved, and is checked."""
    world = two_topics(nodes=2)
    bad, good = world.logs[BAD], world.logs[GOOD]
    bad.leader = good.leader = 1
    assert {*world.values(), *world.values()} == {b"from the bad one", b"a"}
    if is_silent:
        world.overrides[keys.OFFSET_FOR_LEADER_EPOCH] = lambda request, version: (
            Later(HOUR_MS, world._epoch_ends(request, version))
            if world.world.requests[-1][0] == FIRST_PORT + 1
            else None
        )
    else:
        world.world.down.add(FIRST_PORT + 1)
        world.world.cut(FIRST_PORT + 1)
    bad.epoch = good.epoch = 1
    good.leader = 0
    good.append(b"b")
    world.machine.core.metadata.request_update()
    assert world.values(5_000) == [b"b"]


def test_an_error_waits_once_however_long_nobody_polls() -> None:
    world = two_topics()
    world.overrides[keys.LIST_OFFSETS] = refusing(codes.TOPIC_AUTHORIZATION_FAILED)
    world.pass_time(600_000)
    assert len(list(world.machine.fetcher.queue.items())) == 2, "an answer and an error"
    assert len(world.requests(keys.LIST_OFFSETS)) == 1


def test_an_offset_that_is_gone_is_asked_for_again_when_that_was_told() -> None:
    world = ConsumerWorld({"auto_offset_reset": "none"})
    world.log("bad").append(b"a")
    world.machine.assign([BAD])
    world.machine.state_of(BAD).seek(17)
    world.pass_time(600_000)
    assert len(world.requests(keys.FETCH)) == 1
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError):
            world.poll()


def test_what_a_topic_refuses_waits_once() -> None:
    world = two_topics()
    error = AuthorizationError(codes.TOPIC_AUTHORIZATION_FAILED, "topic bad")
    for _ in range(3):
        world.machine.report(error)
    with pytest.raises(AuthorizationError):
        world.poll()
    assert world.values() == [b"from the bad one", b"a"]


def test_a_position_that_only_the_application_can_give_is_asked_for_at_once() -> None:
    world = ConsumerWorld({"auto_offset_reset": "none", "group_id": "g"})
    for partition in range(2):
        world.log("t", partition)
    world.machine.assign([("t", 0), ("t", 1)])
    calls = ConsumerCalls(world.machine)
    for partition in (1, 0):
        with pytest.raises(NoOffsetError):
            world.world.run(calls._position(("t", partition), 60_000.0))
    assert world.world.now_ms < 2_000, "it begins at 1,000"
    with pytest.raises(NoOffsetError):
        world.poll()
    world.committed["t", 0] = world.committed["t", 1] = 0
    assert world.world.run(calls._position(("t", 1), 60_000.0)) == 0
    assert world.values() == []


def test_what_was_cut_off_is_not_read_on_after_yet_another_leader() -> None:
    world = ConsumerWorld({"auto_offset_reset": "none"}, 2)
    log = world.log("t")
    log.append(b"a", b"b")
    world.machine.assign([("t", 0)])
    world.machine.state_of(("t", 0)).seek(0)
    assert world.values() == [b"a", b"b"]
    log.leader, log.epoch, log.epoch_ends = 1, 1, {0: 1}
    with pytest.raises(LogTruncatedError):
        world.poll(60_000)
    log.leader, log.epoch = 0, 2
    log.append(b"c")
    world.machine.core.metadata.request_update()
    for _ in range(2):  # until it seeks
        with pytest.raises(LogTruncatedError) as raised:
            world.poll(10_000)
        assert raised.value.offsets == {("t", 0): 1}
    world.machine.state_of(("t", 0)).seek(2)
    world.machine.fetcher.touch()
    assert world.values() == [b"c"]


def test_what_was_cut_off_is_told_of_those_that_have_not_been_sought() -> None:
    world = ConsumerWorld({"auto_offset_reset": "none"}, 2)
    places = [("t", 0), ("t", 1)]
    world.machine.assign(places)
    for place in places:
        world.log(*place).append(b"a", b"b")
        world.machine.state_of(place).seek(0)
    assert sorted(world.values() + world.values()) == [b"a", b"a", b"b", b"b"]
    for place in places:
        log = world.log(*place)
        log.leader, log.epoch, log.epoch_ends = 1, 1, {0: 1}
    told: set[TopicPartition] = set()
    while told != set(places):
        with pytest.raises(LogTruncatedError) as raised:
            world.poll(60_000)
        told |= set(raised.value.offsets)
    world.machine.state_of(places[0]).seek(1)
    world.machine.fetcher.touch()
    with pytest.raises(LogTruncatedError) as raised:
        world.poll(10_000)
    assert raised.value.offsets == {places[1]: 1}
    world.pass_time(1_000)
    assert world.values() == [b"b"], "one that was sought goes on, whatever is the other one's"
    world.machine.assign(places[:1])
    assert world.values() == []
