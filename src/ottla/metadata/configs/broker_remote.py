"""Settings of tiered storage.

Names, types, defaults and bounds are Kafka's of 4.3, but for the defaults in `definitions`.
"""

from __future__ import annotations

from ottla.metadata.configs.definition import (
    CLUSTER_WIDE,
    ConfigDefinition,
    boolean,
    double,
    integer,
    long,
    string,
    without_effect,
)
from ottla.metadata.configs.reasons import TIERED
from ottla.metadata.configs.validators import NotEmpty, at_least, between
from ottla.metadata.configs.values import LONG_MAX

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    *without_effect(
        TIERED,
        boolean("follower.fetch.last.tiered.offset.enable", False, mode=CLUSTER_WIDE),
        long("log.local.retention.bytes", -2, at_least(-2), mode=CLUSTER_WIDE),
        long("log.local.retention.ms", -2, at_least(-2), mode=CLUSTER_WIDE),
        integer("remote.fetch.max.wait.ms", 500, at_least(1), mode=CLUSTER_WIDE),
        long("remote.list.offsets.request.timeout.ms", 30_000, at_least(1), mode=CLUSTER_WIDE),
        long(
            "remote.log.index.file.cache.total.size.bytes",
            1_073_741_824,
            at_least(1),
            mode=CLUSTER_WIDE,
        ),
        long("remote.log.index.file.cache.ttl.ms", 900_000, at_least(-1), hidden=True),
        integer("remote.log.manager.copier.thread.pool.size", 10, at_least(1), mode=CLUSTER_WIDE),
        long(
            "remote.log.manager.copy.max.bytes.per.second", LONG_MAX, at_least(1), mode=CLUSTER_WIDE
        ),
        integer("remote.log.manager.copy.quota.window.num", 11, at_least(1)),
        integer("remote.log.manager.copy.quota.window.size.seconds", 1, at_least(1)),
        integer(
            "remote.log.manager.expiration.thread.pool.size", 10, at_least(1), mode=CLUSTER_WIDE
        ),
        long(
            "remote.log.manager.fetch.max.bytes.per.second",
            LONG_MAX,
            at_least(1),
            mode=CLUSTER_WIDE,
        ),
        integer("remote.log.manager.fetch.quota.window.num", 11, at_least(1)),
        integer("remote.log.manager.fetch.quota.window.size.seconds", 1, at_least(1)),
        integer("remote.log.manager.follower.thread.pool.size", 2, at_least(1), mode=CLUSTER_WIDE),
        long("remote.log.manager.task.interval.ms", 30_000, at_least(1)),
        long("remote.log.manager.task.retry.backoff.max.ms", 30_000, at_least(1), hidden=True),
        long("remote.log.manager.task.retry.backoff.ms", 500, at_least(1), hidden=True),
        double("remote.log.manager.task.retry.jitter", 0.2, between(0, 0.5), hidden=True),
        integer("remote.log.manager.thread.pool.size", 2, at_least(1)),
        integer("remote.log.metadata.custom.metadata.max.bytes", 128, at_least(0)),
        string(
            "remote.log.metadata.manager.class.name",
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
            NotEmpty(),
        ),
        string("remote.log.metadata.manager.class.path", None),
        string("remote.log.metadata.manager.impl.prefix", "rlmm.config.", NotEmpty()),
        string("remote.log.metadata.manager.listener.name", None, NotEmpty()),
        integer("remote.log.reader.max.pending.tasks", 100, at_least(1)),
        integer("remote.log.reader.threads", 10, at_least(1), mode=CLUSTER_WIDE),
        string("remote.log.storage.manager.class.name", None, NotEmpty()),
        string("remote.log.storage.manager.class.path", None),
        string("remote.log.storage.manager.impl.prefix", "rsm.config.", NotEmpty()),
        boolean("remote.log.storage.system.enable", False),
    ),
)
