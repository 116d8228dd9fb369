"""Settings of topics.

Names, types, defaults and bounds are Kafka's of 4.3, but for the defaults in `definitions`.
"""

from __future__ import annotations

from ottla.metadata.configs.definition import (
    ConfigDefinition,
    boolean,
    double,
    integer,
    items,
    long,
    string,
    without_effect,
)
from ottla.metadata.configs.reasons import TIERED
from ottla.metadata.configs.validators import (
    GzipLevel,
    Items,
    OneOf,
    ThrottledReplicas,
    at_least,
    between,
)
from ottla.metadata.configs.values import LONG_MAX

DEFINITIONS: tuple[ConfigDefinition, ...] = (
    items(
        "cleanup.policy",
        ("delete",),
        Items("compact", "delete", empty=True),
        about=(
            "What happens to old records: delete drops whole segments by age and size, compact "
            "keeps the newest of each key, both do both; an empty list keeps everything. A "
            "compacted topic refuses records without a key."
        ),
    ),
    integer(
        "compression.gzip.level",
        -1,
        GzipLevel(),
        about=(
            "How hard to compress where compression.type is gzip; -1 is the default of the library."
        ),
    ),
    integer(
        "compression.lz4.level",
        9,
        between(1, 17),
        about="How hard to compress where compression.type is lz4.",
    ),
    string(
        "compression.type",
        "producer",
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        about=(
            "The codec batches are stored with. producer keeps them as sent, which costs "
            "nothing; uncompressed unpacks them."
        ),
    ),
    integer(
        "compression.zstd.level",
        3,
        between(-131_072, 22),
        about="How hard to compress where compression.type is zstd.",
    ),
    long(
        "file.delete.delay.ms",
        60_000,
        at_least(0),
        about=(
            "How long files stay on disk after their segment was deleted, for readers that "
            "still use them."
        ),
    ),
    long(
        "flush.messages",
        LONG_MAX,
        at_least(1),
        about=(
            "Records after which a partition is synced to disk. With 1, acknowledgements wait "
            "for the disk, and one sync serves all that wait."
        ),
    ),
    long(
        "flush.ms",
        LONG_MAX,
        at_least(0),
        about="Age of unsynced records at which a partition is synced to disk.",
    ),
    integer(
        "index.interval.bytes",
        4096,
        at_least(0),
        about=(
            "Bytes of records between two entries of the offset and time indexes. Smaller makes "
            "seeking finer and the indexes larger."
        ),
    ),
    integer(
        "internal.segment.bytes",
        None,
        at_least(1),
        about=(
            "Stands in for segment.bytes without its lower bound, for tests that need small "
            "segments."
        ),
        hidden=True,
    ),
    integer(
        "max.message.bytes",
        1_048_588,
        at_least(0),
        about="The largest batch of records that is taken, in bytes, compressed as it comes.",
    ),
    long(
        "message.timestamp.after.max.ms",
        3_600_000,
        at_least(0),
        about="How far in the future a record may be stamped by its producer.",
    ),
    long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        about="How far in the past a record may be stamped by its producer.",
    ),
    string(
        "message.timestamp.type",
        "CreateTime",
        OneOf("CreateTime", "LogAppendTime"),
        about=(
            "Whose clock stamps a record: the producer's (CreateTime) or the broker's "
            "(LogAppendTime)."
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
    ),
    boolean(
        "preallocate",
        False,
        about=(
            "Whether a new segment is given its room on the disk at once. Its file grows as it is "
            "written all the same, so that a crash leaves no zeros behind its end."
        ),
    ),
    long(
        "retention.bytes",
        -1,
        about="Size at which a partition gives up its oldest segments; -1 for no bound.",
    ),
    long(
        "retention.ms", 604_800_000, at_least(-1), about="How long records are kept; -1 for ever."
    ),
    integer(
        "segment.bytes",
        1_073_741_824,
        at_least(1_048_576),
        about=(
            "Size at which a segment is closed and a new one begun. Retention works on closed "
            "segments."
        ),
    ),
    integer(
        "segment.index.bytes",
        10_485_760,
        at_least(4),
        about="Size of an index file; a full one closes its segment.",
    ),
    long(
        "segment.jitter.ms",
        0,
        at_least(0),
        about=(
            "The most that is taken off segment.ms at random, so that partitions do not all "
            "roll at once."
        ),
    ),
    long(
        "segment.ms",
        604_800_000,
        at_least(1),
        about="Age at which a segment is closed although it is not full.",
    ),
    long(
        "delete.retention.ms",
        86_400_000,
        at_least(0),
        about=(
            "How long a record without a value stays in a compacted topic after it was first "
            "cleaned, so that readers can learn of the deletion."
        ),
    ),
    long(
        "max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        about="How long a record of a compacted topic may wait to be compacted.",
    ),
    double(
        "min.cleanable.dirty.ratio",
        0.5,
        between(0, 1),
        about=(
            "A compacted topic is cleaned when more than this part of it was written since the "
            "last cleaning."
        ),
    ),
    long(
        "min.compaction.lag.ms",
        0,
        at_least(0),
        about="How long a record of a compacted topic is kept whatever follows it.",
    ),
    items(
        "follower.replication.throttled.replicas",
        (),
        ThrottledReplicas(),
        about=(
            "Who copies no faster than follower.replication.throttled.rate while it is not in "
            "sync: partition:broker, separated by commas, or *."
        ),
    ),
    items(
        "leader.replication.throttled.replicas",
        (),
        ThrottledReplicas(),
        about=(
            "Who sends no faster than leader.replication.throttled.rate to others that are not in "
            "sync: partition:broker, separated by commas, or *."
        ),
    ),
    *without_effect(
        TIERED,
        long("local.retention.bytes", -2, at_least(-2)),
        long("local.retention.ms", -2, at_least(-2)),
        boolean("remote.log.copy.disable", False),
        boolean("remote.log.delete.on.disable", False),
        boolean("remote.storage.enable", False),
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        about=(
            "Whether a partition without any in-sync replica alive is led by another one, which "
            "may lose records that were acknowledged; otherwise it waits."
        ),
    ),
)
