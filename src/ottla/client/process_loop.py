"""`process`: the exactly-once loop for plain clients.

with Consumer(..., enable_auto_commit=False, isolation_level="read_committed") as consumer,
     Producer(..., transactional_id="biller-1") as producer:
    consumer.subscribe("payments")
    process(consumer, producer, lambda record: Output("bills", bill_of(record.value)))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.client.consumer import Consumer
from ottla.client.consumer_errors import NotAssignedError
from ottla.client.errors import TimedOutError
from ottla.client.fetch_records import Record
from ottla.client.group_metadata import GroupMetadata
from ottla.client.processing import (
    ATTEMPTS_MAX,
    Function,
    check_settings,
    is_cured_by_abort,
    outputs_of,
    positions_after,
    positions_before,
)
from ottla.client.producer import Producer

_POLL_S = 0.5


def process(
    consumer: Consumer,
    producer: Producer,
    function: Function,
    *,
    is_over: Callable[[], bool] = lambda: False,
    max_records: int | None = None,
) -> int:
    """Reads, calls `function` for each record, writes what it gives: each exactly once.

    Runs until `is_over()` says so, which is asked between transactions; gives how many records
    were read. Whatever the function raises aborts the transaction and ends the loop.
    """
    check_settings(consumer.settings, producer.settings.transactional_id)
    if not producer.is_initialized:
        # First of all: what a dead predecessor left open hides the positions to begin from.
        producer.init_transactions()
    done = failures = 0
    while not is_over():
        records = consumer.poll(_POLL_S, max_records)
        if not records:
            continue
        # Who reads them now: if the group gives them to somebody else, they are not ours to commit.
        group = consumer.group_metadata()
        try:
            _transact(producer, function, records, group)
        except BaseException as error:  # cancelled or interrupted, it may be called again, too
            if producer.is_committing:
                raise  # nobody knows: the next transaction asks first, and goes on behind these
            _rewind(consumer, records)
            failures += 1
            if failures >= ATTEMPTS_MAX or not is_cured_by_abort(error):
                raise
            continue
        failures = 0
        done += len(records)
    return done


def _transact(
    producer: Producer, function: Function, records: Sequence[Record], group: GroupMetadata
) -> None:
    try:
        with producer.transaction():
            for record in records:
                for output in outputs_of(function(record)):
                    producer.send(*output)
            producer.send_offsets(positions_after(records), group)
    except TimedOutError:
        if not producer.is_committing:
            raise
        _commit_again(producer)


def _commit_again(producer: Producer) -> None:
    """Asked for, and not answered: only asking again tells what became of it."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            producer.commit_transaction()
        except TimedOutError:
            if attempt == ATTEMPTS_MAX - 1:
                raise
        else:
            return


def _rewind(consumer: Consumer, records: Sequence[Record]) -> None:
    for partition, offset in positions_before(records).items():
        try:
            consumer.seek(partition, offset)
        except NotAssignedError:
            continue  # somebody else reads it now, from what is committed
