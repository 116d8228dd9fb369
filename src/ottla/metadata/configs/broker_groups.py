"""Settings of consumer, share and streams groups and of their offsets.

Names, types, defaults and bounds are Kafka's of 4.3, but for the defaults in `definitions`.
"""

from __future__ import annotations

from ottla.metadata.configs.definition import (
    CLUSTER_WIDE,
    SOME_ITEMS,
    ConfigDefinition,
    integer,
    items,
    long,
    short,
    string,
    without_effect,
)
from ottla.metadata.configs.reasons import NOT_COMPRESSED, ONE_LOOP, PIECES, SHARE_AND_STREAMS
from ottla.metadata.configs.validators import Items, OneOf, at_least, between
from ottla.metadata.configs.values import INT_MAX

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    integer(
        "group.consumer.assignment.interval.ms",
        1000,
        at_least(0),
        about=(
            "With group.protocol=consumer: how long a group's partitions stay where they are "
            "before they are assigned anew. A group may have its own."
        ),
        mode=CLUSTER_WIDE,
    ),
    items(
        "group.consumer.assignors",
        ("uniform", "range"),
        SOME_ITEMS,
        about=(
            "The assignors that a consumer may choose from; the first one is for who does not "
            "choose."
        ),
    ),
    integer(
        "group.consumer.heartbeat.interval.ms",
        5000,
        at_least(1),
        about=(
            "How often members of a group with group.protocol=consumer are told to send "
            "heartbeats. A group may have its own."
        ),
    ),
    integer(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        at_least(0),
        about="The longest assignment interval that a group may have.",
    ),
    integer(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        about="The longest heartbeat interval that a group may have.",
    ),
    integer(
        "group.consumer.max.session.timeout.ms",
        60_000,
        at_least(1),
        about="The longest session time-out that a group may have.",
    ),
    integer(
        "group.consumer.max.size",
        INT_MAX,
        at_least(1),
        about="Members that one group with group.protocol=consumer may have.",
    ),
    string(
        "group.consumer.migration.policy",
        "bidirectional",
        OneOf("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL", any_case=True),
        about="Whether a group goes over to the other protocol when members of that join it.",
    ),
    integer(
        "group.consumer.min.assignment.interval.ms",
        0,
        at_least(0),
        about="The shortest assignment interval that a group may have.",
    ),
    integer(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        at_least(1),
        about="The shortest heartbeat interval that a group may have.",
    ),
    integer(
        "group.consumer.min.session.timeout.ms",
        45_000,
        at_least(1),
        about="The shortest session time-out that a group may have.",
    ),
    integer(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        at_least(10_000),
        about="How often the topics that a regular expression stands for are looked up anew.",
        hidden=True,
    ),
    integer(
        "group.consumer.session.timeout.ms",
        45_000,
        at_least(1),
        about=(
            "A member of a group with group.protocol=consumer that is silent for so long has "
            "left. A group may have its own."
        ),
    ),
    items(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        Items("consumer", "classic", "share", "streams", empty=False),
        about=(
            "The protocols of groups that are served; of them, classic and consumer exist here."
        ),
    ),
    integer(
        "group.initial.rebalance.delay.ms",
        0,
        about="How long a new group waits for more members before its first assignment.",
    ),
    integer(
        "group.max.session.timeout.ms",
        1_800_000,
        about="The longest session time-out that a member of a classic group may ask for.",
    ),
    integer(
        "group.max.size",
        INT_MAX,
        at_least(1),
        about="Members that one classic group may have.",
    ),
    integer(
        "group.min.session.timeout.ms",
        6000,
        about="The shortest session time-out that a member of a classic group may ask for.",
    ),
    integer(
        "offset.metadata.max.bytes",
        4096,
        about="The longest text that may be committed with an offset.",
    ),
    integer(
        "offsets.commit.timeout.ms",
        5000,
        at_least(1),
        about="How long a commit waits until all in-sync replicas have it.",
    ),
    long(
        "offsets.retention.check.interval.ms",
        600_000,
        at_least(1),
        about="How often offsets that expired are looked for.",
    ),
    integer(
        "offsets.retention.minutes",
        10_080,
        at_least(1),
        about="Offsets of a group without members are forgotten after so long.",
    ),
    integer(
        "offsets.topic.num.partitions",
        50,
        at_least(1),
        about="Partitions of `__consumer_offsets` when it is made.",
    ),
    short(
        "offsets.topic.replication.factor",
        1,
        at_least(1),
        about="Replicas of `__consumer_offsets` when it is made.",
    ),
    integer(
        "offsets.topic.segment.bytes",
        104_857_600,
        at_least(1),
        about="`segment.bytes` of `__consumer_offsets` when it is made.",
    ),
    *without_effect(
        NOT_COMPRESSED,
        integer("offsets.topic.compression.codec", 0),
    ),
    *without_effect(
        ONE_LOOP,
        integer("group.coordinator.append.linger.ms", -1, at_least(-1)),
        integer("group.coordinator.background.threads", 2, at_least(1)),
        integer(
            "group.coordinator.cached.buffer.max.bytes",
            1_048_588,
            at_least(524_288),
            mode=CLUSTER_WIDE,
        ),
        integer("group.coordinator.threads", 4, at_least(1)),
    ),
    *without_effect(
        PIECES,
        integer("offsets.load.buffer.size", 5_242_880, at_least(1)),
    ),
    short(
        "share.coordinator.state.topic.min.isr",
        1,
        at_least(1),
        about="`min.insync.replicas` of `__share_group_state`, if that is made.",
    ),
    integer(
        "share.coordinator.state.topic.num.partitions",
        50,
        at_least(1),
        about="Partitions of `__share_group_state`, if that is made.",
    ),
    short(
        "share.coordinator.state.topic.replication.factor",
        1,
        at_least(1),
        about="Replicas of `__share_group_state`, if that is made.",
    ),
    integer(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        at_least(1),
        about="`segment.bytes` of `__share_group_state`, if that is made.",
    ),
    *without_effect(
        SHARE_AND_STREAMS,
        integer("group.share.assignment.interval.ms", 1000, at_least(0), mode=CLUSTER_WIDE),
        items("group.share.assignors", ("simple",), SOME_ITEMS),
        integer("group.share.delivery.count.limit", 5, between(2, 10)),
        integer("group.share.heartbeat.interval.ms", 5000, at_least(1)),
        integer("group.share.initialize.retry.interval.ms", 30_000, at_least(1), hidden=True),
        integer("group.share.max.assignment.interval.ms", 15_000, at_least(0)),
        integer("group.share.max.delivery.count.limit", 10, between(5, 25)),
        integer("group.share.max.heartbeat.interval.ms", 15_000, at_least(1)),
        integer("group.share.max.partition.max.record.locks", 4000, between(2000, 10_000)),
        integer("group.share.max.record.lock.duration.ms", 60_000, between(30_000, 3_600_000)),
        integer("group.share.max.session.timeout.ms", 60_000, at_least(1)),
        integer("group.share.max.share.sessions", 2000, at_least(1)),
        integer("group.share.max.size", 200, between(1, 1000)),
        integer("group.share.min.assignment.interval.ms", 0, at_least(0)),
        integer("group.share.min.delivery.count.limit", 2, between(2, 5)),
        integer("group.share.min.heartbeat.interval.ms", 5000, at_least(1)),
        integer("group.share.min.partition.max.record.locks", 100, between(100, 2000)),
        integer("group.share.min.record.lock.duration.ms", 15_000, between(1000, 30_000)),
        integer("group.share.min.session.timeout.ms", 45_000, at_least(1)),
        integer("group.share.partition.max.record.locks", 2000, between(100, 10_000)),
        string(
            "group.share.persister.class.name",
            "org.apache.kafka.server.share.persister.DefaultStatePersister",
            hidden=True,
        ),
        integer("group.share.record.lock.duration.ms", 30_000, between(1000, 3_600_000)),
        integer("group.share.session.timeout.ms", 45_000, at_least(1)),
        integer("group.streams.assignment.interval.ms", 1000, at_least(0), mode=CLUSTER_WIDE),
        integer("group.streams.heartbeat.interval.ms", 5000, at_least(1)),
        integer("group.streams.initial.rebalance.delay.ms", 3000, at_least(0)),
        integer("group.streams.max.assignment.interval.ms", 15_000, at_least(0)),
        integer("group.streams.max.heartbeat.interval.ms", 15_000, at_least(1)),
        integer("group.streams.max.session.timeout.ms", 60_000, at_least(1)),
        integer("group.streams.max.size", INT_MAX, at_least(1)),
        integer("group.streams.max.standby.replicas", 2, at_least(0)),
        integer("group.streams.min.assignment.interval.ms", 0, at_least(0)),
        integer("group.streams.min.heartbeat.interval.ms", 5000, at_least(1)),
        integer("group.streams.min.session.timeout.ms", 45_000, at_least(1)),
        integer("group.streams.num.standby.replicas", 0, at_least(0)),
        integer("group.streams.session.timeout.ms", 45_000, at_least(1)),
        integer("share.coordinator.append.linger.ms", -1, at_least(-1)),
        integer(
            "share.coordinator.cached.buffer.max.bytes",
            1_048_588,
            at_least(524_288),
            mode=CLUSTER_WIDE,
        ),
        integer(
            "share.coordinator.cold.partition.snapshot.interval.ms",
            300_000,
            at_least(1),
            hidden=True,
        ),
        integer("share.coordinator.load.buffer.size", 5_242_880, at_least(1)),
        integer("share.coordinator.snapshot.update.records.per.snapshot", 500, between(0, 500)),
        integer("share.coordinator.state.topic.compression.codec", 0),
        integer(
            "share.coordinator.state.topic.prune.interval.ms", 300_000, at_least(1), hidden=True
        ),
        integer("share.coordinator.threads", 1, at_least(1)),
        integer("share.coordinator.write.timeout.ms", 5000, at_least(1)),
        integer("share.fetch.purgatory.purge.interval.requests", 1000),
    ),
)
