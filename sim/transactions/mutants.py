"""Bugs to plant: each breaks one rule of the real machines, and the world has to find it.

They are patches, undone afterwards; nothing of them is in the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from ottla.base.deferred import Deferred
from ottla.coordinator import transaction_end, transaction_init, transaction_shard
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Outcome
from ottla.coordinator.transaction_asks import Step, answer_of
from ottla.coordinator.transaction_records import (
    NO_ID,
    NO_TIMEOUT,
    NOT_TAKEN,
    ONGOING,
    transaction_record,
)
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.handlers import api_00_produce, api_28_txn_offset_commit
from ottla.log.admissions import Admissions
from ottla.log.producer_state import ProducerStates
from ottla.log.txn_index import TxnIndex
from ottla.protocol.error_codes import CONCURRENT_TRANSACTIONS
from ottla.replication.partition import Partition
from ottla.runtime import marker_writer

Patch = tuple[Any, str, Any]


def _done(value: Any) -> Deferred[Any]:
    done: Deferred[Any] = Deferred()
    done.resolve(value)
    return done


# -- those that the issue names ---------------------------------------------------------------


def _append_without_verification() -> Patch:
    def admit(context: Any, name: Any, header: Any, places: Any) -> Deferred[Any]:
        return _done(dict.fromkeys(places, 0))

    return api_00_produce, "admit", admit


def _marker_written_twice() -> Patch:
    return marker_writer, "_is_ended", lambda held, marker: False


def _decision_not_replayed() -> Patch:
    return TransactionShard, "resume_decided", lambda shard: Outcome((), None)


def _epoch_not_bumped_on_time_out() -> Patch:
    real = transaction_init.fence_step

    def fence_step(held: Any, code: int, now_ms: int, own_epoch: int) -> Step:
        step = real(held, code, now_ms, own_epoch)
        assert step.to is not None
        return Step(step.answer, step.to._replace(producer_epoch=held.producer_epoch))

    return transaction_shard, "fence_step", fence_step


def _stable_offset_ahead_of_an_open_transaction() -> Patch:
    return Partition, "last_stable_offset", property(lambda partition: partition.high_watermark)


def _offsets_visible_before_the_commit() -> Patch:
    real = GroupShard.replay

    def replay(shard: Any, record: Any, producer_id: int = NO_ID) -> None:
        real(shard, record, NO_ID)

    return GroupShard, "replay", replay


# -- the coordinator --------------------------------------------------------------------------


def _markers_before_the_decision_is_kept() -> Patch:
    def outcome_of(shard: Any, transactional_id: str, step: Step) -> Outcome[Any]:
        if step.to is None:
            return Outcome((), step.answer)
        if step.to.state in (2, 3):
            task = transaction_end.marker_task(transactional_id, step.to, is_repeated=False)
            shard._begin(task)
        return Outcome([transaction_record(transactional_id, step.to)], step.answer)

    return TransactionShard, "_outcome", outcome_of


def _epoch_stays_from_one_transaction_to_the_next() -> Patch:
    return transaction_end, "_bumped", lambda ending, fresh_id: ending


def _any_epoch_may_end() -> Patch:
    real = transaction_end._end_with_bump

    def end(held: Any, asked: Any, fresh_id: Any, now_ms: int) -> Step:
        if held.state == ONGOING and asked.producer_id == held.producer_id:
            asked = asked._replace(producer_epoch=held.client()[1])
        return real(held, asked, fresh_id, now_ms)

    return transaction_end, "_end_with_bump", end


def _the_opposite_of_what_was_decided_is_accepted() -> Patch:
    real = transaction_end._end_with_bump

    def end(held: Any, asked: Any, fresh_id: Any, now_ms: int) -> Step:
        step = real(held, asked, fresh_id, now_ms)
        if step.answer.get("error_code") == 48:
            return Step({**step.answer, "error_code": 0})
        return step

    return transaction_end, "_end_with_bump", end


def _prepared_transactions_run_out_of_time() -> Patch:
    def is_timed_out(shard: Any, transactional_id: str, held: Any) -> bool:
        return bool(held.state == ONGOING and shard._clock.wall_ms() > held.started_ms + 4000)

    return TransactionShard, "_is_timed_out", is_timed_out


def _writers_go_on_after_the_prepare() -> Patch:
    return Admissions, "revoke", lambda admissions, producer_id: None


def _partitions_are_added_to_what_is_prepared() -> Patch:
    real = transaction_shard._owner_refusal

    def refusal(held: Any, producer_id: int, epoch: int) -> int:
        if held is not None and held.is_prepared():
            held = held._replace(next_producer_id=-1, next_producer_epoch=-1)
        return real(held, producer_id, epoch)

    return transaction_shard, "_owner_refusal", refusal


def _a_late_request_aborts_what_is_prepared() -> Patch:
    real = transaction_init.init_step

    def init_step(held: Any, asked: Any, *rest: Any) -> Step:
        if held is not None:
            held = held._replace(timeout_before_ms=NOT_TAKEN)
        return real(held, asked, *rest)

    return transaction_shard, "init_step", init_step


def _an_older_client_ends_what_was_kept() -> Patch:
    real = transaction_end._end_with_bump

    def end(held: Any, asked: Any, fresh_id: Any, now_ms: int) -> Step:
        own = (held.producer_id, held.producer_epoch)
        if held.is_prepared() and (asked.producer_id, asked.producer_epoch) == own:
            producer_id, epoch = held.client()
            asked = asked._replace(producer_id=producer_id, producer_epoch=epoch)
        return real(held, asked, fresh_id, now_ms)

    return transaction_end, "_end_with_bump", end


def _the_time_out_comes_back_before_the_end() -> Patch:
    real = transaction_init._keep

    def keep(held: Any, asked: Any, *rest: Any) -> Step:
        step = real(held, asked, *rest)
        if asked.producer_id != NO_ID or step.to is None:
            return step
        return Step(step.answer, step.to._replace(timeout_ms=4000))

    return transaction_init, "_keep", keep


def _what_was_kept_is_aborted_by_nobody() -> Patch:
    real = transaction_init.init_step

    def init_step(held: Any, asked: Any, *rest: Any) -> Step:
        is_kept = held is not None and held.is_prepared() and held.timeout_ms == NO_TIMEOUT
        if is_kept and not (asked.enable_2pc or asked.keep_prepared):
            return Step(answer_of(CONCURRENT_TRANSACTIONS))
        return real(held, asked, *rest)

    return transaction_shard, "init_step", init_step


def _forgotten_ids_leave_their_producers_behind() -> Patch:
    real = transaction_end.marker_task

    def marker_task(name: str, decided: Any, *, is_repeated: bool) -> Any:
        return real(name, decided._replace(forgets=False), is_repeated=is_repeated)

    return transaction_shard, "marker_task", marker_task


# -- partitions -------------------------------------------------------------------------------


def _a_late_yes_counts() -> Patch:
    return api_00_produce, "is_answer_good", lambda *arguments: True


def _a_late_yes_counts_for_offsets() -> Patch:
    return api_28_txn_offset_commit, "is_answer_good", lambda *arguments: True


def _repeated_markers_are_not_waited_for() -> Patch:
    real = marker_writer.MarkerWriter.write

    def write(writer: Any, topic: str, index: int, marker: Any, **options: Any) -> Any:
        partition = writer._services.partitions.find(topic, index)
        written = real(writer, topic, index, marker, **options)
        if options.get("is_repeated") and partition is not None and not written.done:
            return _done(0)
        return written

    return marker_writer.MarkerWriter, "write", write


def _late_markers_end_the_next_transaction() -> Patch:
    return marker_writer, "_epoch_refusal", lambda held, marker, client_version: 0


def _aborted_transactions_are_not_noted() -> Patch:
    return TxnIndex, "append", lambda index, transaction: None


def _every_sequence_is_taken() -> Patch:
    return ProducerStates, "check", lambda states, header, from_client: None


def _open_transactions_are_lost_with_the_leader() -> Patch:
    real = ProducerStates.load

    def load(states: Any, *arguments: Any) -> None:
        real(states, *arguments)
        states.open_transactions.clear()
        for entry in states.entries.values():
            entry.transaction_first_offset = -1

    return ProducerStates, "load", load


def _stable_before_the_marker_is_committed() -> Patch:
    def first_unstable(states: Any) -> int | None:
        return min(states.open_transactions, default=None)

    return ProducerStates, "first_unstable_offset", first_unstable


MUTANTS: dict[str, Callable[[], Patch]] = {
    one.__name__.removeprefix("_"): one
    for one in (
        _append_without_verification,
        _marker_written_twice,
        _decision_not_replayed,
        _epoch_not_bumped_on_time_out,
        _stable_offset_ahead_of_an_open_transaction,
        _offsets_visible_before_the_commit,
        _markers_before_the_decision_is_kept,
        _epoch_stays_from_one_transaction_to_the_next,
        _any_epoch_may_end,
        _the_opposite_of_what_was_decided_is_accepted,
        _prepared_transactions_run_out_of_time,
        _writers_go_on_after_the_prepare,
        _partitions_are_added_to_what_is_prepared,
        _a_late_request_aborts_what_is_prepared,
        _an_older_client_ends_what_was_kept,
        _the_time_out_comes_back_before_the_end,
        _what_was_kept_is_aborted_by_nobody,
        _forgotten_ids_leave_their_producers_behind,
        _a_late_yes_counts,
        _a_late_yes_counts_for_offsets,
        _repeated_markers_are_not_waited_for,
        _late_markers_end_the_next_transaction,
        _aborted_transactions_are_not_noted,
        _every_sequence_is_taken,
        _open_transactions_are_lost_with_the_leader,
        _stable_before_the_marker_is_committed,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        where, attribute, bug = MUTANTS[name]()
        stack.enter_context(patch.object(where, attribute, bug))
        yield
