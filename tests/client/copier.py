"""Copies a topic to another, exactly once, until it is killed: `python -m tests.client.copier`.

Prints a line for each transaction, so that whoever kills it can choose the moment.
"""

from __future__ import annotations

import sys

from ottla.client import Consumer, Output, Producer, Record, process

TRANSACTION_RECORDS = 7


def main(bootstrap: str, source: str, target: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"copies {source}",
        # The same member again, so that nobody waits for the dead one.
        "group.instance.id": "copier",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }

    def copy(record: Record) -> Output:
        return Output(target, record.value, record.key, None, record.partition)

    def report() -> bool:
        print("between", flush=True)
        return False

    with (
        Consumer(settings) as consumer,
        Producer(bootstrap_servers=bootstrap, transactional_id=f"copier of {source}") as producer,
    ):
        consumer.subscribe(source)
        process(consumer, producer, copy, is_over=report, max_records=TRANSACTION_RECORDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
