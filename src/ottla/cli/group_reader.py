"""Reads records as a member of a consumer group; commits when told, never by itself.

Partitions come and go while `read` runs: the listener is told at once, before the group hands them
on, so that it can commit what it has done. A record of a partition that goes away while records are
being gathered is dropped here, because its next owner reads it. Knows the client library.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ottla.base.ids import TopicPartition
from ottla.cli.client_errors import reason_of
from ottla.cli.failure import Failure
from ottla.cli.group_model import AssignmentListener, CommitOvertaken, Membership
from ottla.cli.model import EndReached, ReceivedRecord
from ottla.cli.record_reader import event_of

RESETS = {"beginning": "earliest", "end": "latest"}
# The group has gone on without us, or is about to: what we commit is no longer ours to say.
OVERTAKEN = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
    }
)


class GroupReader:
    def __init__(
        self,
        client_settings: Mapping[str, Any],
        membership: Membership,
        listener: AssignmentListener,
        *,
        committed: bool,
    ) -> None:
        self.connection_lost: str | None = None
        self._group = membership.group
        self._listener = listener
        self._gathered: list[ReceivedRecord | EndReached] = []
        self._failure: Failure | None = None
        settings = {
            **client_settings,
            "group.id": membership.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": RESETS[membership.start],
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "error_cb": self._on_error,
        }
        if membership.protocol is not None:
            settings["group.protocol"] = membership.protocol
        if membership.instance_id is not None:
            settings["group.instance.id"] = membership.instance_id
        try:
            self._consumer: Any = Consumer(settings)
        except KafkaException as cause:
            raise Failure(f"bad consumer settings: {cause.args[0].str()}") from cause

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(
            list(topics),
            on_assign=self._on_assign,
            on_revoke=self._telling(self._listener.on_revoked),
            on_lost=self._telling(self._listener.on_lost),
        )

    def read(self, timeout_s: float, records_max: int) -> list[ReceivedRecord | EndReached]:
        """What has come, after at most so long; `connection_lost` says whether nobody is there."""
        self._gathered = []
        message = self._consumer.poll(timeout_s)
        # One by one: only so is it known which records came before a partition went away.
        while message is not None:
            self.connection_lost = None
            self._gather(message)
            if len(self._gathered) >= records_max:
                break
            message = self._consumer.poll(0)
        self._raise_failure()
        return self._gathered

    def _gather(self, message: Any) -> None:
        error = message.error()
        if error is None or message.topic() is not None:
            self._gathered.append(event_of(message))
        elif error.code() != KafkaError._MAX_POLL_EXCEEDED:
            # Of that one the listener hears by `on_lost`, and the library joins again.
            raise Failure(f"group {self._group}: {reason_of(error)}")

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """`offsets`: of the next record to read. Returns when the group has taken them."""
        wanted = [
            KafkaTopicPartition(topic, partition, offset)
            for (topic, partition), offset in offsets.items()
        ]
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as cause:
            raise _commit_error(cause.args[0]) from cause
        for one in answers:
            if one.error is not None:
                raise _commit_error(one.error)

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Reads on from these offsets, in those of the partitions that are still ours."""
        for (topic, partition), offset in offsets.items():
            # A partition that is gone needs no rewinding.
            with contextlib.suppress(KafkaException):
                self._consumer.seek(KafkaTopicPartition(topic, partition, offset))

    def close(self) -> None:
        """Leaves the group, unless it is a static member: those keep their place."""
        self._consumer.close()
        self._raise_failure()

    def _on_assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._keep_failure(self._listener.on_assigned, partitions)

    def _telling(
        self, listener: Callable[[list[TopicPartition]], None]
    ) -> Callable[[Any, Sequence[Any]], None]:
        def tell(consumer: Any, partitions: Sequence[Any]) -> None:
            gone = {(one.topic, one.partition) for one in partitions}
            self._gathered = [one for one in self._gathered if _partition_of(one) not in gone]
            self._keep_failure(listener, partitions)

        return tell

    def _keep_failure(
        self, listener: Callable[[list[TopicPartition]], None], partitions: Sequence[Any]
    ) -> None:
        # An exception would travel through the library, which ends the process for some.
        try:
            listener(sorted((one.topic, one.partition) for one in partitions))
        except Failure as failure:
            self._failure = failure

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.connection_lost = reason_of(error)
        elif error.fatal():
            self._failure = Failure(f"the group refused this member: {reason_of(error)}")


def _partition_of(event: ReceivedRecord | EndReached) -> TopicPartition:
    return event.partition if isinstance(event, EndReached) else (event.topic, event.partition)


def _commit_error(error: KafkaError) -> Exception:
    if error.code() in OVERTAKEN:
        return CommitOvertaken(reason_of(error))
    return Failure(f"the commit failed: {reason_of(error)}")
