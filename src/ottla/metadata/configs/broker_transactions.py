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
from ottla.metadata.configs.reasons import TRANSACTIONS
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
    *without_effect(
        TRANSACTIONS,
        integer("add.partitions.to.txn.retry.backoff.max.ms", 100, at_least(0)),
        integer("add.partitions.to.txn.retry.backoff.ms", 20, at_least(1)),
        integer("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, at_least(1)),
        integer("transaction.max.timeout.ms", 900_000, at_least(1)),
        boolean("transaction.partition.verification.enable", True, mode=CLUSTER_WIDE),
        integer(
            "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, at_least(1)
        ),
        integer("transaction.state.log.load.buffer.size", 5_242_880, at_least(1)),
        integer("transaction.state.log.min.isr", 1, at_least(1)),
        integer("transaction.state.log.num.partitions", 50, at_least(1)),
        short("transaction.state.log.replication.factor", 1, at_least(1)),
        integer("transaction.state.log.segment.bytes", 104_857_600, at_least(1)),
        boolean("transaction.two.phase.commit.enable", False),
        integer("transactional.id.expiration.ms", 604_800_000, at_least(1)),
    ),
)
