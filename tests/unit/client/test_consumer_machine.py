"""Goal: a consumer gets every record once and in order, whatever its brokers do meanwhile, and its
positions mean what they say. Method: scripted brokers, time as a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ConfigError
from ottla.client.consumer_errors import (
    CorruptBatchError,
    LogTruncatedError,
    NoOffsetError,
    NotAssignedError,
    OffsetOutOfRangeError,
)
from ottla.client.consumer_partitions import EARLIEST, LATEST
from ottla.client.errors import AuthorizationError, ClientError
from ottla.protocol import api_keys as keys
from ottla.protocol import error_codes as codes
from tests.unit.client.consumer_world import ConsumerWorld
from tests.unit.client.pure_world import Later


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    yield
    while ConsumerWorld.alive:
        ConsumerWorld.alive.pop().machine.core.close()


def reading(*values: bytes, nodes: int = 1, **settings: Any) -> ConsumerWorld:
    """A consumer of one partition that holds these."""
    world = ConsumerWorld({"auto_offset_reset": "earliest", **settings}, nodes)
    log = world.log("t")
    if values:
        log.append(*values)
    world.machine.assign([("t", 0)])
    return world


def fetched(world: ConsumerWorld, request: Any, version: int) -> Any:
    """The fields of the usual answer, to be changed; it waits only as long as it has to."""
    answer = world._fetch(request, version)
    return answer.fields if isinstance(answer, Later) else answer


def test_records_come_once_and_in_order() -> None:
    world = reading(b"a", b"b")
    assert world.values() == [b"a", b"b"]
    world.log("t").append(b"c")
    world.pass_time(40_000)  # the fetch that waited has timed out
    assert world.values() == [b"c"]
    assert world.machine.state_of(("t", 0)).position == 3
    assert world.values() == []


def test_few_at_a_time() -> None:
    world = reading(*(b"%d" % number for number in range(7)))
    found = []
    for _ in range(4):
        records = world.poll(count_max=2)
        found += [record.value for record in records]
        assert world.machine.state_of(("t", 0)).position == records[-1].offset + 1
    assert found == [b"%d" % number for number in range(7)]


def test_who_has_read_all_has_caught_up() -> None:
    world = reading(b"a", b"b")
    assert world.machine.caught_up() == {}  # nobody has said yet where the end is
    assert len(world.poll(count_max=1)) == 1
    assert world.machine.caught_up() == {}
    assert len(world.poll(count_max=1)) == 1
    assert world.machine.caught_up() == {("t", 0): 2}


def test_one_answer_is_read_while_the_next_is_fetched() -> None:
    world = reading()
    for number in range(5):
        world.log("t").append(b"%d" % number)

    def one_batch(request: Any, version: int) -> Any:
        offset = request.topics[0].partitions[0].fetch_offset
        log = world.log("t")
        if offset >= log.end:
            return None
        base, _, batch = log.batches[offset]
        assert base == offset
        answer = world._fetch(request, version)
        answer["responses"][0]["partitions"][0]["records"] = batch
        return answer

    world.overrides[keys.FETCH] = one_batch
    world.machine.begin_poll()
    world.pass_time(1_000)
    world.machine.end_poll()
    assert world.machine.state_of(("t", 0)).buffered == 2, "two answers wait, and no more"
    assert [value for _ in range(5) for value in world.values()] == [b"0", b"1", b"2", b"3", b"4"]


# -- positions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset", "expected"),
    [("earliest", [b"a", b"b"]), ("latest", []), ("by_duration:PT3.5S", [b"b"])],
)
def test_where_to_begin(reset: str, expected: list[bytes]) -> None:
    world = ConsumerWorld({"auto.offset.reset": reset})
    world.log("t").append(b"a")
    world.log("t").end = 1000
    world.log("t").append(b"b")  # at time 2000; the clock says 5000
    world.log("t").batches[0] = (0, 1000, world.log("t").batches[0][2])
    world.machine.assign([("t", 0)])
    found = world.values()
    if reset == "earliest":
        found += world.values()
    assert found == expected


def test_what_the_group_committed_is_where_to_begin() -> None:
    world = reading(b"a", b"b", b"c", group_id="g")
    world.committed["t", 0] = 2
    assert world.values() == [b"c"]


def test_no_reset_means_no_guess() -> None:
    world = reading(b"a", auto_offset_reset="none", group_id="g")
    for _ in range(2):
        with pytest.raises(NoOffsetError) as raised:
            world.poll()
        assert raised.value.partitions == [("t", 0)]
    world.machine.state_of(("t", 0)).seek(0)
    world.machine.fetcher.touch()
    assert world.values() == [b"a"]


def test_an_offset_that_is_gone_is_reset() -> None:
    world = reading(b"a", b"b")
    world.log("t").start = 0
    state = world.machine.state_of(("t", 0))
    state.seek(17)
    assert world.values() == [b"a", b"b"]


def test_an_offset_that_is_gone_is_told_where_nothing_is_guessed() -> None:
    world = reading(b"a", auto_offset_reset="none")
    world.machine.state_of(("t", 0)).seek(17)
    with pytest.raises(OffsetOutOfRangeError) as raised:
        world.poll()
    assert raised.value.offsets == {("t", 0): 17}


def test_a_seek_makes_what_was_fetched_void() -> None:
    world = reading(b"a", b"b", b"c")
    assert [record.value for record in world.poll(count_max=1)] == [b"a"]
    world.machine.state_of(("t", 0)).seek(2)
    world.machine.fetcher.touch()
    assert world.values() == [b"c"]
    world.machine.state_of(("t", 0)).reset(EARLIEST)
    assert world.values() == [b"a", b"b", b"c"]
    world.machine.state_of(("t", 0)).reset(LATEST)
    assert world.values() == []


def test_a_paused_partition_waits_and_keeps_its_order() -> None:
    world = reading(b"a", b"b")
    world.log("u").append(b"x")
    world.machine.assign([("t", 0), ("u", 0)])
    assert [record.value for record in world.poll(count_max=1)] == [b"a"]
    world.machine.state_of(("t", 0)).paused = True
    assert world.values() == [b"x"]
    assert world.values() == []
    world.machine.state_of(("t", 0)).paused = False
    assert world.values() == [b"b"]


# -- leaders ---------------------------------------------------------------------------------------


def test_a_leader_that_moved_is_followed() -> None:
    world = reading(b"a", nodes=2)
    assert world.values() == [b"a"]
    log = world.log("t")
    log.leader, log.epoch = 1, 1
    log.append(b"b")
    world.overrides[keys.FETCH] = lambda request, version: None
    assert world.values(60_000) == [b"b"]
    ports = [port for port, key, _ in world.world.requests if key == keys.FETCH]
    assert len(set(ports)) == 2


def test_what_a_new_leader_lost_is_read_again() -> None:
    world = reading(b"a", b"b", nodes=2)
    assert world.values() == [b"a", b"b"]
    log = world.log("t")
    log.truncate(0)
    log.leader, log.epoch, log.epoch_ends = 1, 1, {0: 0}
    log.append(b"other")
    assert world.values(60_000) == [b"other"]


def test_a_leader_after_the_next_one_is_asked_by_its_own_epoch_at_once() -> None:
    world = reading(b"a", nodes=2)
    assert world.values() == [b"a"]
    log = world.log("t")
    log.leader, log.epoch = 1, 1
    log.append(b"b")

    def refuse_the_old(request: Any, version: int) -> Any:
        """While it is asked for the first time yet another leader takes over."""
        log.leader, log.epoch = 0, 2
        (topic,) = request.topics
        (one,) = topic.partitions
        if one.current_leader_epoch == log.epoch:
            return None
        refused = {
            "error_code": codes.FENCED_LEADER_EPOCH,
            "partition": one.partition,
            "leader_epoch": -1,
            "end_offset": -1,
        }
        return {
            "throttle_time_ms": 0,
            "topics": [{"topic": topic.topic, "partitions": [refused]}],
        }

    world.overrides[keys.OFFSET_FOR_LEADER_EPOCH] = refuse_the_old
    assert world.values(5_000) == [b"b"]


def test_what_a_new_leader_lost_is_told_where_nothing_is_guessed() -> None:
    world = reading(b"a", b"b", auto_offset_reset="none", nodes=2)
    world.machine.state_of(("t", 0)).seek(0)
    assert world.values() == [b"a", b"b"]
    log = world.log("t")
    log.leader, log.epoch, log.epoch_ends = 1, 1, {0: 1}
    with pytest.raises(LogTruncatedError) as raised:
        world.poll(60_000)
    assert raised.value.offsets == {("t", 0): 1}
    world.machine.state_of(("t", 0)).seek(1)
    world.machine.fetcher.touch()
    assert world.values(60_000) == [b"b"]


def test_a_preferred_replica_is_asked_until_it_does_not_know() -> None:
    world = reading(b"a", nodes=2, client_rack="here")

    def answer(request: Any, version: int) -> Any:
        port = world.world.requests[-1][0]
        fields = fetched(world, request, version)
        one = fields["responses"][0]["partitions"][0]
        assert request.rack_id == "here"
        if port == 9000:
            one["preferred_read_replica"] = 1
            one["records"] = b""
        return fields

    world.overrides[keys.FETCH] = answer
    assert world.values() == [b"a"]
    assert world.machine.state_of(("t", 0)).preferred_replica == 1
    # The follower lags behind: the leader is asked, and nothing is reset.
    state = world.machine.state_of(("t", 0))
    world.log("t").append(b"b")

    def lagging(request: Any, version: int) -> Any:
        fields = fetched(world, request, version)
        if world.world.requests[-1][0] == 9001:
            fields["responses"][0]["partitions"][0] |= {
                "error_code": codes.OFFSET_OUT_OF_RANGE,
                "records": b"",
            }
        return fields

    world.overrides[keys.FETCH] = lagging
    assert world.values(60_000) == [b"b"]
    assert state.position == 2


@pytest.mark.parametrize(
    "code",
    [
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.KAFKA_STORAGE_ERROR,
        codes.UNKNOWN_SERVER_ERROR,
        codes.UNKNOWN_LEADER_EPOCH,
        codes.OFFSET_NOT_AVAILABLE,
    ],
)
def test_what_passes_is_waited_for(code: int) -> None:
    world = reading(b"a")
    failures = iter([code, code])

    def failing(request: Any, version: int) -> Any:
        fields = fetched(world, request, version)
        failure = next(failures, None)
        if failure is not None:
            one = {"error_code": failure, "records": b""}
            fields["responses"][0]["partitions"][0] |= one
        return fields

    world.overrides[keys.FETCH] = failing
    assert world.values(10_000) == [b"a"]


def test_a_refusal_is_raised_by_the_poll() -> None:
    world = reading(b"a")

    def refusing(request: Any, version: int) -> Any:
        fields = fetched(world, request, version)
        one = {"error_code": codes.TOPIC_AUTHORIZATION_FAILED, "records": b""}
        fields["responses"][0]["partitions"][0] |= one
        return fields

    world.overrides[keys.FETCH] = refusing
    with pytest.raises(AuthorizationError):
        world.poll()
    del world.overrides[keys.FETCH]
    assert world.values(10_000) == [b"a"]


def test_a_session_that_the_broker_forgot_is_begun_anew() -> None:
    world = reading(b"a")
    answers = iter([{"error_code": codes.FETCH_SESSION_ID_NOT_FOUND}])

    def forgetting(request: Any, version: int) -> Any:
        changed = next(answers, None)
        return None if changed is None else {**world._fetch(request, version), **changed}

    world.overrides[keys.FETCH] = forgetting
    assert world.values() == [b"a"]


def test_who_gets_a_partition_again_at_its_end_hears_of_the_end_again() -> None:
    """A broker with sessions tells of a partition only when something has changed."""
    world = reading(b"a")
    told: dict[int, int] = {}  # partition -> the end that this session knows
    wanted: dict[tuple[str, int], Any] = {}

    def in_a_session(request: Any, version: int) -> Any:
        if request.session_epoch == 0:
            told.clear()
            wanted.clear()
        wanted.update(
            {
                (topic.topic, one.partition): one
                for topic in request.topics
                for one in topic.partitions
            }
        )
        found = [
            world._fetched(topic, partition, one) for (topic, partition), one in wanted.items()
        ]
        news = [
            one
            for one in found
            if one["records"] or told.get(one["partition_index"]) != one["high_watermark"]
        ]
        told.update({one["partition_index"]: one["high_watermark"] for one in found})
        fields = {
            "throttle_time_ms": 0,
            "error_code": 0,
            "session_id": 7,
            "responses": [{"topic": "t", "topic_id": None, "partitions": news}] if news else [],
            "node_endpoints": [],
        }
        return fields if news else Later(request.max_wait_ms, fields)

    world.overrides[keys.FETCH] = in_a_session
    assert world.values() == [b"a"]
    world.pass_time(2_000)
    assert world.machine.caught_up() == {("t", 0): 1}
    world.machine.assign([])
    world.machine.assign([("t", 0)])
    world.machine.state_of(("t", 0)).seek(1)
    assert world.values() == []
    assert world.machine.caught_up() == {("t", 0): 1}


def test_a_connection_that_is_cut_costs_nothing_but_time() -> None:
    world = reading(b"a", b"b")
    assert world.values() == [b"a", b"b"]
    for number in range(5):
        world.world.cut(9000)
        world.log("t").append(b"%d" % number)
        assert world.values(60_000) == [b"%d" % number]


def test_a_broken_batch_stops_its_partition_until_a_seek() -> None:
    world = reading(b"a", b"b")
    log = world.log("t")
    base, end, batch = log.batches[0]
    log.batches[0] = (base, end, batch[:-1] + bytes([batch[-1] ^ 1]))
    log.append(b"c")
    for _ in range(2):
        with pytest.raises(CorruptBatchError) as raised:
            world.poll()
        assert (raised.value.partition, raised.value.offset) == (("t", 0), 0)
    world.machine.state_of(("t", 0)).seek(2)
    world.machine.fetcher.touch()
    assert world.values() == [b"c"]


def test_a_batch_that_does_not_come_whole_is_told() -> None:
    world = reading(b"a")

    def cut_off(request: Any, version: int) -> Any:
        fields = fetched(world, request, version)
        one = fields["responses"][0]["partitions"][0]
        one["records"] = one["records"][:-1]
        return fields

    world.overrides[keys.FETCH] = cut_off
    with pytest.raises(CorruptBatchError, match=r"max\.partition\.fetch\.bytes"):
        world.poll()


# -- wrong use -------------------------------------------------------------------------------------


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ConfigError, match=r"group\.id"):
        ConsumerWorld({"group.id": ""})
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        ConsumerWorld({"auto.offset.reset": "sometimes"})
    world = ConsumerWorld()
    with pytest.raises(ConfigError, match=r"group\.id"):
        world.subscribe("t")
    with pytest.raises(ClientError, match="subscribe or assign"):
        world.poll()
    world.machine.assign([("t", 0)])
    with pytest.raises(NotAssignedError):
        world.machine.state_of(("t", 1))
    grouped = ConsumerWorld({"group.id": "g"})
    grouped.subscribe("t")
    with pytest.raises(ClientError, match="unsubscribe"):
        grouped.machine.assign([("t", 0)])
