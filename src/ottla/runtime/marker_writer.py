"""Writes the markers that end a transaction, each into its partition, exactly once.

Owns what a marker has to wait for: it is written for good when the partition's watermark has passed
it, and on the disk if the topic asks for that. Markers of group offsets go through the shard that
holds the group, so that offsets become visible in the same step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError, StorageError
from ottla.base.ports import Clock
from ottla.coordinator.shard import Outcome, Transactional
from ottla.coordinator.shard_batch import build_batch, marker_record
from ottla.handlers.context import PartitionTable
from ottla.log.log_config import LONG_MAX
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import EPOCH_MAX, NO_TRANSACTION
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import CONSUMER_OFFSETS
from ottla.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.partition import Partition

EPOCH_PER_TRANSACTION = 2


class MarkerServices(Protocol):
    clock: Clock
    partitions: PartitionTable

    @property
    def image(self) -> MetadataImage: ...
    def request_flush(self, partition: Partition) -> Deferred[None]: ...
    def storage_failed(self, failure: StorageError) -> None: ...


class MarkerWriter:
    """`group_host_at` gives the host of a partition of `__consumer_offsets`, or an error code."""

    def __init__(self, services: MarkerServices, group_host_at: Callable[[int], Any]) -> None:
        self._services = services
        self._group_host_at = group_host_at

    def write(
        self,
        topic: str,
        index: int,
        marker: Transactional,
        *,
        client_version: int = 0,
        is_repeated: bool = False,
    ) -> Deferred[int]:
        """0 when the marker is there for good, else an error code.

        A repeated one is not written again where the transaction is over: it would be the second
        for the same transaction.
        """
        partition = self._services.partitions.find(topic, index)
        code = self._refusal(partition, topic, index)
        if partition is None or partition.log is None or code != NONE:
            return _done(code)
        code = _epoch_refusal(partition.log, marker, client_version)
        if code != NONE:
            return _done(code)
        # With an epoch per transaction, even one that was only late is known by its epoch.
        is_known = is_repeated or client_version >= EPOCH_PER_TRANSACTION
        is_fenced = _is_of_older_coordinator(partition.log, marker)  # the log refuses it
        if is_known and not is_fenced and _is_ended(partition.log, marker):
            # It is there, but a leader that dies now may take it along.
            partition.log.producers.admissions.revoke(marker.producer_id)
            return self._kept(partition, partition.log, partition.log.log_end_offset - 1)
        if topic == CONSUMER_OFFSETS:
            return self._write_to_groups(index, marker)
        return self._append(partition, partition.log, marker)

    def revoke(self, topic: str, index: int, producer_id: int) -> Deferred[int]:
        """0 when the partition asks again before it appends anything for this producer."""
        partition = self._services.partitions.find(topic, index)
        code = self._refusal(partition, topic, index)
        if code == NONE and partition is not None and partition.log is not None:
            partition.log.producers.admissions.revoke(producer_id)
        return _done(code)

    def _refusal(self, partition: Partition | None, topic: str, index: int) -> int:
        if partition is not None:
            return partition.check_leader(-1)
        known = self._services.image.topics.get(topic)
        if known is not None and index in known.partitions:
            return NOT_LEADER_OR_FOLLOWER
        return UNKNOWN_TOPIC_OR_PARTITION

    def _write_to_groups(self, index: int, marker: Transactional) -> Deferred[int]:
        host = self._group_host_at(index)
        if isinstance(host, int):
            is_loading = host == COORDINATOR_LOAD_IN_PROGRESS
            return _done(host if is_loading else NOT_LEADER_OR_FOLLOWER)
        written: Deferred[int] = Deferred()

        def settled(outcome: Deferred[int]) -> None:
            written.resolve(_code_of(outcome))

        host.write(
            lambda shard: Outcome([marker_record(marker)], NONE, transactional=marker)
        ).when_done(settled)
        return written

    def _append(
        self, partition: Partition, held: PartitionLog, marker: Transactional
    ) -> Deferred[int]:
        now_ms = self._services.clock.wall_ms()
        batch, header = build_batch([marker_record(marker)], now_ms, marker)
        try:
            appended = partition.append(batch, header, now_ms, from_client=False)
        except ProtocolError as refused:
            return _done(refused.code)
        except StorageError as failure:
            self._services.storage_failed(failure)
            return _done(KAFKA_STORAGE_ERROR)
        return self._kept(partition, held, appended.last_offset)

    def _kept(self, partition: Partition, held: PartitionLog, offset: int) -> Deferred[int]:
        if held.config.flush_messages != LONG_MAX:
            return self._flushed(partition, offset)
        return _committed(partition, offset)

    def _flushed(self, partition: Partition, offset: int) -> Deferred[int]:
        written: Deferred[int] = Deferred()
        times_led = partition.times_led

        def flushed(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except StorageError:
                written.resolve(KAFKA_STORAGE_ERROR)
                return
            if not partition.has_led_since(times_led):
                # Another leader's watermark says nothing of a marker that it may not have.
                written.resolve(NOT_LEADER_OR_FOLLOWER)
                return
            _committed(partition, offset).when_done(lambda done: written.resolve(done.result()))

        self._services.request_flush(partition).when_done(flushed)
        return written


def _is_ended(held: PartitionLog, marker: Transactional) -> bool:
    entry = held.producers.entries.get(marker.producer_id)
    if entry is None:
        # With its last marker, a producer was forgotten; or it never wrote anything here.
        return marker.producer_epoch == EPOCH_MAX
    return entry.epoch == marker.producer_epoch and entry.transaction_first_offset == NO_TRANSACTION


def _is_of_older_coordinator(held: PartitionLog, marker: Transactional) -> bool:
    entry = held.producers.entries.get(marker.producer_id)
    return entry is not None and marker.coordinator_epoch < entry.coordinator_epoch


def _epoch_refusal(held: PartitionLog, marker: Transactional, client_version: int) -> int:
    """With an epoch per transaction, a marker has one that the partition has not seen yet."""
    if client_version < EPOCH_PER_TRANSACTION:
        return NONE
    entry = held.producers.entries.get(marker.producer_id)
    if entry is None or marker.producer_epoch > entry.epoch or _is_ended(held, marker):
        return NONE
    return INVALID_PRODUCER_EPOCH


def _committed(partition: Partition, offset: int) -> Deferred[int]:
    if partition.high_watermark > offset:
        return _done(NONE)
    return _Wait(partition, offset).done


class _Wait:
    """Parked until the watermark has passed a marker."""

    __slots__ = ("_offset", "done")

    def __init__(self, partition: Partition, offset: int) -> None:
        self.done: Deferred[int] = Deferred()
        self._offset = offset
        partition.add_waiter(self)

    def on_progress(self, partition: Partition, new_bytes: int) -> None:
        if partition.high_watermark > self._offset:
            partition.remove_waiter(self)
            self.done.resolve(NONE)

    def on_gone(self, partition: Partition) -> None:
        self.done.resolve(NOT_LEADER_OR_FOLLOWER)


def _code_of(outcome: Deferred[int]) -> int:
    try:
        return outcome.result()
    except ProtocolError as refused:
        return refused.code
    except OttlaError:
        return UNKNOWN_SERVER_ERROR


def _done(code: int) -> Deferred[int]:
    done: Deferred[int] = Deferred()
    done.resolve(code)
    return done
