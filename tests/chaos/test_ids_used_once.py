"""Goal: ids that are used once leave nothing behind: in the coordinator, in `__transaction_state`
after cleaning, in the producer state of partitions; and what comes late for one is refused.
Method: a broker inside this process with some ids that stay; thousands of transactions, each with
an id of its own that is forgotten with its end; then what is held is counted, and the log cleaned
by moving the clock. OTTLA_IDS_USED_ONCE=100000 in `make chaos`.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.coordinator.transaction_records import Transaction
from ottla.log.producer_state import ProducerEntry
from ottla.records.batch_header import BATCH_LENGTH, HEADER_SIZE, LENGTH_END, read_header
from ottla.records.batch_view import records_of
from ottla.testing import Broker
from tests.compat import confluent
from tests.compat.nodes import wait_until
from tests.compat.transaction_fleet import Fleet

IDS = int(os.environ.get("OTTLA_IDS_USED_ONCE", "1000"))
IDS_THAT_STAY = 300
ABORTED = max(IDS // 10, 100)
PARTITIONS = 3
SECONDS_MAX = 120
GROWTH_MAX = 1.1
PAUSE_S = 0.5
ROUNDS_MAX = 10

SETTINGS = {
    "transactional.id.expiration.ms": 2**31 - 1,
    "producer.id.expiration.ms": 2**31 - 1,
    # Only with a limit for compaction does a segment roll that nothing is written to.
    "log.cleaner.max.compaction.lag.ms": 3_600_000,
    "log.cleaner.delete.retention.ms": 60_000,
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 100,
    "log.cleaner.min.cleanable.ratio": 0.001,
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


def held() -> tuple[int, int]:
    """Transactional ids that a coordinator of this process knows, and producers of partitions."""
    gc.collect()
    kinds = [type(one) for one in gc.get_objects()]
    return kinds.count(Transaction), kinds.count(ProducerEntry)


def state_logs(broker: Broker) -> list[bytes]:
    return [one.read_bytes() for one in Path(broker.data_dir).glob("__transaction_state-*/*.log")]


def keys_in(log: bytes) -> list[bytes | None]:
    """Of all records, the oldest first."""
    keys: list[bytes | None] = []
    at = 0
    while at + HEADER_SIZE <= len(log):
        end = at + LENGTH_END + read_header(log, at)[BATCH_LENGTH]
        keys += [record.key for record in records_of(log[at:end], 1 << 24)]
        at = end
    return keys


def compacted(broker: Broker) -> tuple[int, int]:
    """How many keys are left, and how many bytes, when each key is there once.

    The clock is moved until segments have rolled and the cleaner has been everywhere.
    """
    found: list[tuple[int, int]] = []

    def is_compacted() -> bool:
        broker.advance(minutes=61)
        try:
            logs = state_logs(broker)
        except FileNotFoundError:
            return False  # replaced at this moment
        keys = [key for log in logs for key in keys_in(log)]
        found.append((len(keys), sum(map(len, logs))))
        if len(keys) > len(set(keys)):
            time.sleep(PAUSE_S)
        return len(keys) == len(set(keys))

    wait_until(is_compacted, SECONDS_MAX, "each key is there once")
    return found[-1]


def test_nothing_is_left_of_ids_that_are_used_once(broker: Broker) -> None:
    configs = {"retention.ms": "-1"}
    topic = confluent.create_topic(broker.bootstrap, partitions=PARTITIONS, configs=configs)
    with Fleet(broker.bootstrap, PARTITIONS) as fleet:
        fleet.ready()
        fleet.run_many(topic, "stays", IDS_THAT_STAY, forgets=False)
        known = fleet.list().transaction_states
        assert len(known) == IDS_THAT_STAY + 1

        def is_over() -> bool:
            told = fleet.list(state_filters=("CompleteCommit",)).transaction_states
            return len(told) == IDS_THAT_STAY

        wait_until(is_over, SECONDS_MAX, "all of them are committed")
        before_keys, before_bytes = compacted(broker)
        assert before_keys == len(known)
        before = held()

        fleet.run_many(topic, "aborted", ABORTED, forgets=True, committed=False)
        owner = fleet.run_many(topic, "once", IDS, forgets=True)
        wait_until(
            lambda: len(fleet.list().transaction_states) == len(known),
            SECONDS_MAX,
            "the ids are forgotten",
        )
        after = held()
        assert after[0] <= before[0] * GROWTH_MAX
        assert after[1] <= before[1] * GROWTH_MAX
        rounds = 1
        while compacted(broker)[0] > len(known) * GROWTH_MAX:
            # Tombstones go with the next cleaning after their time: there must be something new.
            fleet.run_many(topic, "stays", IDS_THAT_STAY, forgets=False)
            rounds += 1
            wait_until(is_over, SECONDS_MAX, "all of them are committed")
            assert rounds < ROUNDS_MAX
        assert compacted(broker)[1] <= before_bytes * GROWTH_MAX

        late = {"producer_id": owner[0], "producer_epoch": owner[1]}
        fleet.name = f"once-{IDS - 1}"
        for version in (11, 12):
            assert fleet.write(topic, 1, b"late", version=version, **late) == 49
        assert fleet.end(True, 5, take=False, **late) == 49
    committed = confluent.read(
        broker.bootstrap,
        topic,
        partitions=range(PARTITIONS),
        settings={"isolation.level": "read_committed"},
    )
    assert len(committed) == IDS_THAT_STAY * rounds + IDS


@pytest.mark.parametrize("committed", [True, False])
def test_nor_after_a_restart(broker: Broker, committed: bool) -> None:
    """What a log is loaded from forgets them too, whichever way they ended."""
    count = 200
    others = held()[1]  # of brokers that other tests keep in this process
    topic = confluent.create_topic(broker.bootstrap, partitions=PARTITIONS)
    with Fleet(broker.bootstrap, PARTITIONS) as fleet:
        fleet.ready()
        own = fleet.name
        owner = fleet.run_many(topic, "once", count, forgets=True, committed=committed)

        def known() -> list[str]:
            return [one.transactional_id for one in fleet.list().transaction_states]

        wait_until(lambda: known() == [own], SECONDS_MAX, "the ids are forgotten")
    broker.restart()
    with Fleet(broker.bootstrap, PARTITIONS) as fleet:
        fleet.ready_again()
        wait_until(lambda: int(fleet.list().error_code) == 0, SECONDS_MAX, "all are loaded")
        assert [one.transactional_id for one in fleet.list().transaction_states] == [own]
        assert held()[1] == others
        late = {"producer_id": owner[0], "producer_epoch": owner[1]}
        fleet.name = f"once-{count - 1}"
        assert fleet.write(topic, 1, b"late", version=12, **late) == 49
        assert fleet.end(committed, 5, take=False, **late) == 49
    read = confluent.read(
        broker.bootstrap,
        topic,
        partitions=range(PARTITIONS),
        settings={"isolation.level": "read_committed"},
    )
    assert len(read) == (count if committed else 0)
