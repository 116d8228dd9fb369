"""More transactions than anybody needs, all open, of one client: others do not notice, memory is
bounded by what was sent, and the time-out ends every one of them.

In a broker inside this process, whose clock can be moved; the memory is that of the whole process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.compat.confluent import create_topic, read
from tests.compat.nodes import wait_until
from tests.compat.transaction_fleet import Fleet
from tests.hostile.well_behaved import produce_and_read_back
from tests.patience import SECONDS_MAX

OPEN = 3000
# Longer than a busy machine may take to open all of them.
TIMEOUT_S = 600
GROWTH_BYTES_MAX = 20 << 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        produce_and_read_back(running.bootstrap)
        yield running
        produce_and_read_back(running.bootstrap)


def resident_bytes() -> int:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_thousands_of_open_transactions_of_one_client(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=3)
    with Fleet(broker.bootstrap, partitions=3) as fleet:
        fleet.ready()
        # What is made once, such as codecs, does not count.
        fleet.run_many(topic, "warm", 200, forgets=True)
        before = resident_bytes()
        fleet.begin_many(topic, "open", OPEN, timeout_s=TIMEOUT_S)
        assert resident_bytes() - before < GROWTH_BYTES_MAX
        ongoing = fleet.list(state_filters=("Ongoing",)).transaction_states
        assert len(ongoing) == OPEN
        produce_and_read_back(broker.bootstrap)

        broker.advance(seconds=TIMEOUT_S + 1)

        def is_over() -> bool:
            told = fleet.list(state_filters=("CompleteAbort",)).transaction_states
            return len(told) == OPEN

        wait_until(is_over, SECONDS_MAX, "all of them have run out of time")
        assert resident_bytes() - before < GROWTH_BYTES_MAX
    settings = {"isolation.level": "read_committed"}
    committed = read(broker.bootstrap, topic, partitions=range(3), settings=settings)
    assert len(committed) == 200
