"""A transactional producer's conversation with its coordinator, in both of Kafka's versions.

Owns the state of the transaction. Version 2 (KIP-890) where the cluster has finalized
`transaction.version` 2: partitions join by being written to, and each end of a transaction brings a
new epoch; else version 1: partitions are added before the first write.

An error that spoils a transaction makes it *abortable*: nothing more is sent, a commit raises the
error, an abort cures it. Fencing and missing rights are *fatal*: only closing is left. An old epoch
may mean either: the coordinator takes it from who runs out of time, too, so an abort has to ask.

Never sends records itself. Always holds: what was sent in a transaction is decided by exactly one
EndTxn that the coordinator has acknowledged, or left open for the coordinator's time-out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.client.accumulator import Accumulator
from ottla.client.consumer_errors import CommitFailedError
from ottla.client.coordinator_calls import CoordinatorCalls
from ottla.client.coordinators import GROUP, TRANSACTION
from ottla.client.core import Core
from ottla.client.errors import (
    AuthorizationError,
    BrokerError,
    ClientError,
    FencedError,
    TransactionAbortableError,
    TransactionStateError,
    UnsupportedByBrokerError,
    error_for,
)
from ottla.client.group_metadata import GroupMetadata, OffsetAndMetadata, as_offsets
from ottla.client.lanes import Lane
from ottla.client.pending import Flow
from ottla.client.producer_batch import ProducerBatch
from ottla.client.producer_identity import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from ottla.client.producer_settings import ProducerSettings
from ottla.client.sender import Sender
from ottla.protocol import error_codes as codes
from ottla.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)

logger = logging.getLogger("ottla.client")

NEW = "not initialized"
READY = "without a transaction"
OPEN = "in a transaction"
COMMITTING = "committing"
ABORTING = "aborting"
SPOILED = "spoiled, to be aborted"
PREPARED = "prepared"
DEAD = "dead"

_FEATURE = "transaction.version"
# Versions that belong to version 2 only: Produce 12, EndTxn 5, TxnOffsetCommit 5.
_PRODUCE_V2 = 12
_END_V2 = 5
_COMMIT_V2 = 5
_EPOCH_CHECK_VERSION = 3  # of InitProducerId: takes id and epoch, and bumps (KIP-360)
TWO_PHASE_VERSION = 6
# The group has gone on without the member for which offsets were sent.
_OUSTED_CODES = frozenset({codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION})
_FATAL_CODES = frozenset(
    {
        codes.PRODUCER_FENCED,
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        codes.INVALID_TXN_STATE,
        codes.INVALID_PRODUCER_ID_MAPPING,
    }
)


class PreparedTransaction(NamedTuple):
    """What somebody else needs to commit or abort it (`complete_transaction`)."""

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionAbortedError(ClientError):
    """The record was not sent, because its transaction was aborted."""


class Transactions:
    def __init__(
        self,
        core: Core,
        settings: ProducerSettings,
        accumulator: Accumulator,
        sender: Sender,
        identity: ProducerIdentity,
    ) -> None:
        assert settings.transactional_id is not None
        self._core = core
        self._settings = settings
        self._accumulator = accumulator
        self._sender = sender
        self._identity = identity
        self._calls = CoordinatorCalls(core)
        self.transactional_id = settings.transactional_id
        self.state = NEW
        self.error: OttlaError | None = None
        self.is_v2 = False
        self.produce_version_min: int | None = None
        self.produce_version_max: int | None = None
        self._has_begun = False  # whether the coordinator knows of this transaction
        self._lanes: set[Lane] = set()
        self._to_add: set[Lane] = set()
        self._adding: Flow[None] | None = None
        self._needs_new_epoch = False
        self._asked_to_commit = False
        self._is_ending = False  # whether a call that ends the transaction is under way

    # --------------------------------------------------------------------------------- state

    def check_may_append(self) -> None:
        if self.state == OPEN:
            return
        self._raise_error()
        raise TransactionStateError(f"send needs a transaction; the producer is {self.state}")

    @property
    def may_abort(self) -> bool:
        return self.state in (OPEN, SPOILED, ABORTING, COMMITTING) and not self.is_deciding

    @property
    def is_deciding(self) -> bool:
        """Whether the coordinator may have committed: there is no way back to an abort."""
        return self.state == COMMITTING and self._asked_to_commit

    @property
    def is_unfinished(self) -> bool:
        """Whether a call that was to end the transaction ended too early itself."""
        return not self._is_ending and (self.state == ABORTING or self.is_deciding)

    def _expect(self, call: str, *states: str) -> None:
        if self.state in states:
            return
        self._raise_error()
        raise TransactionStateError(f"{call} does not fit: the producer is {self.state}")

    def _raise_error(self) -> None:
        if self.error is not None and self.state in (SPOILED, DEAD):
            raise self.error

    def raise_if_fenced(self) -> None:
        if isinstance(self.error, FencedError):
            raise self.error

    def _spoil(self, error: OttlaError) -> None:
        """The transaction can only be aborted now; what waits to be sent is given up."""
        if self.state not in (OPEN, COMMITTING):
            return
        self.state = SPOILED
        self.error = error
        self._sender.fail_all(error, unsent_only=True)

    def _die(self, error: OttlaError) -> None:
        if self.state != DEAD:
            self.state = DEAD
            self.error = error
            self._sender.fail_all(error)

    def _judge(self, code: int, what: str, message: str | None = None) -> None:
        """Raises for a code that is not NONE, and remembers what it means for the transaction."""
        if code == codes.NONE:
            return
        if code == codes.INVALID_PRODUCER_EPOCH:
            code = codes.PRODUCER_FENCED  # what coordinators said before they had a code for it
        error = error_for(code, what, message)
        if code in _OUSTED_CODES:
            error = CommitFailedError(code, what, message)
        if code in _FATAL_CODES:
            self._die(error)
        else:
            self._spoil(error)
        raise error

    def _raise_abortable(self, code: int, what: str) -> NoReturn:
        """The coordinator has ended the transaction by itself, or fenced this producer: only an
        abort will tell."""
        error = TransactionAbortableError(code, what)
        self._spoil(error)
        raise error

    # ------------------------------------------------------------------------- for the sender

    def may_send(self, lane: Lane) -> bool:
        if self.is_v2:
            self._has_begun = True
            self._lanes.add(lane)
            return self.state != DEAD
        if lane in self._lanes:
            return self.state != DEAD
        if self.state in (OPEN, COMMITTING):
            self._to_add.add(lane)
            if self._adding is None:
                self._adding = self._core.spawn(self._add_partitions())
        return False

    def on_failed(self, batch: ProducerBatch, error: OttlaError) -> None:
        if batch.lane.needs_new_epoch:
            self._needs_new_epoch = True
        if isinstance(error, UnsupportedByBrokerError) or (
            isinstance(error, BrokerError) and error.code in _FATAL_CODES
        ):
            self._die(error)
        else:
            self._spoil(error)

    async def _add_partitions(self) -> None:
        """Version 1: each partition is announced before its first record."""
        try:
            while self._to_add:
                lanes, self._to_add = self._to_add, set()
                await self._add(lanes)
        except OttlaError as error:
            self._spoil(error)
        finally:
            self._adding = None

    async def _add(self, lanes: set[Lane]) -> None:
        topics: dict[str, list[int]] = {}
        for lane in lanes:
            topics.setdefault(lane.topic, []).append(lane.partition)
        named = [{"name": name, "partitions": sorted(some)} for name, some in topics.items()]
        answer = await self._calls.ask(
            TRANSACTION,
            self.transactional_id,
            ADD_PARTITIONS_TO_TXN,
            lambda: {
                "v3_and_below_transactional_id": self.transactional_id,
                "v3_and_below_producer_id": self._identity.producer_id,
                "v3_and_below_producer_epoch": self._identity.epoch,
                "v3_and_below_topics": named,
            },
            self._core.now_ms + self._settings.delivery_timeout_ms,
            what="adding partitions to the transaction",
            code_of=_first_code_of_partitions,
        )
        self._judge(_first_code_of_partitions(answer), "adding partitions to the transaction")
        self._has_begun = True
        self._lanes |= lanes
        for lane in lanes:
            self._accumulator.enqueue(lane)

    # ----------------------------------------------------------------------------- the calls

    async def initialize(self, deadline_ms: float, *, keep_prepared: bool = False) -> None:
        """A producer id and epoch; whoever had this transactional id is fenced."""
        self._expect("init_transactions", NEW)
        two_phase = self._settings.transaction_two_phase_commit_enable
        answer = await self._init_producer_id(
            deadline_ms,
            two_phase=two_phase,
            keep_prepared=keep_prepared,
            version_min=TWO_PHASE_VERSION if two_phase or keep_prepared else None,
        )
        self._identity.set(answer.producer_id, answer.producer_epoch)
        self.state = READY
        if keep_prepared and answer.ongoing_txn_producer_id >= 0:
            self._has_begun = True
            self.state = PREPARED
        self._choose_version()

    async def _init_producer_id(
        self,
        deadline_ms: float,
        *,
        two_phase: bool = False,
        keep_prepared: bool = False,
        bump: bool = False,
        version_min: int | None = None,
    ) -> Any:
        known = self._identity.producer_id, self._identity.epoch
        producer_id, epoch = known if bump else (NO_PRODUCER_ID, NO_EPOCH)
        answer = await self._calls.ask(
            TRANSACTION,
            self.transactional_id,
            INIT_PRODUCER_ID,
            lambda: {
                "transactional_id": self.transactional_id,
                "transaction_timeout_ms": self._settings.transaction_timeout_ms,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "enable2_pc": two_phase,
                "keep_prepared_txn": keep_prepared,
            },
            deadline_ms,
            what=f"the transactional id {self.transactional_id}",
            version_min=version_min,
        )
        code = answer.error_code
        if code == codes.INVALID_PRODUCER_EPOCH:
            code = codes.PRODUCER_FENCED
        if code != codes.NONE:
            error = error_for(code, f"the transactional id {self.transactional_id}")
            if isinstance(error, FencedError | AuthorizationError):
                self._die(error)
            raise error
        return answer

    def _choose_version(self) -> None:
        self.is_v2 = self._core.finalized_feature(_FEATURE) >= 2
        self.produce_version_min = _PRODUCE_V2 if self.is_v2 else None
        self.produce_version_max = None if self.is_v2 else _PRODUCE_V2 - 1

    def begin(self) -> None:
        self._expect("begin_transaction", READY)
        self._choose_version()
        self._has_begun = False
        self._lanes.clear()
        self._to_add.clear()
        self.error = None
        self._asked_to_commit = False
        self.state = OPEN

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: GroupMetadata,
        deadline_ms: float,
    ) -> None:
        """These positions of a group count if and only if the transaction commits."""
        self._expect("send_offsets", OPEN)
        positions = as_offsets(offsets)
        if not positions:
            return
        if not self.is_v2:
            answer = await self._calls.ask(
                TRANSACTION,
                self.transactional_id,
                ADD_OFFSETS_TO_TXN,
                lambda: {
                    "transactional_id": self.transactional_id,
                    "producer_id": self._identity.producer_id,
                    "producer_epoch": self._identity.epoch,
                    "group_id": group.group_id,
                },
                deadline_ms,
                what=f"adding the offsets of {group.group_id}",
            )
            self._judge(answer.error_code, f"adding the offsets of {group.group_id}")
        self._has_begun = True
        what = f"offsets of {group.group_id}"
        topics = _offset_topics(positions)
        answer = await self._calls.ask(
            GROUP,
            group.group_id,
            TXN_OFFSET_COMMIT,
            lambda: {
                "transactional_id": self.transactional_id,
                "group_id": group.group_id,
                "producer_id": self._identity.producer_id,
                "producer_epoch": self._identity.epoch,
                "generation_id": group.generation_id,
                "member_id": group.member_id,
                "group_instance_id": group.group_instance_id,
                "topics": topics,
            },
            deadline_ms,
            what=what,
            code_of=_first_code_of_offsets,
            version_min=_COMMIT_V2 if self.is_v2 else None,
            version_max=None if self.is_v2 else _COMMIT_V2 - 1,
        )
        code = _first_code_of_offsets(answer)
        if code == codes.INVALID_PRODUCER_EPOCH and self.is_v2:
            self._raise_abortable(code, what)
        self._judge(code, what)

    async def commit(self, deadline_ms: float) -> None:
        """Until the coordinator has decided. After a time-out, call it again."""
        self._expect("commit_transaction", OPEN, COMMITTING)
        self.state = COMMITTING
        await self._core.within(self._accumulator.flushed(), deadline_ms, "commit")
        self._raise_error()
        await self._end(commit=True, deadline_ms=deadline_ms)

    async def abort(self, deadline_ms: float) -> None:
        self._expect("abort_transaction", OPEN, SPOILED, ABORTING, COMMITTING)
        if self.is_deciding:
            raise TransactionStateError("a commit was asked for, and may have happened: ask again")
        why = self.error or TransactionAbortedError("the transaction was aborted")
        self.state = ABORTING
        self._sender.fail_all(why, unsent_only=True)
        await self._core.within(self._accumulator.flushed(), deadline_ms, "abort")
        await self._end(commit=False, deadline_ms=deadline_ms)

    async def prepare(self, deadline_ms: float) -> PreparedTransaction:
        """Sends everything and leaves the decision to whoever holds the answer.

        From here on the coordinator takes no more records of it and never times it out.
        """
        self._expect("prepare_transaction", OPEN)
        self.state = COMMITTING
        await self._core.within(self._accumulator.flushed(), deadline_ms, "prepare")
        self._raise_error()
        answer = await self._init_producer_id(
            deadline_ms,
            two_phase=True,
            keep_prepared=True,
            bump=True,
            version_min=TWO_PHASE_VERSION,
        )
        self._identity.set(answer.producer_id, answer.producer_epoch)
        self.state = PREPARED
        return PreparedTransaction(self.transactional_id, answer.producer_id, answer.producer_epoch)

    async def complete(self, deadline_ms: float, *, commit: bool) -> None:
        """Decides what was prepared."""
        self._expect("complete_transaction", PREPARED)
        await self._end(commit=commit, deadline_ms=deadline_ms)

    async def finish(self, deadline_ms: float) -> None:
        """Ends what an earlier call could not: an abort, or a commit of unknown outcome."""
        if self.is_deciding:
            await self.commit(deadline_ms)
        elif self.state == ABORTING:
            await self.abort(deadline_ms)

    async def close(self, deadline_ms: float) -> None:
        """Aborts what is open; a commit that was asked for is asked for again; what is prepared
        stays."""
        try:
            if self.may_abort:
                await self.abort(deadline_ms)
            else:
                await self.finish(deadline_ms)
        except ClientError as error:
            logger.warning(
                "%s: its transaction was not ended (%s); the coordinator aborts it after"
                " transaction.timeout.ms",
                self.transactional_id,
                error,
            )

    async def _end(self, *, commit: bool, deadline_ms: float) -> None:
        self._is_ending = True
        try:
            if self._adding is not None:
                # Only its answer tells whether the coordinator knows of the transaction.
                self._to_add.clear()
                await self._core.within(self._adding, deadline_ms, "partitions of a transaction")
            await self._tell_end(commit=commit, deadline_ms=deadline_ms)
        finally:
            self._is_ending = False

    async def _tell_end(self, *, commit: bool, deadline_ms: float) -> None:
        if self._has_begun:
            self._asked_to_commit = commit
            answer = await end_transaction(
                self._calls,
                PreparedTransaction(
                    self.transactional_id, self._identity.producer_id, self._identity.epoch
                ),
                deadline_ms,
                commit=commit,
                version_min=_END_V2 if self.is_v2 else None,
                version_max=None if self.is_v2 else _END_V2 - 1,
            )
            what = f"{'commit' if commit else 'abort'} of {self.transactional_id}"
            code = answer.error_code
            if code == codes.INVALID_TXN_STATE and self.state == COMMITTING and self.is_v2:
                self._raise_abortable(code, what)  # a commit said twice is answered as the first
            self._judge(code, what)
            if answer.producer_id >= 0:
                self._identity.set(answer.producer_id, answer.producer_epoch)
                self._needs_new_epoch = False
        if self._needs_new_epoch:
            # Numbers were left out, which the brokers would take for a gap (KIP-360).
            answer = await self._init_producer_id(
                deadline_ms, bump=True, version_min=_EPOCH_CHECK_VERSION
            )
            self._identity.set(answer.producer_id, answer.producer_epoch)
            self._needs_new_epoch = False
        self.state = READY
        self.error = None


async def end_transaction(
    calls: CoordinatorCalls,
    prepared: PreparedTransaction,
    deadline_ms: float,
    *,
    commit: bool,
    forget: bool = False,
    version_min: int | None = None,
    version_max: int | None = None,
) -> Any:
    """EndTxn, which may be said twice, so it is said until it is answered."""
    return await calls.ask(
        TRANSACTION,
        prepared.transactional_id,
        END_TXN,
        lambda: {
            "transactional_id": prepared.transactional_id,
            "producer_id": prepared.producer_id,
            "producer_epoch": prepared.epoch,
            "committed": commit,
            "forget_transactional_id": forget,
        },
        deadline_ms,
        what=f"{'commit' if commit else 'abort'} of {prepared.transactional_id}",
        version_min=version_min,
        version_max=version_max,
    )


def _offset_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[Any]:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), position in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": position.offset,
                "committed_leader_epoch": position.leader_epoch,
                "committed_metadata": position.metadata,
            }
        )
    return [{"name": name, "partitions": some} for name, some in topics.items()]


def _first_code_of_offsets(answer: Any) -> int:
    return _worst([one.error_code for topic in answer.topics for one in topic.partitions])


def _first_code_of_partitions(answer: Any) -> int:
    return _worst(
        [
            one.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        ]
    )


def _worst(found: list[int]) -> int:
    """A refusal of its own before one that only says that others were refused."""
    wrong = [code for code in found if code != codes.NONE]
    own = [code for code in wrong if code != codes.OPERATION_NOT_ATTEMPTED]
    return (own or wrong or [codes.NONE])[0]
