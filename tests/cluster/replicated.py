"""A cluster with a topic, producers and readers that count.

Every value is written once and is unique, so that what was acknowledged, lost or doubled can be
told from what is read at the end, and from the files of each replica.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.processes import AnyCluster
from tests.cluster.raw import until_served, until_told
from tests.cluster.waiting import until
from tests.patience import SECONDS_MAX

TOPIC = "orders"
NOT_YET = (
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
"""What a partition answers between two leaders."""


class Replicated:
    def __init__(self, cluster: AnyCluster, topic: str = TOPIC) -> None:
        self.cluster = cluster
        self.topic = topic
        self.acked: dict[str, int] = {}
        self.failed: dict[str, KafkaError] = {}
        self._count = 0

    def client(self, **settings: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.cluster.bootstrap, "log_level": 0, **settings}

    def create(self, replicas: int = 3, **settings: str) -> None:
        configs = {name.replace("_", "."): value for name, value in settings.items()}
        admin = AdminClient(self.client())
        topic = NewTopic(self.topic, 1, replicas, config=configs)
        admin.create_topics([topic])[self.topic].result(SECONDS_MAX)
        until(
            lambda: len(self.cluster.in_sync(self.topic)) == replicas, "a topic with its replicas"
        )
        until_told(self.cluster, self.topic)
        until_served(self.cluster, self.topic)

    def producer(self, acks: str = "all", **settings: Any) -> Producer:
        return Producer(
            self.client(
                acks=acks,
                **{
                    "enable.idempotence": acks == "all",
                    "linger.ms": 0,
                    "message.timeout.ms": SECONDS_MAX * 1000,
                    "retry.backoff.ms": 20,
                    **settings,
                },
            )
        )

    def send(self, producer: Producer, count: int = 1, *, size: int = 0) -> None:
        for _ in range(count):
            self._count += 1
            value = f"value {self._count}".ljust(size).encode()
            producer.produce(self.topic, value, on_delivery=self._delivered)
            producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = bytes(message.value() or b"").decode()
        if error is None:
            self.acked[value] = message.offset() or 0
        else:
            self.failed[value] = error

    def flush(self, producer: Producer) -> None:
        assert producer.flush(SECONDS_MAX) == 0

    def read(self, count: int | None = None) -> dict[int, str]:
        """All that can be read, by offset; at least `count`, if that is said."""
        consumer = Consumer(self.client(**{"group.id": "reader", "enable.auto.commit": False}))
        place = TopicPartition(self.topic, 0, 0)
        consumer.assign([place])
        end = self._end(consumer, place)
        found: dict[int, str] = {}
        deadline = time.monotonic() + SECONDS_MAX
        while len(found) < (end if count is None else count):
            assert time.monotonic() < deadline, f"{len(found)} of {count or end} were read"
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found[message.offset() or 0] = bytes(message.value() or b"").decode()
        consumer.close()
        return found

    def _end(self, consumer: Consumer, place: TopicPartition) -> int:
        """Where readers may go to. Who has just begun to lead can not tell before the others have
        fetched, and librdkafka asks no more than three times."""
        found: list[int] = []

        def is_known() -> bool:
            try:
                found.append(consumer.get_watermark_offsets(place, SECONDS_MAX)[1])
            except KafkaException as refused:
                if refused.args[0].code() not in NOT_YET:
                    raise
            return bool(found)

        until(is_known, f"the end of {self.topic}")
        return found[0]

    # -- the cluster --------------------------------------------------------------------------

    def leader(self) -> int:
        return self.cluster.leader(self.topic)

    def until_in_sync(self, *brokers: int) -> None:
        until(lambda: self.cluster.in_sync(self.topic) == set(brokers), f"in sync: {brokers}")

    def until_led(self, *, not_by: int = -1) -> int:
        until(lambda: self.leader() not in (-1, not_by), f"a leader other than {not_by}")
        return self.leader()

    def kill_leader(self) -> int:
        leader = self.leader()
        self.cluster.kill(leader)
        self.until_led(not_by=leader)
        return leader

    def files(self, broker_id: int) -> bytes:
        """The bytes of a replica's segments."""
        directory = Path(self.cluster.data_dir) / f"broker-{broker_id}" / f"{self.topic}-0"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def until_alike(self, *brokers: int) -> None:
        until(
            lambda: len({self.files(broker_id) for broker_id in brokers}) == 1,
            f"the same bytes on {brokers}",
        )

    def check_nothing_lost(self) -> None:
        """What was acknowledged is where it was said to be, and nothing is there twice."""
        found = self.read()
        assert {value: found.get(offset) for value, offset in self.acked.items()} == {
            value: value for value in self.acked
        }
        values = list(found.values())
        assert len(set(values)) == len(values)
