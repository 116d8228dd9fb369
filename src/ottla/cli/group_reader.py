"""Reads records as a member of a consumer group; commits when told, never by itself.

Partitions come and go while `read` runs: the listener is told at once, before the group hands them
on, so that it can commit what it has done; the records of a call come after all that it told. Knows
the client.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from ottla.base.ids import TopicPartition
from ottla.cli.client_errors import reason_of
from ottla.cli.failure import Failure
from ottla.cli.group_model import AssignmentListener, CommitOvertaken, Membership
from ottla.cli.model import EndReached, ReceivedRecord
from ottla.cli.record_reader import EventSource, consumer_settings
from ottla.client.consumer_errors import CommitFailedError, NotAssignedError
from ottla.client.errors import BrokerError, ClientError, FencedError
from ottla.protocol import error_codes as codes

RESETS = {"beginning": "earliest", "end": "latest"}
# The group has gone on without us, or is about to: what we commit is no longer ours to say.
OVERTAKEN = frozenset(
    {
        codes.ILLEGAL_GENERATION,
        codes.UNKNOWN_MEMBER_ID,
        codes.REBALANCE_IN_PROGRESS,
        codes.STALE_MEMBER_EPOCH,
    }
)


class GroupReader:
    def __init__(
        self,
        client_settings: Mapping[str, str],
        membership: Membership,
        listener: AssignmentListener,
        *,
        committed: bool,
    ) -> None:
        self._group = membership.group
        self._listener = listener
        self._failure: Failure | None = None
        settings = consumer_settings(client_settings, committed=committed)
        settings["group.id"] = membership.group
        settings["auto.offset.reset"] = RESETS[membership.start]
        if membership.protocol is not None:
            settings["group.protocol"] = str(membership.protocol)
        if membership.instance_id is not None:
            settings["group.instance.id"] = membership.instance_id
        self._source = EventSource(settings)

    @property
    def connection_lost(self) -> str | None:
        return self._source.connection_lost()

    def subscribe(self, topics: Sequence[str]) -> None:
        self._source.consumer.subscribe(
            list(topics),
            on_assigned=self._telling(self._listener.on_assigned),
            on_revoked=self._telling(self._listener.on_revoked),
            on_lost=self._telling(self._listener.on_lost),
        )

    def read(self, timeout_s: float, records_max: int) -> list[ReceivedRecord | EndReached]:
        """What has come, after at most so long; `connection_lost` says whether nobody is there."""
        try:
            events = self._source.read(timeout_s, records_max)
        except FencedError as cause:
            raise Failure(f"the group refused this member: {reason_of(cause)}") from cause
        except ClientError as cause:
            raise Failure(f"group {self._group}: {reason_of(cause)}") from cause
        self._raise_failure()
        return events

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """`offsets`: of the next record to read. Returns when the group has taken them."""
        try:
            self._source.consumer.commit(dict(offsets))
        except ClientError as cause:
            raise _commit_error(cause) from cause

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Reads on from these offsets, in those of the partitions that are still ours."""
        for partition, offset in offsets.items():
            # A partition that is gone needs no rewinding.
            with contextlib.suppress(NotAssignedError):
                self._source.consumer.seek(partition, offset)

    def close(self) -> None:
        """Leaves the group, unless it is a static member: those keep their place."""
        self._source.consumer.close()
        self._raise_failure()

    def _telling(
        self, listener: Callable[[list[TopicPartition]], None]
    ) -> Callable[[list[TopicPartition]], None]:
        def tell(partitions: list[TopicPartition]) -> None:
            # An exception would keep the consumer from leaving its group.
            try:
                listener(sorted(partitions))
            except Failure as failure:
                self._failure = failure

        return tell

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _commit_error(error: ClientError) -> Exception:
    is_overtaken = isinstance(error, CommitFailedError | NotAssignedError)
    if is_overtaken or (isinstance(error, BrokerError) and error.code in OVERTAKEN):
        return CommitOvertaken(reason_of(error))
    return Failure(f"the commit failed: {reason_of(error)}")
