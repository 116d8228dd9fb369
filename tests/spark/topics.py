"""Topics of one test, filled and looked at by a stock client."""

from __future__ import annotations

import re
from collections.abc import Iterable

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.spark.queries import until

SECONDS_MAX = 60


class Topics:
    """Names given here are short; on the broker they begin with the test's own name."""

    def __init__(self, bootstrap: str, test: str) -> None:
        self.bootstrap = bootstrap
        self._prefix = re.sub(r"[^a-zA-Z0-9_-]", "-", test)[:80]
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def __call__(self, name: str) -> str:
        return f"{self._prefix}.{name}"

    def create(self, name: str, partitions: int = 2, replicas: int = 1, **settings: str) -> str:
        config = {key.replace("_", "."): value for key, value in settings.items()}
        new = NewTopic(self(name), partitions, replicas, config=config)
        for done in self.admin.create_topics([new]).values():
            done.result(SECONDS_MAX)
        return self(name)

    def grow(self, name: str, partitions: int) -> None:
        wanted = [NewPartitions(self(name), partitions)]
        for done in self.admin.create_partitions(wanted).values():
            done.result(SECONDS_MAX)

    def delete(self, name: str) -> None:
        for done in self.admin.delete_topics([self(name)]).values():
            done.result(SECONDS_MAX)

    def fill(self, name: str, values: Iterable[int], partitions: int = 2) -> None:
        """Records whose value is a number, keyed by it, over the partitions in turn."""
        # A new one each time: it knows the partitions that there are now.
        producer = ck.Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "message.timeout.ms": 60_000}
        )
        for value in values:
            producer.produce(
                self(name),
                b"%d" % value,
                key=b"key-%d" % value,
                partition=value % partitions,
                headers=[("n", b"%d" % value)],
            )
        assert producer.flush(SECONDS_MAX) == 0

    def committed(self, group: str, name: str, partitions: int = 2) -> dict[int, int]:
        asked = ck.ConsumerGroupTopicPartitions(
            group, [ck.TopicPartition(self(name), number) for number in range(partitions)]
        )
        answer = self.admin.list_consumer_group_offsets([asked])[group].result(SECONDS_MAX)
        return {one.partition: one.offset for one in answer.topic_partitions}

    def decided_values(self, name: str) -> list[int]:
        """As `values`, once no transaction is open: brokers answer who ends one before its markers
        are written, and what is behind it is not to be seen until then."""
        until(lambda: self._ends(name, committed=True) == self._ends(name), "the last marker")
        return self.values(name)

    def _ends(self, name: str, *, committed: bool = False) -> dict[int, int]:
        known = self.admin.list_topics(self(name), timeout=SECONDS_MAX).topics[self(name)]
        levels = ck.IsolationLevel
        asked = self.admin.list_offsets(
            {ck.TopicPartition(self(name), one): OffsetSpec.latest() for one in known.partitions},
            isolation_level=levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED,
        )
        return {place.partition: done.result(SECONDS_MAX).offset for place, done in asked.items()}

    def values(self, name: str) -> list[int]:
        """Everything that a read_committed consumer sees, up to the end."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"look-{self._prefix}",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            known = consumer.list_topics(self(name), timeout=SECONDS_MAX).topics[self(name)]
            waiting = set(known.partitions)
            consumer.assign([ck.TopicPartition(self(name), one, 0) for one in waiting])
            found: list[int] = []
            while waiting:
                message = consumer.poll(SECONDS_MAX)
                assert message is not None, f"{self(name)}: no end of partitions {waiting}"
                error = message.error()
                if error is None:
                    found.append(int(message.value() or b""))
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition())
                else:
                    raise AssertionError(error)
            return found
        finally:
            consumer.close()
