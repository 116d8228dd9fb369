"""Goal: row 65: read_committed output equals input, one to one, whoever is killed whenever.
Method: a consume-transform-produce job (`transaction_copier`) under way all the time while input
keeps coming; the job, the broker or both are killed at random moments and started again; in the end
what a read_committed reader sees is compared with what was sent.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.copy_job import Job
from tests.compat.confluent import create_topic, producer, read, send
from tests.compat.nodes import OttlaNode, wait_until
from tests.compat.transaction_wire import TransactionWire
from tests.patience import SECONDS_MAX
from tests.seeds import seed_for

KILLS = int(os.environ.get("OTTLA_KILLS", "20"))
PARTITIONS = 3
RECORDS_A_KILL = 150
DONE_SECONDS_MAX = 240
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "200",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path / "node", SETTINGS)
    node.start()
    yield node
    node.close()


def test_row_65_killed_at_random_moments_it_copies_each_record_once(
    node: OttlaNode, tmp_path: Path
) -> None:
    dice = random.Random(seed_for("kill transactions"))
    source, target = (create_topic(node.bootstrap, PARTITIONS) for _ in range(2))
    job = Job(node, source, target, dice, tmp_path)
    sent = 0
    try:
        for _ in range(KILLS):
            records = (
                {"value": str(number), "partition": number % PARTITIONS}
                for number in range(sent, sent + RECORDS_A_KILL)
            )
            # Idempotent: what takes too long is sent again, and must not come twice.
            send(producer(node.bootstrap, {"enable.idempotence": True}), source, records)
            sent += RECORDS_A_KILL
            job.keep_going()
            time.sleep(dice.uniform(0.05, 1.2))
            who = dice.choice(("job", "broker", "both"))
            if who != "broker":
                job.kill()
            if who != "job":
                node.kill()
                node.start()
        copied = finish(node, job, target, sent)
    finally:
        job.kill()
    assert copied == Counter(str(number) for number in range(sent))
    nothing_is_open(node)


def finish(node: OttlaNode, job: Job, target: str, sent: int) -> Counter[str]:
    copied: Counter[str] = Counter()

    def done() -> bool:
        nonlocal copied
        copied = Counter(
            str((message.value() or b"").decode())
            for message in read(
                node.bootstrap,
                target,
                partitions=range(PARTITIONS),
                settings={"isolation.level": "read_committed"},
            )
        )
        return copied.total() >= sent

    job.until(done, DONE_SECONDS_MAX, f"{sent} records are copied")
    return copied


def nothing_is_open(node: OttlaNode) -> None:
    """T4: what nobody ends is ended by its time-out."""

    def states() -> set[str]:
        with TransactionWire(node.bootstrap) as wire:
            return {one.transaction_state for one in wire.list().transaction_states}

    ended = {"Empty", "CompleteCommit", "CompleteAbort"}
    wait_until(lambda: states() <= ended, SECONDS_MAX, "nothing is left open")
