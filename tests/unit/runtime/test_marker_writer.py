"""Goal: a partition gets one marker for each transaction, and none that it has to refuse.
Method: the writer over a real log in memory, without a broker.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.shard import Outcome, Transactional
from ottla.protocol.error_codes import NONE, NOT_LEADER_OR_FOLLOWER
from ottla.replication.effects import Assignment
from ottla.replication.partition import Partition
from ottla.runtime.marker_writer import MarkerWriter
from tests.unit.log.world import World, batch


class Setting:
    """Topic `topic`, partition 0, led here by broker 1."""

    def __init__(self, in_sync: tuple[int, ...] = (1,)) -> None:
        self.log_world = World()
        self.log = self.log_world.open()
        self.partition = Partition("topic", 0, uuid.UUID(int=1), "/logs")
        self.partition.log = self.log
        self.partition.assume(1, Assignment(1, 0, 0, in_sync, in_sync), now_ms=0)
        self.group_host: Any = 16
        topics = {"topic": SimpleNamespace(partitions={0: None, 1: None})}
        self.services = services = SimpleNamespace(
            clock=self.log_world.clock,
            partitions=SimpleNamespace(find=self._find),
            image=SimpleNamespace(topics=topics),
        )
        self.writer = MarkerWriter(cast(Any, services), lambda index: self.group_host)

    def _find(self, topic: str, index: int) -> Partition | None:
        known = topic in ("topic", "__consumer_offsets") and index == 0
        return self.partition if known else None

    def open_transaction(self, epoch: int = 0) -> None:
        self.log_world.append(batch(producer_id=7, epoch=epoch, transactional=True))

    def write(self, epoch: int = 0, topic: str = "topic", index: int = 0, **options: Any) -> int:
        marker = Transactional(7, epoch, False, options.pop("coordinator_epoch", 0))
        return self.writer.write(topic, index, marker, **options).result()


@pytest.fixture
def setting() -> Setting:
    return Setting()


@pytest.mark.parametrize("still_leads", [True, False])
def test_a_marker_whose_leader_changes_during_its_flush_is_not_there_for_good(
    setting: Setting, still_leads: bool
) -> None:
    setting.open_transaction()
    setting.log.config = replace(setting.log.config, flush_messages=1)
    flush: Deferred[None] = Deferred()
    setting.services.request_flush = lambda partition: flush
    written = setting.writer.write("topic", 0, Transactional(7, 0, False, 0))
    if not still_leads:
        setting.partition.assume(1, Assignment(2, 1, 1, (1, 2), (1, 2)), now_ms=0)
    setting.log_world.flush()
    setting.partition.on_flushed()
    flush.resolve(None)
    assert written.result() == (NONE if still_leads else NOT_LEADER_OR_FOLLOWER)


def test_written(setting: Setting) -> None:
    setting.open_transaction()
    assert setting.log.first_unstable_offset == 0
    assert setting.write() == 0
    assert setting.log.log_end_offset == 2
    assert setting.partition.last_stable_offset == 2
    assert setting.log.aborted_transactions(0, 2) == [(7, 0)]


def test_where_there_is_no_partition(setting: Setting) -> None:
    assert setting.write(topic="nope") == 3
    assert setting.write(index=1) == 6
    setting.partition.log = None
    assert setting.write() == 56


@pytest.mark.parametrize("client_version", [0, 2])
def test_repeated_it_is_not_written_twice(setting: Setting, client_version: int) -> None:
    epoch = 1 if client_version == 2 else 0
    setting.open_transaction()
    for _ in range(3):
        assert setting.write(epoch, client_version=client_version, is_repeated=True) == 0
    assert setting.log.log_end_offset == 2
    assert setting.log.first_unstable_offset is None


@pytest.mark.parametrize("client_version", [0, 2])
def test_the_last_marker_of_a_producer_is_not_written_twice_either(
    setting: Setting, client_version: int
) -> None:
    setting.open_transaction()
    assert setting.write(32767, client_version=client_version) == 0
    assert 7 not in setting.log.producers.entries
    assert setting.write(32767, client_version=client_version, is_repeated=True) == 0
    assert setting.log.log_end_offset == 2


def test_who_was_admitted_has_to_ask_again(setting: Setting) -> None:
    admissions = setting.log.producers.admissions
    assert admissions.admit(0, 7, 0, admissions.ask(0, 7))
    assert setting.writer.revoke("topic", 0, 8).result() == 0
    assert admissions.has(0, 7, 0)
    assert setting.writer.revoke("topic", 0, 7).result() == 0
    assert not admissions.has(0, 7, 0)
    assert setting.writer.revoke("nope", 0, 7).result() == 3
    assert setting.writer.revoke("topic", 1, 7).result() == 6


def test_of_an_epoch_or_a_coordinator_of_before(setting: Setting) -> None:
    setting.open_transaction(epoch=3)
    assert setting.write(2) == 47
    assert setting.write(3, coordinator_epoch=5) == 0
    assert setting.write(3, coordinator_epoch=4) == 52
    assert setting.write(3, coordinator_epoch=4, is_repeated=True) == 52
    assert setting.log.log_end_offset == 2


def test_with_an_epoch_per_transaction_the_open_one_cannot_be_ended_by_its_own(
    setting: Setting,
) -> None:
    setting.open_transaction(epoch=3)
    assert setting.write(3, client_version=2) == 47
    assert setting.log.first_unstable_offset == 0
    assert setting.write(4, client_version=2) == 0


def test_one_that_comes_late_is_not_written_twice(setting: Setting) -> None:
    """Asked again after a time-out, while the first was still under way."""
    setting.open_transaction()
    assert setting.write(1, client_version=2, is_repeated=True) == 0
    assert setting.write(1, client_version=2) == 0
    assert setting.log.log_end_offset == 2


def test_repeated_it_has_to_be_there_for_good_too() -> None:
    setting = Setting(in_sync=(1, 2))
    setting.open_transaction()
    first = setting.writer.write("topic", 0, Transactional(7, 0, True, 0))
    again = setting.writer.write("topic", 0, Transactional(7, 0, True, 0), is_repeated=True)
    assert setting.log.log_end_offset == 2
    assert not first.done and not again.done
    setting.partition.go_away()
    assert (first.result(), again.result()) == (6, 6)


def test_it_is_there_for_good_when_the_watermark_has_passed_it() -> None:
    setting = Setting(in_sync=(1, 2))
    setting.open_transaction()
    done = setting.writer.write("topic", 0, Transactional(7, 0, True, 0))
    assert not done.done
    setting.partition.go_away()
    assert done.result() == 6


def test_markers_of_offsets_go_through_the_groups(setting: Setting) -> None:
    assert setting.write(topic="__consumer_offsets") == 6
    setting.group_host = 14
    assert setting.write(topic="__consumer_offsets") == 14
    outcomes: list[Outcome[int]] = []

    def write(decide: Any) -> Deferred[int]:
        outcomes.append(decide(None))
        answer: Deferred[int] = Deferred()
        if len(outcomes) == 1:
            answer.resolve(0)
        else:
            answer.fail(ProtocolError(15))
        return answer

    setting.group_host = SimpleNamespace(write=write)
    assert setting.write(topic="__consumer_offsets") == 0
    assert setting.write(topic="__consumer_offsets") == 15
    written = outcomes[0].transactional
    assert written is not None
    assert (written.producer_id, written.committed) == (7, False)
    assert len(outcomes[0].records) == 1
