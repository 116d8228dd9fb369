"""`process`: the exactly-once loop for clients on asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable

from ottla.client.aio_consumer import AsyncConsumer
from ottla.client.aio_producer import AsyncProducer
from ottla.client.consumer_errors import NotAssignedError
from ottla.client.errors import TimedOutError
from ottla.client.fetch_records import Record
from ottla.client.group_metadata import GroupMetadata
from ottla.client.processing import (
    ATTEMPTS_MAX,
    Outputs,
    check_settings,
    is_cured_by_abort,
    outputs_of,
    positions_after,
    positions_before,
)

_POLL_S = 0.5
AsyncFunction = Callable[[Record], Outputs | Awaitable[Outputs]]


async def process(
    consumer: AsyncConsumer,
    producer: AsyncProducer,
    function: AsyncFunction,
    *,
    is_over: Callable[[], bool] = lambda: False,
    max_records: int | None = None,
) -> int:
    """Reads, calls `function` (which may be a coroutine function) for each record, writes what it
    gives: each exactly once. Runs until `is_over()` says so; gives how many records were read."""
    check_settings(consumer.settings, producer.settings.transactional_id)
    if not producer.is_initialized:
        # First of all: what a dead predecessor left open hides the positions to begin from.
        await producer.init_transactions()
    done = failures = 0
    while not is_over():
        records = await consumer.poll(_POLL_S, max_records)
        if not records:
            continue
        # Who reads them now: if the group gives them to somebody else, they are not ours to commit.
        group = consumer.group_metadata()
        try:
            await _transact(producer, function, records, group)
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


async def _transact(
    producer: AsyncProducer,
    function: AsyncFunction,
    records: Sequence[Record],
    group: GroupMetadata,
) -> None:
    try:
        async with producer.transaction():
            for record in records:
                given = function(record)
                outputs = await given if isawaitable(given) else given
                for output in outputs_of(outputs):
                    await producer.send(*output)
            await producer.send_offsets(positions_after(records), group)
    except TimedOutError:
        if not producer.is_committing:
            raise
        await _commit_again(producer)


async def _commit_again(producer: AsyncProducer) -> None:
    """Asked for, and not answered: only asking again tells what became of it."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            await producer.commit_transaction()
        except TimedOutError:
            if attempt == ATTEMPTS_MAX - 1:
                raise
        else:
            return


def _rewind(consumer: AsyncConsumer, records: Sequence[Record]) -> None:
    for partition, offset in positions_before(records).items():
        try:
            consumer.seek(partition, offset)
        except NotAssignedError:
            continue  # somebody else reads it now, from what is committed
