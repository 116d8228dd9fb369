"""The core over scripted brokers: asking, retrying, giving up, and nothing left behind."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import InvariantError
from ottla.client import coordinators as coordinators_module
from ottla.client.coordinators import GROUP, Coordinators
from ottla.client.core import Core
from ottla.client.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    ConnectionLostError,
    MalformedAnswerError,
    NoBrokerError,
    TimedOutError,
    UnknownTopicError,
    UnsupportedByBrokerError,
)
from ottla.client.pending import gather
from ottla.client.settings import AdminSettings, read_settings
from ottla.protocol.api_keys import API_VERSIONS, FIND_COORDINATOR, HEARTBEAT, METADATA
from ottla.protocol.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    NONE,
    REBOOTSTRAP_REQUIRED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.unit.client.pure_world import FIRST_PORT, Answer, Later, World, metadata, versions

BEAT = {"group_id": "g", "generation_id": 1, "member_id": "", "group_instance_id": None}
ANY_TOPIC = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}


def world(answers: dict[int, Answer], nodes: int = 1, **settings: Any) -> World:
    bootstrap = ",".join(f"broker:{FIRST_PORT + node}" for node in range(nodes))
    read = read_settings(AdminSettings, {"bootstrap.servers": bootstrap}, settings)
    return World(Core(read, lambda: 0.5), answers)


def coordinator(node_id: int) -> dict[str, Any]:
    return {
        "throttle_time_ms": 0,
        "coordinators": [
            {
                "key": "g",
                "node_id": node_id,
                "host": "broker",
                "port": FIRST_PORT + node_id,
                "error_code": 0,
                "error_message": None,
            }
        ],
    }


def test_a_topic_is_found_after_the_broker_introduced_itself() -> None:
    here = world({METADATA: lambda request, version: metadata({"t": [0, 0]})})
    info = here.run(here.core.metadata.topic("t", 2000))
    assert [one.leader for one in info.partitions] == [0, 0]
    assert here.names() == ["ApiVersions", "Metadata"]


def test_an_old_broker_is_asked_again_in_a_version_that_it_speaks() -> None:
    ranges = {API_VERSIONS: (0, 2), METADATA: (0, 5)}

    def introduce(request: Any, version: int) -> Any:
        fields = versions(ranges)(request, version)
        if version <= 2:
            return fields
        assert isinstance(fields, dict)
        # A body of version 0, whatever was asked (KIP-511).
        return b"\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x02"

    here = world(
        {
            API_VERSIONS: introduce,
            METADATA: lambda request, version: metadata({"t": [version]}, nodes=6),
        }
    )
    info = here.run(here.core.metadata.topic("t", 2000))
    assert info.partitions[0].leader == 5  # the version
    assert here.names()[:3] == ["ApiVersions", "ApiVersions", "Metadata"]


def test_a_topic_that_comes_late_is_waited_for() -> None:
    asked: list[int] = []

    def answer(request: Any, version: int) -> Any:
        asked.append(1)
        return metadata({"t": [0] if len(asked) > 3 else UNKNOWN_TOPIC_OR_PARTITION})

    here = world({METADATA: answer})
    assert len(here.run(here.core.metadata.topic("t", 60_000)).partitions) == 1
    assert len(asked) == 4


def test_a_cluster_that_is_elsewhere_is_looked_for_without_a_word() -> None:
    answers = iter([REBOOTSTRAP_REQUIRED, NONE])
    here = world(
        {
            METADATA: lambda request, version: {
                **metadata({"t": [0]}),
                "error_code": next(answers, NONE),
            }
        }
    )
    assert len(here.run(here.core.metadata.topic("t", 60_000)).partitions) == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [(UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicError), (INVALID_TOPIC_EXCEPTION, BrokerError)],
)
def test_a_topic_that_never_comes_is_told_as_what_it_is(
    code: int, error: type[ClientError]
) -> None:
    here = world({METADATA: lambda request, version: metadata({"t": code})})
    with pytest.raises(error):
        here.run(here.core.metadata.topic("t", 5_000))
    assert here.now_ms <= 5_000


def test_nobody_there_ends_at_the_deadline_and_says_so() -> None:
    here = world({}, nodes=3)
    here.down = {FIRST_PORT, FIRST_PORT + 1, FIRST_PORT + 2}
    with pytest.raises(TimedOutError, match="refused"):
        here.run(here.core.metadata.topic("t", 30_000))
    # The backoff grows to a second at most: neither a hot loop nor a sleep.
    assert 20 < here.core.nodes.connections_opened < 100


def test_the_second_bootstrap_address_is_tried() -> None:
    here = world({METADATA: lambda request, version: metadata({"t": [0]})}, nodes=2)
    here.down = {FIRST_PORT}
    assert here.run(here.core.metadata.topic("t", 30_000)).name == "t"


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_the_bootstrap_address_is_asked_again_unless_that_is_not_wanted(strategy: str) -> None:
    answers: dict[int, Answer] = {METADATA: lambda request, version: elsewhere}
    elsewhere = metadata({"t": [0]})
    elsewhere["brokers"][0]["port"] = FIRST_PORT + 5
    here = world(answers, metadata_recovery_strategy=strategy)
    here.run(here.core.metadata.topic("t", 2_000))
    here.cut(FIRST_PORT)
    here.down.add(FIRST_PORT + 5)
    here.requests.clear()
    here.core.metadata.request_update()
    here.advance(10_000)
    assert ("Metadata" in here.names()) is (strategy == "rebootstrap")


def test_a_broker_that_hangs_costs_its_connection_after_the_request_time_out() -> None:
    here = world({HEARTBEAT: lambda request, version: None}, request_timeout_ms=5_000)
    pending = here.core.request(-1, HEARTBEAT, BEAT)
    here.advance(4_999)
    assert not pending.done
    here.advance(2)
    assert isinstance(pending.error(), TimedOutError)
    assert here.core.nodes.connections == {}


@pytest.mark.parametrize("garbage", [b"", b"\0", b"\xff" * 40])
def test_nonsense_ends_the_connection_and_nothing_else(garbage: bytes) -> None:
    here = world({METADATA: lambda request, version: garbage})
    with pytest.raises(MalformedAnswerError):
        here.run(_ask(here.core, METADATA, ANY_TOPIC))


async def _ask(core: Core, api_key: int, fields: Any) -> Any:
    return await core.request(core.least_loaded(), api_key, fields)


def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    here = world({METADATA: lambda request, version: metadata({"t": [0]})})
    here.run(here.core.metadata.topic("t", 2000))
    connection = here.core.nodes.connections[-1, ""]
    here.answer_later(connection, b"\0\0\0\1\0")
    here.settle()
    assert here.core.nodes.connections == {}


def test_what_no_version_can_say_is_refused_alone() -> None:
    here = world({API_VERSIONS: versions({API_VERSIONS: (0, 4), METADATA: (0, 13)})})
    with pytest.raises(UnsupportedByBrokerError, match="Heartbeat"):
        here.run(_ask(here.core, HEARTBEAT, {}))
    assert len(here.core.nodes.connections) == 1


def test_a_cut_connection_fails_what_waits_and_is_tried_again_by_retry() -> None:
    answers: list[Any] = [ConnectionError("cut"), ConnectionError("cut"), coordinator(0)]
    here = world({FIND_COORDINATOR: lambda request, version: answers.pop(0)})
    coordinators = Coordinators(here.core)
    found = here.core.retry(lambda: coordinators.find(GROUP, "g"), 20_000, "coordinator of g")
    assert here.run(found) == 0
    assert answers == []
    # Known now, and forgotten when somebody says so.
    assert here.run(coordinators.find(GROUP, "g")) == 0
    coordinators.forget(GROUP, "g")
    answers.append(coordinator(1))
    assert here.run(coordinators.find(GROUP, "g")) == 1


def test_what_is_known_of_coordinators_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink makes a transactional id for each task, and lives for months."""
    monkeypatch.setattr(coordinators_module, "KNOWN_MAX", 2)
    asked: list[str] = []

    def answer(request: Any, version: int) -> Any:
        asked.append("find")
        return coordinator(0)

    here = world({FIND_COORDINATOR: answer})
    coordinators = Coordinators(here.core)
    for key in ("a", "b", "c", "c", "b", "a"):
        assert here.run(coordinators.find(GROUP, key)) == 0
    assert len(asked) == 4  # "a" had to go for "c"


def test_retry_gives_up_at_its_deadline_with_the_last_reason() -> None:
    here = world({FIND_COORDINATOR: lambda request, version: ConnectionError("always")})
    coordinators = Coordinators(here.core)
    with pytest.raises(TimedOutError, match="always"):
        here.run(here.core.retry(lambda: coordinators.find(GROUP, "g"), 5_000, "it"))
    assert here.now_ms <= 5_000


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
def test_nothing_is_asked_any_more_once_nobody_waits(how: str) -> None:
    """An attempt that went on would ask for what may be wrong by then: a transactional id taken
    over from its own producer, offsets in the transaction after the one they were sent in."""
    here = world({FIND_COORDINATOR: lambda request, version: Later(5_000, coordinator(0))})
    coordinators = Coordinators(here.core)

    async def beat() -> None:
        await here.core.request(await coordinators.find(GROUP, "g"), HEARTBEAT, BEAT)

    flow = here.core.spawn(here.core.retry(beat, here.now_ms + 4_000, "it"))
    flow.when_done(lambda _: None)
    here.settle()
    if how == "cancelled":
        flow.cancel()
    here.advance(10_000)
    assert flow.done
    assert "Heartbeat" not in here.names()
    assert here.core.scheduler.flows == set()


def test_several_questions_end_with_whoever_asked_them() -> None:
    here = world({HEARTBEAT: lambda request, version: None})
    asked = [here.core.spawn(_ask(here.core, HEARTBEAT, BEAT)) for _ in range(2)]
    flow = here.core.spawn(gather(asked))
    flow.when_done(lambda _: None)
    here.settle()
    flow.cancel()
    assert [one.done for one in asked] == [True, True]
    assert here.core.scheduler.flows == set()


def test_who_asks_too_early_hears_why_the_last_attempt_failed() -> None:
    here = world({METADATA: lambda request, version: metadata({"t": [0]})})
    here.run(here.core.metadata.topic("t", 2_000))
    here.down = {FIRST_PORT}
    first = here.core.request(0, HEARTBEAT, BEAT)
    here.settle()
    assert isinstance(first.error(), ConnectionLostError)
    too_early = here.core.request(0, HEARTBEAT, BEAT).error()
    assert isinstance(too_early, NoBrokerError)
    assert str(first.error()) in str(too_early)


def test_idle_connections_are_closed() -> None:
    here = world(
        {METADATA: lambda request, version: metadata({"t": [0]})}, connections_max_idle_ms=10_000
    )
    here.run(here.core.metadata.topic("t", 2000))
    assert len(here.core.nodes.connections) == 1
    here.advance(400_000)  # an update by age opens one again, which then idles too
    assert here.names().count("Metadata") == 2
    here.advance(11_000)
    assert here.core.nodes.connections == {}


def test_metadata_is_asked_anew_when_it_has_aged() -> None:
    here = world(
        {METADATA: lambda request, version: metadata({"t": [0]})}, metadata_max_age_ms=1_000
    )
    here.run(here.core.metadata.topic("t", 2000))
    here.advance(5_500)
    assert here.names().count("Metadata") == 6


def test_close_ends_flows_and_fails_what_waits() -> None:
    here = world({HEARTBEAT: lambda request, version: None})
    flow = here.core.spawn(_ask(here.core, HEARTBEAT, BEAT))
    flow.when_done(lambda _: None)
    asked = here.core.request(-1, HEARTBEAT, BEAT)
    here.settle()
    here.core.close()
    assert flow.done
    assert isinstance(asked.error(), ClosedError)
    assert here.core.nodes.connections == {}
    assert here.core.scheduler.flows == set()
    refused = here.core.request(-1, HEARTBEAT, {})
    assert isinstance(refused.error(), ClosedError)


def test_what_cannot_be_encoded_fails_alone() -> None:
    here = world({})
    wrong = here.core.request(-1, HEARTBEAT, {"group_id": 7})
    here.settle()
    assert isinstance(wrong.error(), InvariantError)
    assert len(here.core.nodes.connections) == 1


def test_an_unknown_node_is_refused_at_once() -> None:
    here = world({})
    assert isinstance(here.core.request(7, HEARTBEAT, {}).error(), NoBrokerError)


def test_who_is_no_broker_any_more_is_not_asked_for_metadata() -> None:
    """A broker that starts again takes connections before the others tell of it."""
    nodes = 2
    here = world(
        {
            METADATA: lambda request, version: metadata({"t": [0]}, nodes),
            HEARTBEAT: lambda request, version: {"throttle_time_ms": 0, "error_code": 0},
        }
    )
    here.run(here.core.metadata.topic("t", 2000))
    beat = here.core.request(1, HEARTBEAT, BEAT)
    here.settle()
    assert beat.error() is None
    here.cut(FIRST_PORT)
    nodes = 1
    for _ in range(3):
        update = here.core.metadata.next_update()
        here.advance(5_000)
        assert update.done, "broker 1 answers, which is none any more by its own words"
    assert list(here.core.cluster.brokers) == [0]
