"""Goal: whatever is late, lost, repeated or killed, no replica believes what is not so, nothing
that was acknowledged is lost, and all have the same in the end.
Method: seeded histories on an island of three replicas, checked after every step.
"""

from __future__ import annotations

import random

import pytest

from tests.seeds import seed_for
from tests.unit.replication.island import BROKERS, Island

SEEDS = 60
STEPS = 400


@pytest.mark.parametrize("number", range(SEEDS))
def test_nothing_that_was_acknowledged_is_lost(number: int) -> None:
    island = Island(random.Random(seed_for(f"island {number}")))
    for _ in range(STEPS):
        island.step()
    island.heal()
    island.brokers[island.state.leader].produce()
    island.heal()
    contents = {island.brokers[broker_id].replica.content() for broker_id in BROKERS}
    assert len(contents) == 1
    assert sorted(island.state.in_sync) == list(BROKERS)
    leader = island.brokers[island.state.leader]
    assert leader.partition.high_watermark == leader.replica.log.log_end_offset


def test_histories_are_worth_checking() -> None:
    """Elections, kills and commits happen in them, not only loss."""
    acked = epochs = 0
    for number in range(20):
        island = Island(random.Random(seed_for(f"worth {number}")))
        for _ in range(STEPS):
            island.step()
        acked += len(island.acked)
        epochs += island.state.leader_epoch
    assert acked > 40
    assert epochs > 40
