"""Goal: row 65: read_committed output equals input, one to one, whoever is killed whenever.
Method: a consume-transform-produce job (`transaction_copier`) under way all the time while input
keeps coming; the job, the broker or both are killed at random moments and started again; in the end
what a read_committed reader sees is compared with what was sent.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.confluent import create_topic, new_name, producer, read, send
from tests.compat.nodes import OttlaNode, wait_until
from tests.compat.transaction_wire import TransactionWire
from tests.seeds import seed_for

KILLS = int(os.environ.get("OTTLA_KILLS", "20"))
PARTITIONS = 3
RECORDS_A_KILL = 150
DONE_SECONDS_MAX = 120
COPIER = Path(__file__).with_name("transaction_copier.py")
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "200",
}


class Job:
    """The copier, started again whenever it is gone."""

    def __init__(self, node: OttlaNode, source: str, target: str, dice: random.Random) -> None:
        self._node = node
        self._arguments = (source, target, new_name("copier"))
        self._dice = dice
        self._process: subprocess.Popen[bytes] | None = None

    def keep_going(self) -> None:
        if self._process is None or self._process.poll() is not None:
            seed = str(self._dice.randrange(2**32))
            command = [sys.executable, str(COPIER), self._node.bootstrap, *self._arguments, seed]
            self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path / "node", SETTINGS)
    node.start()
    yield node
    node.close()


def test_row_65_killed_at_random_moments_it_copies_each_record_once(node: OttlaNode) -> None:
    dice = random.Random(seed_for("kill transactions"))
    source, target = (create_topic(node.bootstrap, PARTITIONS) for _ in range(2))
    job = Job(node, source, target, dice)
    sent = 0
    try:
        for _ in range(KILLS):
            records = (
                {"value": str(number), "partition": number % PARTITIONS}
                for number in range(sent, sent + RECORDS_A_KILL)
            )
            send(producer(node.bootstrap), source, records)
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
        job.keep_going()
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

    wait_until(done, DONE_SECONDS_MAX, f"{sent} records are copied")
    return copied


def nothing_is_open(node: OttlaNode) -> None:
    """T4: what nobody ends is ended by its time-out."""

    def states() -> set[str]:
        with TransactionWire(node.bootstrap) as wire:
            return {one.transaction_state for one in wire.list().transaction_states}

    ended = {"Empty", "CompleteCommit", "CompleteAbort"}
    wait_until(lambda: states() <= ended, 30, "nothing is left open")
