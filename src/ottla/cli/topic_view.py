"""What `ottla topic describe` and `records` show, gathered as plain JSON values and laid out."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.ids import TopicPartition
from ottla.cli.log_sizes import Held, held_replicas
from ottla.cli.model import FoundOffset, PartitionPlace, TopicPlace
from ottla.cli.output import Size, plural
from ottla.cli.tables import print_table

if TYPE_CHECKING:
    from ottla.cli.connection import Connection

COLUMNS = (
    *("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC"),
    *("EARLIEST", "WATERMARK", "LAG", "SIZE"),
)
Offsets = Mapping[TopicPartition, FoundOffset | None]


class Known(NamedTuple):
    """What the brokers said of all partitions that are shown."""

    earliest: Offsets
    latest: Offsets
    watermarks: Offsets
    held: Held


def describe_topics(connection: Connection, names: Sequence[str]) -> list[dict[str, Any]]:
    places = connection.places(list(dict.fromkeys(names)))
    led = [
        (topic.name, partition.partition)
        for topic in places
        for partition in topic.partitions
        if partition.leader is not None
    ]
    known = Known(
        earliest=connection.offsets_of_living(dict.fromkeys(led, "earliest")),
        latest=connection.offsets_of_living(dict.fromkeys(led, "latest")),
        watermarks=connection.offsets_of_living(dict.fromkeys(led, "latest"), committed=False),
        held=held_replicas(connection, places),
    )
    return [
        _topic(connection, topic, [_partition(topic.name, one, known) for one in topic.partitions])
        for topic in places
    ]


def _topic(
    connection: Connection, topic: TopicPlace, partitions: list[dict[str, Any]]
) -> dict[str, Any]:
    sizes = [partition["size_bytes"] for partition in partitions]
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "replication_factor": max((len(one.replicas) for one in topic.partitions), default=0),
        "size_bytes": None if None in sizes else sum(sizes),
        "configs": {
            setting.name: setting.value
            for setting in connection.configs("topic", topic.name)
            if setting.source == "DYNAMIC_TOPIC_CONFIG"
        },
        "partitions": partitions,
    }


def _partition(topic: str, place: PartitionPlace, known: Known) -> dict[str, Any]:
    key = (topic, place.partition)
    first, last, mark = (
        offsets.get(key) for offsets in (known.earliest, known.latest, known.watermarks)
    )
    held = known.held.get(key, {})
    leaders = None if place.leader is None else held.get(place.leader)
    return {
        "partition": place.partition,
        "leader": place.leader,
        "leader_epoch": place.leader_epoch,
        "replicas": place.replicas,
        "in_sync": place.in_sync,
        "earliest_offset": None if first is None else first.offset,
        "latest_offset": None if last is None else last.offset,
        "high_watermark": None if mark is None else mark.offset,
        "lags": [held[one].lag if one in held else None for one in place.replicas],
        "size_bytes": None if leaders is None else leaders.size_bytes,
    }


def show_topics(topics: Sequence[Mapping[str, Any]]) -> None:
    for number, topic in enumerate(topics):
        if number:
            sys.stdout.write("\n")
        facts = [
            plural(len(topic["partitions"]), "partition"),
            f"replication factor {topic['replication_factor']}",
            *([str(Size(topic["size_bytes"]))] if topic["size_bytes"] is not None else []),
            f"id {topic['topic_id']}",
        ]
        sys.stdout.write(f"{topic['topic']}: {', '.join(facts)}\n")
        for name, value in topic["configs"].items():
            sys.stdout.write(f"  {name}={value}\n")
        print_table(
            COLUMNS,
            [_row(partition) for partition in topic["partitions"]],
        )


def _row(partition: Mapping[str, Any]) -> list[object]:
    size = partition["size_bytes"]
    return [
        partition["partition"],
        partition["leader"],
        partition["leader_epoch"],
        ",".join(map(str, partition["replicas"])),
        ",".join(map(str, partition["in_sync"])) or None,
        partition["earliest_offset"],
        partition["high_watermark"],
        ",".join("?" if lag is None else str(lag) for lag in partition["lags"]),
        None if size is None else Size(size),
    ]


def held_offsets(
    connection: Connection, partitions: Sequence[TopicPartition]
) -> list[dict[str, Any]]:
    earliest = connection.offsets(dict.fromkeys(partitions, "earliest"))
    latest = connection.offsets(dict.fromkeys(partitions, "latest"))
    rows = []
    for topic, partition in partitions:
        first, last = earliest[topic, partition], latest[topic, partition]
        low = 0 if first is None else first.offset
        high = low if last is None else last.offset
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "earliest_offset": low,
                "latest_offset": high,
                "offsets": high - low,
            }
        )
    return rows
