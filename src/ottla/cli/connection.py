"""One connection to a cluster, for the commands.

Together with `record_sender`, `record_reader`, `group_reader` and `group_admin` this is all that
knows the client library (confluent-kafka), so that our own client can take its place here. Takes
and gives plain values of `model`; whatever goes wrong leaves as a Failure with one line for people.
Never creates a topic by looking at it.
"""

from __future__ import annotations

import difflib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import admin as confluent_admin

from ottla.base.ids import TopicPartition
from ottla.cli.addresses import check_anybody_listens, parse_addresses
from ottla.cli.client_errors import reason_of
from ottla.cli.failure import Failure
from ottla.cli.group_admin import GroupAdmin
from ottla.cli.group_model import AssignmentListener, Membership
from ottla.cli.group_reader import GroupReader
from ottla.cli.model import (
    Address,
    FoundOffset,
    NewTopic,
    PartitionPlace,
    SenderSettings,
    Setting,
    TopicPlace,
    TopicSummary,
)
from ottla.cli.record_reader import RecordReader
from ottla.cli.record_sender import RecordSender

T = TypeVar("T")

# Its types are half there and differ from release to release; behind this door they are ours.
kafka_admin: Any = confluent_admin

EARLIEST = "earliest"
LATEST = "latest"
OffsetQuery = str | int
"""EARLIEST, LATEST, or a timestamp in milliseconds."""

# A topic that was made a moment ago may not have its leaders everywhere yet.
PASSING_ERRORS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
)
RETRY_PAUSE_S = 0.1


def silent_logger() -> logging.Logger:
    """librdkafka writes to stderr unless it gets a logger; we say what matters ourselves."""
    logger = logging.getLogger("ottla.cli.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


class Connection:
    """Connects on construction: a Failure says at once that nobody is there."""

    def __init__(
        self, bootstrap: str, client_settings: Mapping[str, str], timeout_s: float = 5.0
    ) -> None:
        self.addresses = parse_addresses(bootstrap)
        self.timeout_s = timeout_s
        self.plaintext = (
            client_settings.get("security.protocol", "plaintext").lower() == "plaintext"
        )
        check_anybody_listens(self.addresses, timeout_s)
        self._settings: dict[str, Any] = {
            **client_settings,
            "bootstrap.servers": ",".join(map(str, self.addresses)),
            "client.id": "ottla-cli",
            "logger": silent_logger(),
            # A command is short: connecting when a broker is needed would cost 50 ms each time.
            "enable.sparse.connections": False,
        }
        try:
            self._admin = kafka_admin.AdminClient(self._settings)
        except KafkaException as cause:
            raise Failure(f"bad client settings: {cause.args[0].str()}") from cause
        # Of all topics: asking for one by name could make it, and a command asks for little else.
        self._metadata = self._load_metadata()

    def _load_metadata(self) -> Any:
        try:
            return self._admin.list_topics(timeout=self.timeout_s)
        except KafkaException as cause:
            where = ", ".join(map(str, self.addresses))
            raise Failure(
                f"{where} accepts connections but does not answer as a Kafka broker within"
                f" {self.timeout_s:g} s: {reason_of(cause.args[0])}"
            ) from cause

    def refresh(self) -> None:
        """Looks again at brokers and topics, for a command that goes on and on."""
        self._metadata = self._load_metadata()

    def broker_addresses(self) -> dict[int, Address]:
        """Where each broker says it can be reached, by broker id."""
        return {
            broker.id: Address(broker.host, broker.port)
            for broker in self._metadata.brokers.values()
        }

    def lead_counts(self) -> dict[int, int]:
        """How many partitions each broker leads; who leads none is left out."""
        return Counter(
            partition.leader
            for topic in self._metadata.topics.values()
            for partition in topic.partitions.values()
            if partition.leader >= 0
        )

    # ------------------------------------------------------------------------------- topics

    def topics(self) -> list[TopicSummary]:
        return sorted(
            (
                TopicSummary(
                    name=topic.topic,
                    partition_count=len(topic.partitions),
                    replication_factor=max(
                        (len(partition.replicas) for partition in topic.partitions.values()),
                        default=0,
                    ),
                    internal=topic.topic.startswith("__"),
                )
                for topic in self._metadata.topics.values()
            ),
            key=lambda topic: topic.name,
        )

    def places(self, names: Sequence[str]) -> list[TopicPlace]:
        """Partitions and replicas of topics that must exist."""
        for name in names:
            if name not in self._metadata.topics:
                raise Failure(f"topic {name} does not exist{self._nearest(name)}")
        collection = confluent_kafka.TopicCollection(list(names))
        futures = self._admin.describe_topics(collection, request_timeout=self.timeout_s)
        return [
            _place_of(self._answer(future, f"topic {name}")) for name, future in futures.items()
        ]

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._metadata.topics, n=1)
        return f"; did you mean {near[0]}?" if near else ""

    def create_topic(self, topic: NewTopic) -> None:
        arguments: dict[str, Any] = {"config": dict(topic.configs)}
        if topic.assignment is None:
            arguments["num_partitions"] = _or_broker_default(topic.partition_count)
            arguments["replication_factor"] = _or_broker_default(topic.replication_factor)
        else:
            arguments["num_partitions"] = len(topic.assignment)
            arguments["replica_assignment"] = topic.assignment
        wanted = kafka_admin.NewTopic(topic.name, **arguments)
        self._ask_one(self._admin.create_topics, [wanted], f"topic {topic.name}")

    def delete_topic(self, name: str) -> None:
        self._ask_one(self._admin.delete_topics, [name], f"topic {name}")

    def add_partitions(self, name: str, partition_count: int) -> None:
        wanted = kafka_admin.NewPartitions(name, partition_count)
        self._ask_one(self._admin.create_partitions, [wanted], f"topic {name}")

    # ------------------------------------------------------------------------------ offsets

    def offsets(
        self, queries: Mapping[TopicPartition, OffsetQuery], *, committed: bool = True
    ) -> dict[TopicPartition, FoundOffset | None]:
        """None where no record is that young. Only for partitions that have a leader."""
        specs = {
            confluent_kafka.TopicPartition(topic, partition): _offset_spec(query)
            for (topic, partition), query in queries.items()
        }
        if not specs:
            return {}
        isolation = confluent_kafka.IsolationLevel(1 if committed else 0)

        def ask() -> dict[TopicPartition, FoundOffset | None]:
            futures = self._admin.list_offsets(
                specs, isolation_level=isolation, request_timeout=self.timeout_s
            )
            return {
                (partition.topic, partition.partition): _found(
                    self._answer(future, f"offsets of {partition.topic}-{partition.partition}")
                )
                for partition, future in futures.items()
            }

        return self._patiently(ask)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes what lies before each offset; gives the earliest offset that is left."""
        wanted = [
            confluent_kafka.TopicPartition(topic, partition, offset)
            for (topic, partition), offset in before.items()
        ]
        if not wanted:
            return {}
        futures = self._admin.delete_records(wanted, request_timeout=self.timeout_s)
        return {
            (partition.topic, partition.partition): self._answer(
                future, f"records of {partition.topic}-{partition.partition}"
            ).low_watermark
            for partition, future in futures.items()
        }

    # ------------------------------------------------------------------------------ configs

    def configs(self, kind: str, name: str) -> list[Setting]:
        """All settings of a `topic` or a `broker`."""
        wanted = kafka_admin.ConfigResource(kind, name)
        entries = self._ask_one(self._admin.describe_configs, [wanted], f"{kind} {name}")
        return sorted((_setting_of(entry) for entry in entries.values()), key=lambda one: one.name)

    def alter_configs(
        self, kind: str, name: str, changes: Mapping[str, str], deletions: Iterable[str]
    ) -> None:
        operation = kafka_admin.AlterConfigOpType
        entries = [
            kafka_admin.ConfigEntry(key, value, incremental_operation=operation.SET)
            for key, value in changes.items()
        ] + [
            kafka_admin.ConfigEntry(key, None, incremental_operation=operation.DELETE)
            for key in deletions
        ]
        wanted = kafka_admin.ConfigResource(kind, name, incremental_configs=entries)
        self._ask_one(self._admin.incremental_alter_configs, [wanted], f"{kind} {name}")

    # ------------------------------------------------------------------------------ records

    def sender(self, topic: str, settings: SenderSettings) -> RecordSender:
        return RecordSender(self._settings, topic, settings, self._batch_bytes_max(topic))

    def _batch_bytes_max(self, topic: str) -> int | None:
        """What the topic takes at once, so that a record too large fails without its neighbours."""
        if topic not in self._metadata.topics:
            return None
        try:
            configs = {setting.name: setting.value for setting in self.configs("topic", topic)}
        except Failure:
            # Who may write to a topic need not be allowed to look at its settings.
            return None
        limit = configs.get("max.message.bytes") or ""
        return int(limit) if limit.isdigit() else None

    def reader(self, *, committed: bool) -> RecordReader:
        return RecordReader(self._settings, committed=committed)

    # ------------------------------------------------------------------------------- groups

    def group_admin(self) -> GroupAdmin:
        return GroupAdmin(self._admin, self.timeout_s, self._answer)

    def group_reader(
        self, membership: Membership, listener: AssignmentListener, *, committed: bool
    ) -> GroupReader:
        return GroupReader(self._settings, membership, listener, committed=committed)

    # ------------------------------------------------------------------------------ answers

    def _ask_one(self, call: Callable[..., Any], wanted: list[Any], what: str) -> Any:
        try:
            futures = call(wanted, request_timeout=self.timeout_s)
        except (KafkaException, ValueError, TypeError) as cause:
            # The library refuses some arguments before it sends them.
            raise Failure(f"{what}: {cause}") from cause
        return self._answer(next(iter(futures.values())), what)

    def _answer(self, future: Future[T], what: str) -> T:
        try:
            return future.result(self.timeout_s * 2)
        except KafkaException as cause:
            error: KafkaError = cause.args[0]
            if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise Failure(f"{what}: {reason_of(error)}; {self._where_brokers_are()}") from cause
            raise Failure(f"{what}: {reason_of(error)}") from cause
        except FutureTimeoutError as cause:
            raise Failure(f"{what}: no answer in time; {self._where_brokers_are()}") from cause

    def _where_brokers_are(self) -> str:
        # The usual reason is an advertised.listeners that this machine cannot reach.
        brokers = ", ".join(map(str, self.broker_addresses().values()))
        return f"the cluster says that its brokers are at {brokers}"

    def _patiently(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return ask()
            except Failure as failure:
                if time.monotonic() > deadline or not _may_pass(failure):
                    raise
            time.sleep(RETRY_PAUSE_S)


def _or_broker_default(number: int | None) -> int:
    return -1 if number is None else number


def _may_pass(failure: Failure) -> bool:
    cause = failure.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() in PASSING_ERRORS


def _offset_spec(query: OffsetQuery) -> Any:
    if query == EARLIEST:
        return kafka_admin.OffsetSpec.earliest()
    if query == LATEST:
        return kafka_admin.OffsetSpec.latest()
    return kafka_admin.OffsetSpec.for_timestamp(int(query))


def _found(answer: Any) -> FoundOffset | None:
    return FoundOffset(answer.offset, answer.leader_epoch) if answer.offset >= 0 else None


def _place_of(topic: Any) -> TopicPlace:
    return TopicPlace(
        name=topic.name,
        # Kafka writes ids in the alphabet that is safe in URLs, the library in the other one.
        topic_id=str(topic.topic_id).replace("+", "-").replace("/", "_"),
        internal=topic.is_internal,
        partitions=[
            PartitionPlace(
                partition=partition.id,
                leader=None if partition.leader is None else partition.leader.id,
                replicas=[node.id for node in partition.replicas],
                in_sync=[node.id for node in partition.isr],
            )
            for partition in sorted(topic.partitions, key=lambda one: int(one.id))
        ],
    )


def _setting_of(entry: Any) -> Setting:
    return Setting(
        name=entry.name,
        value=entry.value,
        source=kafka_admin.ConfigSource(entry.source).name,
        read_only=entry.is_read_only,
        sensitive=entry.is_sensitive,
        is_default=entry.is_default,
    )
