"""Settings of the way to ZooKeeper: with `zookeeper.connect` a broker belongs to a cluster.

Names, types and defaults are those of Kafka 3.9, the last one that had them, and one of our own.
They are described only where they are set, so that a single node shows what Kafka 4.3 shows.
"""

from __future__ import annotations

from ottla.metadata.configs.definition import (
    ConfigDefinition,
    boolean,
    integer,
    password,
    string,
    without_effect,
)
from ottla.metadata.configs.reasons import ZOOKEEPER
from ottla.metadata.configs.validators import OneOf, at_least

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    string(
        "zookeeper.connect",
        None,
        about=(
            "The ZooKeeper servers that keep this cluster's metadata, as host:port,host:port/path; "
            "nothing: this broker is on its own. The path should be the cluster's own; it is made "
            "when it is missing."
        ),
        hidden=True,
    ),
    integer(
        "zookeeper.session.timeout.ms",
        18_000,
        at_least(1),
        about=(
            "After so much silence ZooKeeper takes this broker for dead, and others take its "
            "partitions over. ZooKeeper itself keeps it within 2 and 20 of its ticks."
        ),
        hidden=True,
    ),
    integer(
        "zookeeper.connection.timeout.ms",
        None,
        at_least(1),
        about=(
            "How long a start waits for ZooKeeper; where it is not set, "
            "zookeeper.session.timeout.ms."
        ),
        hidden=True,
    ),
    password(
        "ottla.zookeeper.digest",
        about="user:password, sent to ZooKeeper by its digest scheme.",
        hidden=True,
    ),
    boolean(
        "zookeeper.set.acl",
        False,
        about=(
            "Whether nodes are made so that only who shows the same digest may read or write them."
        ),
        hidden=True,
    ),
    boolean(
        "zookeeper.ssl.client.enable",
        False,
        about="Whether ZooKeeper is reached by TLS.",
        hidden=True,
    ),
    string(
        "zookeeper.ssl.keystore.location",
        None,
        about="A PEM file with this broker's key and certificate, for servers that ask for one.",
        hidden=True,
    ),
    password(
        "zookeeper.ssl.keystore.password", about="The password of that key, if any.", hidden=True
    ),
    string(
        "zookeeper.ssl.keystore.type",
        None,
        OneOf("PEM", any_case=True),
        about="Only PEM.",
        hidden=True,
    ),
    string(
        "zookeeper.ssl.truststore.location",
        None,
        about="A PEM file with the certificates to trust; where it is not set, the system's.",
        hidden=True,
    ),
    string(
        "zookeeper.ssl.truststore.type",
        None,
        OneOf("PEM", any_case=True),
        about="Only PEM.",
        hidden=True,
    ),
    string(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        OneOf("HTTPS", "", any_case=True),
        about="Whether the name in the server's certificate is checked; nothing: it is not.",
        hidden=True,
    ),
    *without_effect(
        ZOOKEEPER,
        string("zookeeper.clientCnxnSocket", None, hidden=True),
        integer("zookeeper.max.in.flight.requests", 10, at_least(1), hidden=True),
        string("zookeeper.ssl.cipher.suites", None, hidden=True),
        boolean("zookeeper.ssl.crl.enable", False, hidden=True),
        string("zookeeper.ssl.enabled.protocols", None, hidden=True),
        boolean("zookeeper.ssl.ocsp.enable", False, hidden=True),
        string("zookeeper.ssl.protocol", "TLSv1.2", hidden=True),
        password("zookeeper.ssl.truststore.password", hidden=True),
    ),
)
