"""Goal: a transactional batch is appended only on a coordinator's yes that still counts.
Method: the produce handler over a real log in memory, with a coordinator that answers when told to.
"""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import InvariantError, ProtocolError
from ottla.coordinator.shard import Transactional
from ottla.coordinator.shard_batch import build_batch, marker_record
from ottla.handlers import api_00_produce
from ottla.handlers.context import Context
from ottla.handlers.produce_admission import is_in_transaction
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.protocol.messages import decode_response, encode_request
from ottla.records.batch_header import read_header
from ottla.replication.effects import Assignment
from ottla.replication.partition import Partition
from tests.unit.log.world import World, batch

PLACE = ("topic", 0)
OLD, NEW = 11, 12


class Coordinator:
    """Keeps every question until it is answered."""

    def __init__(self) -> None:
        self.asked: list[Deferred[Any]] = []

    def ask_to_verify(self, *asked: Any) -> Deferred[Any]:
        self.asked.append(Deferred())
        return self.asked[-1]

    def ask_to_add(self, *asked: Any) -> Deferred[Any]:
        self.asked.append(Deferred())
        return self.asked[-1]

    def say(self, version: int, code: int = 0) -> None:
        self.asked.pop(0).resolve(code if version == NEW else {PLACE: code})


class Setting:
    """One partition, led here."""

    def __init__(self) -> None:
        self.world = World()
        self.partition = Partition("topic", 0, uuid.UUID(int=1), "/logs")
        self.partition.log = self.world.open()
        self.lead(0)
        self.coordinator = Coordinator()
        self.services = SimpleNamespace(
            clock=self.world.clock,
            config=BrokerConfig({}),
            partitions=SimpleNamespace(find=lambda topic, index: self.partition),
            transactions=self.coordinator,
            image=SimpleNamespace(topics={}),
        )

    def lead(self, epoch: int) -> None:
        self.partition.assume(1, Assignment(1, epoch, epoch, (1,), (1,)), now_ms=0)

    def produce(
        self, version: int, sequence: int = 0, epoch: int = 0, transactional_id: str | None = "x"
    ) -> Any:
        records = batch(producer_id=7, epoch=epoch, sequence=sequence, transactional=True)
        partitions = [{"index": 0, "records": records}]
        fields = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [{"name": "topic", "partition_data": partitions}],
        }
        context = Context(cast(Any, self.services), version, "test", "PLAINTEXT", 1)
        body = memoryview(encode_request(0, version, fields))
        return api_00_produce.handle(context, body)

    def mark(self, epoch: int = 0) -> None:
        marker = Transactional(7, epoch, True, 0)
        now_ms = self.world.clock.now_ms
        made, header = build_batch([marker_record(marker)], now_ms, marker)
        self.partition.append(made, header, now_ms, from_client=False)

    def end_offset(self) -> int:
        assert self.partition.log is not None
        return self.partition.log.log_end_offset

    def is_admitted(self) -> bool:
        return is_in_transaction(
            self.partition, read_header(batch(producer_id=7, transactional=True))
        )


def code_of(answer: Any, version: int) -> int:
    reply = answer.result() if isinstance(answer, Deferred) else answer
    (body,) = reply.parts
    (topic,) = decode_response(0, version, bytes(body)).responses
    return int(topic.partition_responses[0].error_code)


@pytest.fixture
def setting() -> Setting:
    return Setting()


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_question_that_fails_is_answered_too(setting: Setting, version: int) -> None:
    """Also if it was our own mistake: else the connection would wait for ever."""
    for failure, code in ((InvariantError("ours"), -1), (ProtocolError(16), 19)):
        asked = setting.produce(version)
        setting.coordinator.asked.pop(0).fail(failure)
        assert code_of(asked, version) == code
    assert setting.end_offset() == 0
    again = setting.produce(version)
    setting.coordinator.say(version)
    assert code_of(again, version) == 0


@pytest.mark.parametrize("version", [OLD, NEW])
def test_asked_once_for_each_transaction(setting: Setting, version: int) -> None:
    first = setting.produce(version)
    assert setting.end_offset() == 0
    setting.coordinator.say(version)
    assert code_of(first, version) == 0
    assert code_of(setting.produce(version, 1), version) == 0
    assert setting.end_offset() == 2 and not setting.coordinator.asked
    setting.mark()
    setting.produce(version, 2)
    assert len(setting.coordinator.asked) == 1 and setting.end_offset() == 3


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_request_without_transactional_id_writes_to_no_transaction(
    setting: Setting, version: int
) -> None:
    assert code_of(setting.produce(version, transactional_id=None), version) == 53
    setting.produce(version)
    setting.coordinator.say(version)
    assert code_of(setting.produce(version, 1, transactional_id=None), version) == 53
    assert code_of(setting.produce(version, 1, transactional_id=""), version) == 42
    assert setting.end_offset() == 1 and not setting.coordinator.asked
    assert code_of(setting.produce(version, 1), version) == 0


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_no_is_the_answer(setting: Setting, version: int) -> None:
    refused = setting.produce(version)
    setting.coordinator.say(version, 49)
    assert code_of(refused, version) == 49
    assert setting.end_offset() == 0


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_yes_to_a_transaction_that_ended_meanwhile_is_asked_again(
    setting: Setting, version: int
) -> None:
    late = setting.produce(version)
    setting.mark()
    setting.coordinator.say(version)
    assert not late.done and setting.end_offset() == 1
    setting.coordinator.say(version, 120)
    assert code_of(late, version) == 120
    assert setting.end_offset() == 1 and setting.world.log.first_unstable_offset is None


def test_a_new_leadership_asks_again(setting: Setting) -> None:
    setting.produce(NEW)
    setting.coordinator.say(NEW)
    assert setting.is_admitted()
    setting.lead(1)
    assert not setting.is_admitted()
    setting.produce(NEW, 1)
    assert setting.end_offset() == 1 and len(setting.coordinator.asked) == 1
    setting.coordinator.say(NEW)
    assert setting.end_offset() == 2 and setting.is_admitted()


def test_the_second_batch_of_an_unknown_producer_waits_for_the_first(setting: Setting) -> None:
    """The first was refused for a passing reason, and this one was sent behind it."""
    second = setting.produce(NEW, 1)
    setting.coordinator.say(NEW)
    assert code_of(second, NEW) == 45
    assert setting.end_offset() == 0 and not setting.is_admitted()
    first = setting.produce(NEW, 0)
    setting.coordinator.say(NEW)
    assert code_of(first, NEW) == 0
    assert code_of(setting.produce(NEW, 1), NEW) == 0


def test_nor_is_it_taken_behind_a_marker_alone(setting: Setting) -> None:
    setting.mark(1)
    for sequence, code in ((1, 45), (0, 0)):
        answer = setting.produce(NEW, sequence, epoch=1)
        setting.coordinator.say(NEW)
        assert code_of(answer, NEW) == code


def test_an_older_producer_that_was_forgotten_goes_on_where_it_was(setting: Setting) -> None:
    """Its epoch stays from one transaction to the next, and so do its numbers."""
    answer = setting.produce(OLD, 5)
    setting.coordinator.say(OLD)
    assert code_of(answer, OLD) == 0
