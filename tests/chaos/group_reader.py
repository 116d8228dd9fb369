"""A member of a group as a process of its own, to be killed at any moment.

`python group_reader.py BOOTSTRAP TOPIC GROUP PROTOCOL MODE FILE SEED`: reads for ever, a few
records at a time. MODE is `after` (commits what it has processed) or `before` (processes what it
has committed). To process a record is to append a line to FILE: partition, offset, value. What is
written there stays, whatever becomes of the process.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

SESSION_MS = 3_000
ASSIGNORS = {"after": "range", "before": "cooperative-sticky"}
"""Of classic groups: one lets go of all partitions in each rebalance, one of those that move."""


def settings_of(bootstrap: str, group: str, protocol: str, mode: str) -> dict[str, Any]:
    common: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "fetch.wait.max.ms": 20,
        "reconnect.backoff.max.ms": 100,
        # As in `transaction_copier`: without brokers librdkafka may lose its coordinator.
        "metadata.recovery.strategy": "none",
    }
    if protocol == "classic":
        common |= {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": SESSION_MS // 10,
            "partition.assignment.strategy": ASSIGNORS[mode],
        }
    return common


class Reader:
    def __init__(self, consumer: Consumer, path: str, dice: random.Random) -> None:
        self._consumer = consumer
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._dice = dice
        self._batch: list[Message] = []

    def let_go(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """What was read and not worked on belongs to the next owner. It is only here that
        partitions go: librdkafka waits for this callback before it joins again. Of those that
        stay nothing may be forgotten: they are read on."""
        gone = {one.partition for one in partitions}
        self._batch = [message for message in self._batch if message.partition() not in gone]

    def fill(self) -> None:
        for _ in range(self._dice.randint(1, 20)):
            message = self._consumer.poll(0.05)
            if message is None:
                return
            error = message.error()
            if error is None:
                self._batch.append(message)
            elif error.fatal():
                raise KafkaException(error)

    def process(self, batch: list[Message]) -> None:
        for message in batch:
            line = f"{message.partition()} {message.offset()} {(message.value() or b'').decode()}\n"
            os.write(self._file, line.encode())

    def commit(self, batch: list[Message]) -> bool:
        ends: dict[tuple[str, int], int] = {}
        for message in batch:
            ends[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
        offsets = [TopicPartition(*place, offset) for place, offset in ends.items()]
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return False
        return all(one.error is None for one in committed or [])

    def go_back(self, batch: list[Message]) -> None:
        """Reads the batch again, as far as it is still its own."""
        firsts: dict[tuple[str, int], int] = {}
        for message in batch:
            place = (message.topic() or "", message.partition() or 0)
            firsts.setdefault(place, message.offset() or 0)
        for place, offset in firsts.items():
            try:
                self._consumer.seek(TopicPartition(*place, offset))
            except KafkaException:
                continue

    def read_after(self) -> None:
        self.fill()
        batch, self._batch = self._batch, []
        self.process(batch)
        if batch and not self.commit(batch):
            self.go_back(batch)

    def read_before(self) -> None:
        self.fill()
        batch, self._batch = self._batch, []
        if not batch:
            return
        if self.commit(batch):
            self.process(batch)
        else:
            self.go_back(batch)


def main(
    bootstrap: str, topic: str, group: str, protocol: str, mode: str, path: str, seed: str
) -> None:
    dice = random.Random(int(seed))
    consumer = Consumer(settings_of(bootstrap, group, protocol, mode))
    reader = Reader(consumer, path, dice)
    # With callbacks, partitions come and go in `poll` only: never between a commit and its record.
    consumer.subscribe(
        [topic], on_assign=lambda *_: None, on_revoke=reader.let_go, on_lost=reader.let_go
    )
    step = reader.read_after if mode == "after" else reader.read_before
    while True:
        step()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KafkaException as refused:
        # Whatever it was, whoever started this member starts it again.
        sys.exit(str(refused))
