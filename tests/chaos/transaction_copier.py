"""A consume-transform-produce job as a process of its own, to be killed at any moment.

`python transaction_copier.py BOOTSTRAP SOURCE TARGET GROUP SEED`: copies for ever, a few records a
transaction, and aborts one in six on purpose.
"""

from __future__ import annotations

import random
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer

PARTITIONS = 3
SECONDS_MAX = 20.0
"""Who has waited for so long gives up, and is started again."""


def main(bootstrap: str, source: str, target: str, group: str, seed: str) -> None:
    dice = random.Random(int(seed))
    common = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "reconnect.backoff.max.ms": 100,
        # When no broker is left librdkafka 2.16 begins anew with its bootstrap servers and drops
        # the broker that it holds for the group's coordinator: send_offsets_to_transaction then
        # waits for that one, past its time-out and for ever (librdkafka #5511 and #5456). So it
        # does with Apache Kafka too, if that is back within some seconds.
        "metadata.recovery.strategy": "none",
    }
    producer = Producer(
        {
            **common,
            "transactional.id": group,
            "transaction.timeout.ms": 10_000,
            "message.timeout.ms": 10_000,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(SECONDS_MAX)
    consumer = Consumer(
        {
            **common,
            "group.id": group,
            # Who comes after a killed one takes its place, and need not wait for its session.
            "group.instance.id": "the only one",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "session.timeout.ms": 60_000,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.subscribe([source])
    while True:
        messages = []
        for message in consumer.consume(dice.randint(1, 30), 0.1):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.fatal():
                # It would never see another message.
                raise KafkaException(error)
        if messages:
            copy(producer, consumer, messages, target, dice)


def copy(
    producer: Producer,
    consumer: Consumer,
    messages: list[Message],
    target: str,
    dice: random.Random,
) -> None:
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, message.value(), partition=dice.randrange(PARTITIONS))
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS_MAX)
    if dice.random() < 1 / 6:
        producer.abort_transaction(SECONDS_MAX)
        for committed in consumer.committed(consumer.assignment(), SECONDS_MAX):
            committed.offset = max(committed.offset, 0)
            consumer.seek(committed)
    else:
        producer.commit_transaction(SECONDS_MAX)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KafkaException as refused:
        # Whatever it was, whoever started this job starts it again.
        sys.exit(str(refused))
