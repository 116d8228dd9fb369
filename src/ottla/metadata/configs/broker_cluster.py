"""Settings of replication, of the controller and of KRaft.

Names, types, defaults and bounds are Kafka's of 4.3, but for the defaults in `definitions`.
"""

from __future__ import annotations

from ottla.metadata.configs.definition import (
    CLUSTER_WIDE,
    ConfigDefinition,
    boolean,
    integer,
    items,
    long,
    string,
    without_effect,
)
from ottla.metadata.configs.reasons import ANY_BROKER, AT_ONCE, KRAFT, ONE_FETCHER
from ottla.metadata.configs.validators import Items, at_least
from ottla.metadata.configs.values import LONG_MAX

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        about="How often the high watermarks are written to disk.",
    ),
    boolean(
        "auto.leader.rebalance.enable",
        True,
        about="Whether leaderships go back to the first replica of each list from time to time.",
    ),
    boolean(
        "controlled.shutdown.enable",
        True,
        about="Whether a broker that stops hands over first what others can lead.",
    ),
    integer(
        "controlled.shutdown.max.retries",
        3,
        about=(
            "With controlled.shutdown.retry.backoff.ms: how long handing over may take, which is "
            "one more than this times that."
        ),
        hidden=True,
    ),
    long(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        about="See controlled.shutdown.max.retries.",
        hidden=True,
    ),
    long(
        "leader.imbalance.check.interval.seconds",
        300,
        at_least(1),
        about="How often the controller looks for leaderships that are to go back.",
    ),
    integer(
        "leader.imbalance.per.broker.percentage",
        10,
        about=(
            "Where it is set, leaderships go back to a broker only if more than so many percent of "
            "them are elsewhere; otherwise all do, as in Kafka 4."
        ),
        hidden=True,
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        about=(
            "Whether a partition without any in-sync replica alive is led by another one, which "
            "may lose records that were acknowledged; otherwise it waits."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "replica.fetch.backoff.ms",
        1000,
        at_least(0),
        about="How long a follower waits after an error before it asks for a partition again.",
    ),
    integer(
        "replica.fetch.max.bytes",
        1_048_576,
        at_least(0),
        about="What a follower takes of one partition at once; a larger batch is taken whole.",
    ),
    integer(
        "replica.fetch.min.bytes",
        1,
        about=(
            "What a follower asks to wait for. Leaders answer all the same as soon as there is "
            "anything."
        ),
    ),
    integer(
        "replica.fetch.response.max.bytes",
        10_485_760,
        at_least(0),
        about="What a follower takes of all partitions of one leader at once.",
    ),
    integer(
        "replica.fetch.wait.max.ms",
        500,
        about=(
            "How long a leader that has nothing new may keep a follower waiting. Less than "
            "replica.lag.time.max.ms."
        ),
    ),
    long(
        "replica.lag.time.max.ms",
        30_000,
        about=(
            "A follower that did not reach the end of the leader's log for so long leaves the "
            "in-sync set; writes with acks=all do not wait for it any more."
        ),
    ),
    integer(
        "replica.socket.receive.buffer.bytes",
        65_536,
        about=(
            "Size of the receive buffer of connections to other brokers; if it is not set, the "
            "operating system finds one."
        ),
    ),
    integer(
        "replica.socket.timeout.ms",
        30_000,
        about="How long another broker may take to answer; after that its connection is closed.",
    ),
    *without_effect(
        ANY_BROKER,
        integer("controller.socket.timeout.ms", 30_000),
        integer("request.timeout.ms", 30_000),
    ),
    *without_effect(
        AT_ONCE,
        long("unclean.leader.election.interval.ms", 300_000, at_least(1), hidden=True),
    ),
    integer(
        "num.replica.alter.log.dirs.threads",
        None,
        about=(
            "How many replicas are moved to other log dirs of their broker at a time; as many as "
            "it has log dirs if it is not set."
        ),
    ),
    *without_effect(
        ONE_FETCHER,
        integer("num.replica.fetchers", 1, at_least(1), mode=CLUSTER_WIDE),
    ),
    *without_effect(
        KRAFT,
        integer("broker.heartbeat.interval.ms", 2000),
        integer("broker.session.timeout.ms", 9000),
        items("controller.listener.names", ()),
        long("controller.performance.always.log.threshold.ms", 2000, at_least(0), hidden=True),
        long("controller.performance.sample.period.ms", 60_000, at_least(100), hidden=True),
        integer("controller.quorum.append.linger.ms", 25, at_least(0)),
        boolean("controller.quorum.auto.join.enable", False),
        items("controller.quorum.bootstrap.servers", ()),
        integer("controller.quorum.election.backoff.max.ms", 1000, at_least(0)),
        integer("controller.quorum.election.timeout.ms", 1000, at_least(0)),
        integer("controller.quorum.fetch.max.bytes", 1_048_576, at_least(1)),
        integer("controller.quorum.fetch.snapshot.max.bytes", 1_048_576, at_least(1)),
        integer("controller.quorum.fetch.timeout.ms", 2000, at_least(0)),
        integer("controller.quorum.request.timeout.ms", 2000, at_least(0)),
        integer("controller.quorum.retry.backoff.ms", 20, at_least(0)),
        items("controller.quorum.voters", ()),
        integer("initial.broker.registration.timeout.ms", 60_000),
        long("internal.metadata.delete.delay.millis", 60_000, hidden=True),
        integer("internal.metadata.log.segment.bytes", None, hidden=True),
        integer("internal.metadata.max.batch.size.in.bytes", 8_388_608, hidden=True),
        string("metadata.log.dir", None),
        long("metadata.log.max.record.bytes.between.snapshots", 20_971_520, at_least(1)),
        long("metadata.log.max.snapshot.interval.ms", 3_600_000, at_least(0)),
        integer("metadata.log.segment.bytes", 1_073_741_824, at_least(8_388_608)),
        long("metadata.log.segment.ms", 604_800_000),
        integer("metadata.max.idle.interval.ms", 500, at_least(0)),
        long("metadata.max.retention.bytes", 104_857_600),
        long("metadata.max.retention.ms", 604_800_000),
        items("process.roles", ("broker",), Items("broker", "controller", empty=False)),
        long("server.max.startup.time.ms", LONG_MAX, at_least(0), hidden=True),
        boolean("unstable.api.versions.enable", False, hidden=True),
        boolean("unstable.feature.versions.enable", False, hidden=True),
    ),
)
