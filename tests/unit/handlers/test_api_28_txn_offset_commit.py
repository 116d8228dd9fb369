"""Goal: offsets of a transaction count with its commit marker, and only if it may commit them.
Method: group and transaction shards without a broker behind the handler, in every version; codes as
Kafka 4.3.1 gave them.
"""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import InvariantError
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Caller, Outcome
from ottla.coordinator.transaction_asks import InitAsked
from ottla.handlers import api_28_txn_offset_commit as module
from ottla.handlers.context import Context
from ottla.protocol.error_codes import COORDINATOR_NOT_AVAILABLE
from ottla.replication.effects import Assignment
from ottla.replication.partition import Partition
from tests.unit.coordinator.transaction_world import TransactionWorld
from tests.unit.handlers.read_fakes import FakeServices, a_topic, ask, versions_of
from tests.unit.handlers.transaction_fakes import transactional_services
from tests.unit.log.world import World

VERSIONS = versions_of(module)
OFFSETS = ("__consumer_offsets", 3)


class Groups:
    """One group shard; what it writes for a transaction is kept with its producer."""

    def __init__(self, services: FakeServices) -> None:
        self.shard = GroupShard(
            config=GroupConfig(),
            timers=cast(Any, SimpleNamespace(schedule=lambda *given: None)),
            clock=cast(Any, services.clock),
            new_uuid=uuid.uuid4,
            image=services.image,
        )
        self.producers: list[tuple[int, int]] = []

    def partition_of(self, group_id: str) -> int:
        return OFFSETS[1]

    def host_of(self, group_id: str) -> Groups:
        return self

    def write(self, decide: Any) -> Deferred[Any]:
        outcome: Outcome[Any] = decide(self.shard)
        producer = outcome.transactional
        assert producer is not None and producer.committed is None
        for record in outcome.records:
            self.producers.append((producer.producer_id, producer.producer_epoch))
            self.shard.replay(record, producer.producer_id)
        answer: Deferred[Any] = Deferred()
        answer.resolve(outcome.response)
        return answer

    def fetched(self, *, require_stable: bool = True) -> tuple[int, int]:
        asked = SimpleNamespace(name="t", partition_indexes=[0])
        group = SimpleNamespace(group_id="g", member_id=None, member_epoch=-1, topics=[asked])
        caller = Caller("c", "/h", 7)
        fields = self.shard.fetch_offsets(group, caller, require_stable=require_stable)
        (one,) = fields["topics"][0]["partitions"]
        return one["error_code"], one["committed_offset"]


class Setting:
    def __init__(self) -> None:
        self.services, self.world = transactional_services(a_topic("t"))
        self.groups = Groups(self.services)
        self.services.groups = self.groups  # type: ignore[attr-defined]
        self.world.init_producer_id(InitAsked("x", 60_000)).result()

    def commit(self, version: int, *, topic: str = "t", partition: int = 0, **changed: Any) -> int:
        one = {
            "partition_index": partition,
            "committed_offset": 12,
            "committed_leader_epoch": 0,
            "committed_metadata": "",
        }
        asked = {
            "transactional_id": "x",
            "group_id": "g",
            "producer_id": 1000,
            "producer_epoch": 0,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            **changed,
        }
        answer = ask(
            module, self.services, version, topics=[{"name": topic, "partitions": [one]}], **asked
        )
        (told,) = answer["topics"][0]["partitions"]
        assert told["partition_index"] == partition
        return int(told["error_code"])

    def add(self) -> None:
        assert self.world.add_partitions("x", 1000, 0, [OFFSETS], 0).result() == 0

    def asked_slowly(self) -> tuple[list[Deferred[Any]], Any]:
        """What the coordinator is asked, to be answered by the test; and the partition."""
        partition = Partition(*OFFSETS, uuid.UUID(int=1), "/logs")
        partition.log = World().open()
        partition.assume(1, Assignment(1, 0, 0, (1,), (1,)), now_ms=0)
        self.services.partitions = cast(Any, SimpleNamespace(find=lambda topic, index: partition))
        asked: list[Deferred[Any]] = []

        def ask(*owner: Any) -> Deferred[Any]:
            asked.append(Deferred())
            return asked[-1]

        cast(Any, self.world).ask_to_verify = cast(Any, self.world).ask_to_add = ask
        return asked, partition

    def handle_later(self, version: int) -> Deferred[Any]:
        one = SimpleNamespace(
            partition_index=0, committed_offset=1, committed_leader_epoch=0, committed_metadata=""
        )
        request = SimpleNamespace(
            transactional_id="x",
            group_id="g",
            producer_id=1000,
            producer_epoch=0,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[SimpleNamespace(name="t", partitions=[one])],
        )
        context = Context(cast(Any, self.services), version, "test", "PLAINTEXT", 1)
        answer = module.handle(context, request)
        assert isinstance(answer, Deferred)
        return answer


@pytest.fixture
def setting() -> Setting:
    return Setting()


def world_of(setting: Setting) -> TransactionWorld:
    return setting.world


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_wait_for_the_marker(setting: Setting, version: int, committed: bool) -> None:
    if version < 5:
        setting.add()
    assert setting.commit(version) == 0
    assert world_of(setting).held("x").partitions == {OFFSETS}
    assert setting.groups.producers == [(1000, 0)]
    assert setting.groups.fetched() == (88, -1)
    assert setting.groups.fetched(require_stable=False) == (0, -1)
    setting.groups.shard.replay_marker(1000, committed=committed)
    assert setting.groups.fetched() == (0, 12 if committed else -1)


@pytest.mark.parametrize("version", VERSIONS[:5])
def test_a_group_that_was_not_added(setting: Setting, version: int) -> None:
    assert setting.commit(version) == (120 if version >= 4 else 48)
    assert not setting.groups.producers


@pytest.mark.parametrize("version", VERSIONS)
def test_another_broker_has_the_group(setting: Setting, version: int) -> None:
    """Told before the transaction is asked, as Kafka does: it does not get any further from it."""
    cast(Any, setting.groups).host_of = lambda group_id: 16
    assert setting.commit(version) == 16
    assert not world_of(setting).held("x").partitions


@pytest.mark.parametrize("version", VERSIONS)
def test_who_may_not(setting: Setting, version: int) -> None:
    setting.add()
    assert setting.commit(version, group_id="") == 24
    assert setting.commit(version, transactional_id="") == 42
    assert setting.commit(version, transactional_id="nobody") == 49
    assert setting.commit(version, producer_epoch=1) == 47
    assert setting.commit(version, producer_epoch=1, topic="nope") == 3
    assert setting.commit(version, topic="nope") == 3
    assert setting.commit(version, partition=9) == 3
    setting.world.refusal = 14
    assert setting.commit(version) == (14 if version >= 2 else 15)
    assert not setting.groups.producers


@pytest.mark.parametrize("version", VERSIONS[3:])
def test_a_generation_of_a_group_that_there_is_not(setting: Setting, version: int) -> None:
    setting.add()
    assert setting.commit(version, generation_id=3, member_id="m") == 22
    assert setting.commit(version) == 0
    assert setting.commit(version, committed_metadata="x", group_id="g") == 0


def test_without_verification_the_coordinator_is_not_asked(setting: Setting) -> None:
    config = setting.services.config
    setting.services.config = type(config)({"transaction.partition.verification.enable": "false"})
    assert setting.commit(3) == 0
    assert world_of(setting).state("x") == "Empty"


def test_a_yes_to_a_transaction_that_ended_meanwhile_counts_for_nothing(setting: Setting) -> None:
    """The next transaction of its epoch would be told the same, and is not the one it is of."""
    asked, partition = setting.asked_slowly()
    answer = setting.handle_later(3)
    partition.log.producers.admissions.revoke(1000)  # as the marker does
    asked[0].resolve({OFFSETS: 0})
    assert code_in(answer) == COORDINATOR_NOT_AVAILABLE
    assert setting.groups.producers == [] and len(asked) == 1
    again = setting.handle_later(3)
    asked[1].resolve({OFFSETS: 0})
    assert code_in(again) == 0
    assert setting.groups.producers == [(1000, 0)]
    failing = setting.handle_later(3)
    asked[2].fail(InvariantError("ours"))
    with pytest.raises(InvariantError, match="ours"):
        failing.result()  # its connection is told, and does not wait for ever


def test_with_an_epoch_per_transaction_it_is_asked_again(setting: Setting) -> None:
    asked, partition = setting.asked_slowly()
    answer = setting.handle_later(5)
    partition.log.producers.admissions.revoke(1000)
    asked[0].resolve(0)
    assert not answer.done
    asked[1].resolve(90)
    assert code_in(answer) == 47
    assert setting.groups.producers == []


def code_in(answer: Deferred[Any]) -> int:
    return int(answer.result()["topics"][0]["partitions"][0]["error_code"])
