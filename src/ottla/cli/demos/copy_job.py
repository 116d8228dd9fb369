"""The job of `ottla demo exactly-once`: copies one topic to another, as a process to be killed.

`python -m ottla.cli.demos.copy_job BOOTSTRAP CONFIG SOURCE TARGET GROUP MODE END...`: END are the
offsets at which each partition is done; CONFIG is a file of client settings, or `-`. Three ways:

- `after`: writes, then commits its position. Killed between the two, it writes again.
- `before`: commits its position, then writes. Killed between the two, it never writes.
- `transactions`: both in one transaction.

It says `copied` after each step. It reads partitions by hand, so that whoever takes over need not
wait for the group to miss the one that was killed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ottla.base.errors import OttlaError
from ottla.cli.admin_door import client_settings
from ottla.client import Consumer, Output, Producer, Record, process

AFTER, BEFORE, TRANSACTIONS = "after", "before", "transactions"
RECORDS_A_STEP = 20
# So that a step takes long enough to be killed in.
WORK_S = 0.003
POLL_S = 0.5
# What a dead job left open is aborted by the next one; this is for when there is none.
TRANSACTION_TIMEOUT_MS = 60_000


class CopyJob:
    def __init__(
        self, settings: Mapping[str, str], source: str, target: str, group: str, ends: Sequence[int]
    ) -> None:
        self._settings = settings
        self._target = target
        self._group = group
        self._ends = {(source, partition): end for partition, end in enumerate(ends)}
        self._consumer = Consumer(
            settings,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._consumer.assign(list(self._ends))

    def run(self, mode: str) -> None:
        with self._consumer:
            if mode == TRANSACTIONS:
                self._run_transactions()
            else:
                self._run_plainly(is_commit_first=mode == BEFORE)

    def _run_transactions(self) -> None:
        with Producer(
            self._settings,
            transactional_id=self._group,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        ) as producer:
            # First of all: what the last job left open hides where it stood.
            producer.init_transactions()
            process(
                self._consumer,
                producer,
                self._copy_of,
                is_over=self._is_over,
                max_records=RECORDS_A_STEP,
            )

    def _run_plainly(self, *, is_commit_first: bool) -> None:
        with Producer(self._settings) as producer:

            def write(records: Sequence[Record]) -> None:
                for record in records:
                    producer.send(*self._copy_of(record))
                producer.flush()

            steps: list[Callable[[Sequence[Record]], None]] = [write, self._consumer.commit]
            while not self._is_over():
                records = self._consumer.poll(POLL_S, RECORDS_A_STEP)
                if records:
                    for step in reversed(steps) if is_commit_first else steps:
                        step(records)

    def _copy_of(self, record: Record) -> Output:
        time.sleep(WORK_S)
        return Output(self._target, record.value, record.key)

    def _is_over(self) -> bool:
        """Asked between two steps."""
        sys.stdout.write("copied\n")
        sys.stdout.flush()
        return all(self._consumer.position(one) >= end for one, end in self._ends.items())


def main(arguments: Sequence[str]) -> int:
    bootstrap, config, source, target, group, mode, *ends = arguments
    settings = client_settings(bootstrap, None if config == "-" else Path(config))
    try:
        CopyJob(settings, source, target, group, [int(end) for end in ends]).run(mode)
    except OttlaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
