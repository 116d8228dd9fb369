"""Settings of the log: where it is, how it is cut, kept, synced and indexed.

Names, types, defaults and bounds are Kafka's of 4.3, but for the defaults in `definitions`.
"""

from __future__ import annotations

from ottla.metadata.configs.definition import (
    CLUSTER_WIDE,
    PER_BROKER,
    SOME_ITEMS,
    ConfigDefinition,
    boolean,
    double,
    integer,
    items,
    long,
    string,
    without_effect,
)
from ottla.metadata.configs.reasons import AT_ONCE, LOG_DIRS, ONE_CLEANER
from ottla.metadata.configs.validators import GzipLevel, Items, OneOf, at_least, between
from ottla.metadata.configs.values import DOUBLE_MAX, LONG_MAX

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    integer(
        "compression.gzip.level",
        -1,
        GzipLevel(),
        about=(
            "Default of compression.gzip.level of topics: how hard to compress where the broker "
            "does it with gzip."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "compression.lz4.level",
        9,
        between(1, 17),
        about=(
            "Default of compression.lz4.level of topics: how hard to compress where the broker "
            "does it with lz4."
        ),
        mode=CLUSTER_WIDE,
    ),
    string(
        "compression.type",
        "producer",
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        about=(
            "Default of compression.type of topics: the codec batches are stored with; producer "
            "keeps what the producer chose."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "compression.zstd.level",
        3,
        between(-131_072, 22),
        about=(
            "Default of compression.zstd.level of topics: how hard to compress where the broker "
            "does it with zstd."
        ),
        mode=CLUSTER_WIDE,
    ),
    items(
        "log.cleanup.policy",
        ("delete",),
        Items("compact", "delete", empty=True),
        about=(
            "Default of cleanup.policy: delete old segments, compact by key, or both; nothing "
            "keeps everything."
        ),
        mode=CLUSTER_WIDE,
    ),
    items(
        "log.dir",
        ("ottla-data",),
        SOME_ITEMS,
        about="The directory that holds the data when log.dirs is not set.",
    ),
    items(
        "log.dirs",
        None,
        SOME_ITEMS,
        about="The directories that hold the data, separated by commas; log.dir if it is not set.",
    ),
    long(
        "log.flush.interval.messages",
        LONG_MAX,
        at_least(1),
        about=(
            "Default of flush.messages: records after which a partition is synced to disk. With "
            "1, acknowledgements wait for the disk."
        ),
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.flush.interval.ms",
        None,
        about=(
            "Default of flush.ms: age of unsynced records at which a partition is synced; "
            "log.flush.scheduler.interval.ms if it is not set."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        about=(
            "How often the recovery points are written: what is below them needs no check after "
            "a crash."
        ),
    ),
    long(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        about="How often partitions are looked over for records that are due to be synced.",
    ),
    integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        about="How often the log start offsets are written.",
    ),
    long(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        about="How long the cleaner rests when there is nothing to clean.",
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        about=(
            "Memory for the keys of one cleaning, 24 bytes each; a partition with more keys is "
            "cleaned in several passes."
        ),
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        at_least(0),
        about=(
            "Default of delete.retention.ms: how long a record without a value stays after it "
            "was first cleaned."
        ),
        mode=CLUSTER_WIDE,
    ),
    boolean(
        "log.cleaner.enable",
        True,
        about="Whether compacted topics are cleaned at all.",
    ),
    double(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        about="How full log.cleaner.dedupe.buffer.size may get; the fuller, the slower.",
        mode=CLUSTER_WIDE,
    ),
    integer(
        "log.cleaner.io.buffer.size",
        524_288,
        at_least(0),
        about="How much the cleaner reads at a time; at least 2 MiB in any case.",
        mode=CLUSTER_WIDE,
    ),
    double(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        about="Bytes that the cleaner reads and writes in a second at most, on average.",
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        about=(
            "Default of max.compaction.lag.ms: how long a record of a compacted topic may wait "
            "to be compacted."
        ),
        mode=CLUSTER_WIDE,
    ),
    double(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        between(0, 1),
        about=(
            "Default of min.cleanable.dirty.ratio: a topic is cleaned when more than this part "
            "of it was written since the last cleaning."
        ),
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.cleaner.min.compaction.lag.ms",
        0,
        at_least(0),
        about=(
            "Default of min.compaction.lag.ms: how long a record of a compacted topic is kept "
            "whatever follows it."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "log.index.interval.bytes",
        4096,
        at_least(0),
        about=(
            "Default of index.interval.bytes: bytes of records between two entries of the indexes."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "log.index.size.max.bytes",
        10_485_760,
        at_least(4),
        about=(
            "Default of segment.index.bytes: size of an index file; a full one closes its segment."
        ),
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.initial.task.delay.ms",
        30_000,
        at_least(0),
        about="How long after the start the first look over the logs waits.",
        hidden=True,
    ),
    long(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        at_least(0),
        about=(
            "Default of message.timestamp.after.max.ms: how far in the future a record may be "
            "stamped."
        ),
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        about=(
            "Default of message.timestamp.before.max.ms: how far in the past a record may be "
            "stamped."
        ),
        mode=CLUSTER_WIDE,
    ),
    string(
        "log.message.timestamp.type",
        "CreateTime",
        OneOf("CreateTime", "LogAppendTime"),
        about=(
            "Default of message.timestamp.type: whose clock stamps a record, the producer's "
            "(CreateTime) or the broker's (LogAppendTime)."
        ),
        mode=CLUSTER_WIDE,
    ),
    boolean(
        "log.preallocate",
        False,
        about="Default of preallocate.",
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.retention.bytes",
        -1,
        about=(
            "Default of retention.bytes: size at which a partition gives up its oldest "
            "segments, -1 for no bound."
        ),
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.retention.check.interval.ms",
        300_000,
        at_least(1),
        about="How often partitions are looked over for segments to delete.",
    ),
    integer(
        "log.retention.hours",
        168,
        about=(
            "How long records are kept, in hours, when neither log.retention.ms nor "
            "log.retention.minutes is set."
        ),
    ),
    integer(
        "log.retention.minutes",
        None,
        about="How long records are kept, in minutes, when log.retention.ms is not set.",
    ),
    long(
        "log.retention.ms",
        None,
        about=(
            "Default of retention.ms: how long records are kept, -1 for ever. Stronger than "
            "log.retention.minutes and log.retention.hours."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "log.roll.hours",
        168,
        at_least(1),
        about="Age at which a segment is closed, in hours, when log.roll.ms is not set.",
    ),
    integer(
        "log.roll.jitter.hours",
        0,
        at_least(0),
        about="The same as log.roll.jitter.ms in hours, when that is not set.",
    ),
    long(
        "log.roll.jitter.ms",
        None,
        about=(
            "Default of segment.jitter.ms: the most that is taken off log.roll.ms at random, so "
            "that segments do not all roll at once."
        ),
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.roll.ms",
        None,
        about=(
            "Default of segment.ms: age at which a segment is closed although it is not full. "
            "Stronger than log.roll.hours."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "log.segment.bytes",
        1_073_741_824,
        at_least(1_048_576),
        about="Default of segment.bytes: size at which a segment is closed and a new one begun.",
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.segment.delete.delay.ms",
        60_000,
        at_least(0),
        about=(
            "Default of file.delete.delay.ms: how long files stay on disk after their segment "
            "was deleted."
        ),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "message.max.bytes",
        1_048_588,
        at_least(0),
        about="Default of max.message.bytes: the largest batch of records that is taken.",
        mode=CLUSTER_WIDE,
    ),
    integer(
        "num.recovery.threads.per.data.dir",
        2,
        at_least(1),
        about="Partitions of one data directory that are opened or recovered at the same time.",
        mode=CLUSTER_WIDE,
    ),
    *without_effect(
        LOG_DIRS,
        items("cordoned.log.dirs", (), mode=PER_BROKER),
    ),
    *without_effect(
        AT_ONCE,
        long("log.dir.failure.timeout.ms", 30_000, at_least(1)),
    ),
    *without_effect(
        ONE_CLEANER,
        integer("log.cleaner.threads", 1, at_least(0), mode=CLUSTER_WIDE),
    ),
)
