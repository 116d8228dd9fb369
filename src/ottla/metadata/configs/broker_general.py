"""Settings of the broker itself, of topics, quotas, metrics and plug-ins.

Names, types, defaults and bounds are Kafka's of 4.3, but for the defaults in `definitions`.
"""

from __future__ import annotations

from ottla.metadata.configs.definition import (
    CLUSTER_WIDE,
    PER_BROKER,
    ConfigDefinition,
    boolean,
    class_name,
    integer,
    items,
    long,
    string,
    without_effect,
)
from ottla.metadata.configs.reasons import BUDGET, JAVA, METRICS, QUOTAS
from ottla.metadata.configs.validators import at_least

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    string(
        "authorizer.class.name",
        "",
        about=(
            "Must be empty so far: access rights are not checked yet, and a broker that is told to "
            "check them refuses to start."
        ),
    ),
    boolean(
        "auto.create.topics.enable",
        True,
        about="Whether a topic is created when a client first asks for it.",
    ),
    integer("broker.id", 0, about="The older name of node.id."),
    string(
        "broker.rack",
        None,
        about=(
            "Where the broker stands, so that replicas can be kept apart; the host's name if it "
            "is not set."
        ),
    ),
    integer(
        "default.replication.factor",
        1,
        about="Replicas of a topic that is created without a count.",
    ),
    boolean("delete.topic.enable", True, about="Whether topics may be deleted."),
    integer(
        "fetch.max.bytes",
        57_671_680,
        at_least(1024),
        about=(
            "The most that one Fetch answer holds, whatever the client allows. A first batch "
            "that is larger is still sent whole."
        ),
    ),
    integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        at_least(0),
        about=(
            "Incremental fetch sessions that are remembered; the one idle longest makes room "
            "for a new one."
        ),
    ),
    integer(
        "max.request.partition.size.limit",
        2000,
        at_least(1),
        about=(
            "Partitions in one answer to DescribeTopicPartitions; the client asks again for the "
            "rest."
        ),
    ),
    integer(
        "min.insync.replicas",
        1,
        at_least(1),
        about=(
            "In-sync replicas that a write with acks=all needs; never more than the topic has "
            "replicas."
        ),
        mode=CLUSTER_WIDE,
    ),
    # Kafka wants it set. 0 and not 1: clients take any number, but kafka-python's own integration
    # tests, which are run against Ottla, ask for broker 0.
    integer(
        "node.id",
        0,
        at_least(0),
        about=(
            "The number of this broker. It is kept in the data directory, which then refuses to "
            "open under another one."
        ),
    ),
    integer(
        "num.partitions",
        1,
        at_least(1),
        about="Partitions of a topic that is created without a count.",
    ),
    *without_effect(
        JAVA,
        class_name("alter.config.policy.class.name", None),
        class_name("client.quota.callback.class", None),
        items("config.providers", (), mode=CLUSTER_WIDE),
        class_name("create.topic.policy.class.name", None),
        class_name(
            "principal.builder.class",
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
            mode=PER_BROKER,
        ),
        string("security.providers", None),
    ),
    string(
        "replica.selector.class",
        None,
        about=(
            "With org.apache.kafka.common.replica.RackAwareReplicaSelector, consumers that tell "
            "their rack read from a replica in it (KIP-392). No other selector is known; without "
            "one, they read from leaders."
        ),
    ),
    long(
        "follower.replication.throttled.rate",
        None,
        at_least(0),
        about=(
            "Bytes per second that this broker copies of follower.replication.throttled.replicas, "
            "while it is not in sync."
        ),
        mode=CLUSTER_WIDE,
        hidden=True,
    ),
    long(
        "leader.replication.throttled.rate",
        None,
        at_least(0),
        about=(
            "Bytes per second that this broker sends of leader.replication.throttled.replicas to "
            "who is not in sync."
        ),
        mode=CLUSTER_WIDE,
        hidden=True,
    ),
    *without_effect(
        BUDGET,
        integer("alter.log.dirs.replication.quota.window.num", 11, at_least(1)),
        integer("alter.log.dirs.replication.quota.window.size.seconds", 1, at_least(1)),
        integer("replication.quota.window.num", 11, at_least(1)),
        integer("replication.quota.window.size.seconds", 1, at_least(1)),
    ),
    long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        None,
        at_least(0),
        about=(
            "Bytes in a second that replicas on their way between log dirs of a broker are copied "
            "with, all together; as fast as it goes if it is not set."
        ),
        mode=CLUSTER_WIDE,
        hidden=True,
    ),
    *without_effect(
        QUOTAS,
        integer("controller.quota.window.num", 11, at_least(1)),
        integer("controller.quota.window.size.seconds", 1, at_least(1)),
        integer("quota.window.num", 11, at_least(1)),
        integer("quota.window.size.seconds", 1, at_least(1)),
    ),
    *without_effect(
        METRICS,
        integer("kafka.metrics.polling.interval.secs", 10, at_least(1)),
        items("kafka.metrics.reporters", ()),
        items(
            "metric.reporters", ("org.apache.kafka.common.metrics.JmxReporter",), mode=CLUSTER_WIDE
        ),
        integer("metrics.num.samples", 2, at_least(1)),
        string("metrics.recording.level", "INFO"),
        long("metrics.sample.window.ms", 30_000, at_least(1)),
        integer("telemetry.max.bytes", 1_048_576, at_least(1)),
    ),
)
