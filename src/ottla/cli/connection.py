"""One connection to a cluster, for the commands.

Together with `record_sender`, `record_reader`, `group_reader` and `group_admin` this is all that
knows the client. Takes and gives plain values of `model`; whatever goes wrong leaves as a Failure
with one line for people. Never creates a topic by looking at it. Producer and consumer are loaded
by the commands that need one: most do not.
"""

from __future__ import annotations

import base64
import difflib
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ottla.base.errors import ConfigError
from ottla.base.ids import TopicPartition
from ottla.cli.addresses import check_anybody_listens, parse_addresses
from ottla.cli.client_errors import reason_of
from ottla.cli.client_settings import settings_for
from ottla.cli.failure import Failure, NoAnswer
from ottla.cli.group_admin import GroupAdmin
from ottla.cli.group_model import AssignmentListener, Membership
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
from ottla.cli.output import note
from ottla.client import admin_values
from ottla.client.admin import Admin
from ottla.client.admin_values import TopicDescription
from ottla.client.errors import ClientError, ConnectionLostError, TimedOutError
from ottla.client.settings import AdminSettings

if TYPE_CHECKING:
    from ottla.cli.group_reader import GroupReader
    from ottla.cli.record_reader import RecordReader
    from ottla.cli.record_sender import RecordSender

T = TypeVar("T")

EARLIEST = "earliest"
LATEST = "latest"
NOBODY = -1
PATIENCE_S = 1.0
"""With a partition whose offsets are not known at the moment, where that is shown."""
OffsetQuery = str | int
"""EARLIEST, LATEST, or a timestamp in milliseconds."""


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
        self._settings: dict[str, str] = {
            **client_settings,
            "bootstrap.servers": ",".join(map(str, self.addresses)),
            "client.id": "ottla-cli",
        }
        timeout_ms = int(timeout_s * 1_000)
        try:
            self._admin = Admin(
                {
                    **settings_for(AdminSettings, self._settings),
                    "request.timeout.ms": timeout_ms,
                    "default.api.timeout.ms": timeout_ms,
                }
            )
        except ConfigError as cause:
            raise Failure(f"bad client settings: {cause}") from cause
        # Commands end without a word of farewell; the client's thread ends with them.
        self.close = weakref.finalize(self, self._admin.close)
        self._topics: dict[str, TopicDescription] = {}
        self._brokers: dict[int, Address] = {}
        self.silent: set[int] = set()
        """Brokers that did not answer since the last look at the cluster."""
        self._told_of: set[int] = set()
        self.refresh()

    def refresh(self) -> None:
        """Looks again at brokers and topics, for a command that goes on and on."""
        try:
            # Of all topics: asking for one by name could make it.
            self._topics = {topic.name: topic for topic in self._admin.list_topics()}
            brokers = self._admin.describe_cluster().brokers
        except ClientError as cause:
            where = ", ".join(map(str, self.addresses))
            raise Failure(
                f"{where} accepts connections but does not answer as a Kafka broker within"
                f" {self.timeout_s:g} s: {reason_of(cause)}"
            ) from cause
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in brokers}
        self.silent.clear()

    def broker_addresses(self) -> dict[int, Address]:
        """Where each broker says it can be reached, by broker id."""
        return dict(self._brokers)

    def lead_counts(self) -> dict[int, int]:
        """How many partitions each broker leads; who leads none is left out."""
        return Counter(
            partition.leader
            for topic in self._topics.values()
            for partition in topic.partitions
            if partition.leader is not None
        )

    # ------------------------------------------------------------------------------- topics

    def topics(self) -> list[TopicSummary]:
        return sorted(
            (
                TopicSummary(
                    name=topic.name,
                    partition_count=len(topic.partitions),
                    replication_factor=max(
                        (len(partition.replicas) for partition in topic.partitions), default=0
                    ),
                    internal=topic.is_internal,
                )
                for topic in self._topics.values()
            ),
            key=lambda topic: topic.name,
        )

    def places(self, names: Sequence[str]) -> list[TopicPlace]:
        """Partitions and replicas of topics that must exist."""
        for name in names:
            if name not in self._topics:
                raise Failure(f"topic {name} does not exist{self._nearest(name)}")
        found = self._ask(f"topic {', '.join(names)}", lambda: self._admin.describe_topics(names))
        return [_place_of(topic) for topic in found]

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._topics, n=1)
        return f"; did you mean {near[0]}?" if near else ""

    def create_topic(self, topic: NewTopic) -> None:
        wanted = admin_values.NewTopic(
            topic.name,
            _or_broker_default(topic.partition_count),
            _or_broker_default(topic.replication_factor),
            topic.assignment,
            topic.configs,
        )

        def create() -> None:
            error = self._admin.create_topics([wanted])[topic.name]
            if error is not None:
                raise error

        self._ask(f"topic {topic.name}", create)

    def delete_topic(self, name: str) -> None:
        self._ask(f"topic {name}", lambda: self._admin.delete_topic(name))

    def add_partitions(self, name: str, partition_count: int) -> None:
        self._ask(f"topic {name}", lambda: self._admin.create_partitions(name, partition_count))

    # ------------------------------------------------------------------------------ offsets

    def offsets(
        self,
        queries: Mapping[TopicPartition, OffsetQuery],
        *,
        committed: bool = True,
        patience_s: float | None = None,
    ) -> dict[TopicPartition, FoundOffset | None]:
        """None where no record is that young. Only for partitions that have a leader. With
        `patience_s`, those whose leaders cannot tell for that long are left out."""
        wanted = {partition: _timestamp_of(query) for partition, query in queries.items()}
        if not wanted:
            return {}
        found = self._ask(
            f"offsets of {_some(wanted)}",
            lambda: self._admin.list_offsets(wanted, committed=committed, patience_s=patience_s),
        )
        return {partition: _found(one) for partition, one in found.items()}

    def offsets_of_living(
        self, queries: Mapping[TopicPartition, OffsetQuery], *, committed: bool = True
    ) -> dict[TopicPartition, FoundOffset | None]:
        """As `offsets`, but without the partitions of leaders that do not answer, or cannot tell:
        a new one knows no watermark before the others in sync have fetched.

        For what is shown: people look at a topic just when a broker is away, and want to see the
        rest. A line says of each such broker that it is silent; it is not asked again."""
        leaders = self._leaders_of({topic for topic, _ in queries})
        by_leader: dict[int, dict[TopicPartition, OffsetQuery]] = {}
        for one, query in queries.items():
            by_leader.setdefault(leaders.get(one, NOBODY), {})[one] = query
        found: dict[TopicPartition, FoundOffset | None] = {}
        for leader, wanted in sorted(by_leader.items()):
            if leader in self.silent:
                continue
            try:
                found |= self.offsets(wanted, committed=committed, patience_s=PATIENCE_S)
            except NoAnswer:
                self.silent.add(leader)
                self._tell_of(leader)
        return found

    def _leaders_of(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        return {
            (topic, partition.partition): partition.leader
            for topic in topics
            for partition in self._topics[topic].partitions
            if partition.leader is not None
        }

    def _tell_of(self, broker: int) -> None:
        if broker not in self._told_of:
            self._told_of.add(broker)
            where = self._brokers.get(broker, "an unknown address")
            note(f"broker {broker} at {where} does not answer: what it leads is not known in full")

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes what lies before each offset; gives the earliest offset that is left."""
        if not before:
            return {}
        return self._ask(
            f"records of {_some(before)}", lambda: self._admin.delete_records(dict(before))
        )

    # ------------------------------------------------------------------------------ configs

    def configs(self, kind: str, name: str) -> list[Setting]:
        """All settings of a `topic` or a `broker`."""
        self._check_broker(kind, name)
        entries = self._ask(f"{kind} {name}", lambda: self._admin.describe_configs(kind, name))
        return [
            Setting(
                name=entry.name,
                value=entry.value,
                source=entry.source,
                read_only=entry.is_read_only,
                sensitive=entry.is_sensitive,
                is_default=entry.is_default,
                type=entry.type,
                documentation=entry.documentation,
                synonyms=[one._asdict() for one in entry.synonyms],
            )
            for entry in entries
        ]

    def alter_configs(
        self, kind: str, name: str, changes: Mapping[str, str], deletions: Iterable[str]
    ) -> None:
        self._check_broker(kind, name)
        self._ask(
            f"{kind} {name}", lambda: self._admin.alter_configs(kind, name, changes, deletions)
        )

    def _check_broker(self, kind: str, name: str) -> None:
        """The client would wait for one that may come yet."""
        if kind == "broker" and name.isdigit() and int(name) not in self._brokers:
            there = ", ".join(map(str, sorted(self._brokers)))
            raise Failure(f"there is no broker {name}; there are {there}")

    # ------------------------------------------------------------------------------ records

    def sender(self, topic: str, settings: SenderSettings) -> RecordSender:
        from ottla.cli.record_sender import RecordSender  # noqa: PLC0415

        return RecordSender(self._settings, topic, settings, self._batch_bytes_max(topic))

    def _batch_bytes_max(self, topic: str) -> int | None:
        """What the topic takes at once, so that a record too large fails without its neighbours."""
        if topic not in self._topics:
            return None
        try:
            configs = {setting.name: setting.value for setting in self.configs("topic", topic)}
        except Failure:
            # Who may write to a topic need not be allowed to look at its settings.
            return None
        limit = configs.get("max.message.bytes") or ""
        return int(limit) if limit.isdigit() else None

    def reader(self, *, committed: bool) -> RecordReader:
        from ottla.cli.record_reader import RecordReader  # noqa: PLC0415

        return RecordReader(self._settings, committed=committed)

    # ------------------------------------------------------------------------------- groups

    def group_admin(self) -> GroupAdmin:
        return GroupAdmin(self._admin, self._ask)

    def group_reader(
        self, membership: Membership, listener: AssignmentListener, *, committed: bool
    ) -> GroupReader:
        from ottla.cli.group_reader import GroupReader  # noqa: PLC0415

        return GroupReader(self._settings, membership, listener, committed=committed)

    # ------------------------------------------------------------------------------ answers

    def _ask(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (TimedOutError, ConnectionLostError) as cause:
            raise NoAnswer(f"{what}: {reason_of(cause)}; {self._where_brokers_are()}") from cause
        except ClientError as cause:
            raise Failure(f"{what}: {reason_of(cause)}") from cause

    def _where_brokers_are(self) -> str:
        # The usual reason is an advertised.listeners that this machine cannot reach.
        brokers = ", ".join(map(str, self._brokers.values()))
        return f"the cluster says that its brokers are at {brokers}"


def _or_broker_default(number: int | None) -> int:
    return -1 if number is None else number


def _some(partitions: Iterable[TopicPartition]) -> str:
    """The first of them, and how many there are besides."""
    (topic, partition), *others = partitions
    more = f" and {len(others)} more" if others else ""
    return f"{topic}-{partition}{more}"


def _timestamp_of(query: OffsetQuery) -> int:
    if query == EARLIEST:
        return admin_values.EARLIEST
    if query == LATEST:
        return admin_values.LATEST
    return int(query)


def _found(one: admin_values.FoundOffset | None) -> FoundOffset | None:
    if one is None:
        return None
    return FoundOffset(one.offset, one.leader_epoch if one.leader_epoch >= 0 else None)


def _place_of(topic: TopicDescription) -> TopicPlace:
    return TopicPlace(
        name=topic.name,
        # Kafka writes ids in the alphabet that is safe in URLs, without the padding.
        topic_id=base64.urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("="),
        internal=topic.is_internal,
        partitions=[
            PartitionPlace(
                partition=partition.partition,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch if partition.leader_epoch >= 0 else None,
                replicas=list(partition.replicas),
                in_sync=list(partition.in_sync),
            )
            for partition in sorted(topic.partitions, key=lambda one: one.partition)
        ],
    )
