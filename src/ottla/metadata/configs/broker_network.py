"""Settings of listeners, connections and threads.

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
    string,
    without_effect,
)
from ottla.metadata.configs.reasons import KRAFT, ONE_LOOP, PEERS
from ottla.metadata.configs.validators import OneOf, at_least

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    items(
        "advertised.listeners",
        None,
        SOME_ITEMS,
        about=(
            "What clients are told to connect to; the addresses of listeners if it is not set. "
            "0.0.0.0 cannot be advertised."
        ),
    ),
    long(
        "connections.max.idle.ms",
        600_000,
        about="A connection on which nothing moves for so long is closed.",
    ),
    string(
        "inter.broker.listener.name",
        None,
        about=(
            "The listener that brokers use among themselves; the one named after "
            "security.inter.broker.protocol if it is not set."
        ),
    ),
    # Kafka changes this and `listeners` while it runs; here a socket stays open until the end, and
    # a change that waits for the next start without saying so would be a trap.
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        about=(
            "Which protocol a listener name stands for, as NAME:PROTOCOL, separated by commas. "
            "Only PLAINTEXT is served so far."
        ),
    ),
    items(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        SOME_ITEMS,
        about=(
            "Where to listen: NAME://host:port, separated by commas. No host means every "
            "address of the machine; port 0 takes a free one. On loopback unless told "
            "otherwise."
        ),
    ),
    integer(
        "max.connection.creation.rate",
        1_000,
        at_least(0),
        about=(
            "New connections per second; past it, accepting is slowed down. Kafka sets no bound "
            "here."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "max.connections",
        10_000,
        at_least(0),
        about=(
            "Connections that may be open at once; past it, new ones are closed. Brokers get in "
            "all the same, if they have a listener of their own. Kafka sets no bound here."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "max.connections.per.ip",
        5_000,
        at_least(0),
        about=(
            "Connections that may be open at once from one address; past it, new ones are "
            "closed. Less than max.connections, so that one address cannot take them all. Not for "
            "brokers, if they have a listener of their own. Kafka sets no bound here."
        ),
        mode=CLUSTER_WIDE,
    ),
    string(
        "max.connections.per.ip.overrides",
        "",
        about="Exceptions to max.connections.per.ip, as address:count, separated by commas.",
        mode=CLUSTER_WIDE,
    ),
    integer(
        "num.io.threads",
        8,
        at_least(1),
        about=(
            "Threads of the pool for work that may block: syncing, recovery, deleting files, "
            "unpacking large batches. May be changed while the broker runs, at most to double "
            "or half at a time."
        ),
        mode=CLUSTER_WIDE,
    ),
    string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        about=(
            "Which listener brokers use among themselves when inter.broker.listener.name is not "
            "set. Only one of the two may be set."
        ),
    ),
    integer(
        "socket.listen.backlog.size",
        50,
        at_least(1),
        about="Connections of one listener that may wait to be accepted.",
    ),
    integer(
        "socket.receive.buffer.bytes",
        102_400,
        about=(
            "Size of the receive buffer of client connections; -1 leaves it to the operating "
            "system."
        ),
    ),
    integer(
        "socket.request.max.bytes",
        104_857_600,
        at_least(1),
        about=(
            "The largest request that is read; a larger one closes the connection. Requests "
            "other than Produce have the tighter bound ottla.max.request.bytes."
        ),
    ),
    integer(
        "socket.send.buffer.bytes",
        102_400,
        about=(
            "Size of the send buffer of client connections; -1 leaves it to the operating system. "
            "If it is not set, 512 KiB, or left to it where it allows less."
        ),
    ),
    *without_effect(
        ONE_LOOP,
        integer("background.threads", 10, at_least(1), mode=CLUSTER_WIDE),
        integer("delete.records.purgatory.purge.interval.requests", 1),
        integer("fetch.purgatory.purge.interval.requests", 1000),
        integer("num.network.threads", 3, at_least(1), mode=CLUSTER_WIDE),
        integer("producer.purgatory.purge.interval.requests", 1000),
        long("queued.max.request.bytes", -1),
        integer("queued.max.requests", 500, at_least(1)),
    ),
    *without_effect(
        KRAFT,
        items("early.start.listeners", None),
    ),
    *without_effect(
        PEERS,
        long("socket.connection.setup.timeout.max.ms", 30_000),
        long("socket.connection.setup.timeout.ms", 10_000),
    ),
)
