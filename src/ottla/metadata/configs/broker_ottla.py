"""Settings that Kafka 4.3 does not have: our own under `ottla.`, and names of the past.

The latter stand in many a server.properties; they are shown only where they are set. Those of
ZooKeeper are in `broker_zookeeper`.
"""

from __future__ import annotations

from ottla.base.limits import REQUEST_BYTES_MAX_OTHER_THAN_PRODUCE
from ottla.metadata.configs.definition import (
    CLUSTER_WIDE,
    ConfigDefinition,
    boolean,
    integer,
    long,
    string,
    without_effect,
)
from ottla.metadata.configs.reasons import PAST
from ottla.metadata.configs.validators import HostAndPort, at_least, between

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    integer(
        "ottla.gather.requests.ms",
        2,
        between(0, 1000),
        about=(
            "How long the broker waits for more requests of a client that has several under way, "
            "so that it handles them together; twice as long at most. It stops by itself where no "
            "more come. 0 turns it off."
        ),
    ),
    long(
        "ottla.log.dir.reserve.bytes",
        -1,
        at_least(-1),
        about=(
            "Produce is refused with KAFKA_STORAGE_ERROR, to be tried again, while less than this "
            "is left on the file system of a log dir; copies of other brokers and the internal "
            "topics go on. -1 is 64 MiB or a hundredth of the file system, whichever is less; 0 "
            "turns it off."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "ottla.look.before.sleep.us",
        -1,
        at_least(-1),
        about=(
            "How long a broker looks for the next request before it sleeps: clients that wait for "
            "each answer get it sooner. It stops by itself where that is of no use, or where "
            "others want the core. -1 is 200 for a broker alone and 0 in a cluster; 0 turns it off."
        ),
    ),
    integer(
        "ottla.max.request.bytes",
        REQUEST_BYTES_MAX_OTHER_THAN_PRODUCE,
        at_least(1024),
        about=(
            "The largest request other than Produce that is read; a larger one closes the "
            "connection. Never more than socket.request.max.bytes."
        ),
    ),
    string(
        "ottla.metrics.listener",
        "127.0.0.1:9644",
        HostAndPort(),
        about=(
            "Where /metrics, /healthz and /readyz are served, as host:port; port 0 takes a free "
            "one, nothing turns it off."
        ),
    ),
    long(
        "ottla.scrub.interval.ms",
        604_800_000,
        at_least(-1),
        about=(
            "How long after the last time stored records are looked over again for damage of the "
            "disk; -1 is never."
        ),
        mode=CLUSTER_WIDE,
    ),
    long(
        "ottla.scrub.io.max.bytes.per.second",
        10_485_760,
        at_least(1024),
        about="Bytes that are read in a second at most to look over stored records, on average.",
        mode=CLUSTER_WIDE,
    ),
    *without_effect(
        PAST,
        boolean("broker.id.generation.enable", True, hidden=True),
        string("control.plane.listener.name", None, hidden=True),
        string("inter.broker.protocol.version", None, hidden=True),
        boolean("log.message.downconversion.enable", True, hidden=True),
        string("log.message.format.version", None, hidden=True),
        long("log.message.timestamp.difference.max.ms", None, hidden=True),
        integer("offsets.commit.required.acks", -1, hidden=True),
        integer("reserved.broker.max.id", 1000, at_least(0), hidden=True),
        boolean("zookeeper.metadata.migration.enable", False, hidden=True),
    ),
)
