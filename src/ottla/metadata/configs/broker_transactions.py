"""Settings of transactions and of idempotent producers.

Names, types, defaults and bounds are Kafka's of 4.3, but for the defaults in `definitions`.
"""

from __future__ import annotations

from ottla.metadata.configs.definition import (
    CLUSTER_WIDE,
    ConfigDefinition,
    boolean,
    integer,
    short,
    without_effect,
)
from ottla.metadata.configs.reasons import PIECES
from ottla.metadata.configs.validators import at_least

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    integer(
        "producer.id.expiration.check.interval.ms",
        600_000,
        at_least(1),
        about="How often producers that expired are looked for.",
        hidden=True,
    ),
    integer(
        "producer.id.expiration.ms",
        86_400_000,
        at_least(1),
        about=(
            "An idempotent producer that wrote nothing to a partition for so long is forgotten "
            "there."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        at_least(0),
        about=(
            "How long a produce may wait for the end of its producer's last transaction before "
            "the client is told to retry."
        ),
    ),
    integer(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        at_least(1),
        about="How often such a produce asks again.",
    ),
    integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        at_least(1),
        about="How often transactions that ran out of time are looked for.",
    ),
    integer(
        "transaction.max.timeout.ms",
        900_000,
        at_least(1),
        about="The longest time-out that a producer may ask for.",
    ),
    boolean(
        "transaction.partition.verification.enable",
        True,
        about=(
            "Whether the coordinator is asked, before the first append of a transaction to a "
            "partition, if the partition is in it. Clients with an epoch per transaction are "
            "always checked."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        at_least(1),
        about="How often transactional ids that expired are looked for.",
    ),
    integer(
        "transaction.state.log.min.isr",
        1,
        at_least(1),
        about="`min.insync.replicas` of `__transaction_state` when it is made.",
    ),
    integer(
        "transaction.state.log.num.partitions",
        50,
        at_least(1),
        about="Partitions of `__transaction_state` when it is made.",
    ),
    short(
        "transaction.state.log.replication.factor",
        1,
        at_least(1),
        about="Replicas of `__transaction_state` when it is made.",
    ),
    integer(
        "transaction.state.log.segment.bytes",
        104_857_600,
        at_least(1),
        about="`segment.bytes` of `__transaction_state` when it is made.",
    ),
    integer(
        "transactional.id.expiration.ms",
        604_800_000,
        at_least(1),
        about="A transactional id that nobody used for so long is forgotten.",
    ),
    *without_effect(
        PIECES,
        integer("transaction.state.log.load.buffer.size", 5_242_880, at_least(1)),
    ),
    boolean(
        "transaction.two.phase.commit.enable",
        False,
        about="Clients may ask for transactions that never run out of time (KIP-939).",
    ),
)
