"""What a topic's settings ask of a produced batch, in the words of the records room."""

from __future__ import annotations

from ottla.log.log_config import LogConfig
from ottla.records import compression
from ottla.records.validation import ProduceRules

# What `compression.type` of a topic asks for; None keeps what the producer chose.
CODECS = {
    "producer": None,
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}


def rules_of(config: LogConfig, zstd_allowed: bool) -> ProduceRules:
    codec = CODECS[config.compression_type]
    levels = {
        compression.GZIP: config.compression_gzip_level,
        compression.LZ4: config.compression_lz4_level,
        compression.ZSTD: config.compression_zstd_level,
    }
    return ProduceRules(
        max_message_bytes=config.max_message_bytes,
        compression_codec=codec,
        compression_level=None if codec is None else levels.get(codec),
        timestamp_type=config.message_timestamp_type,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        compacted="compact" in config.cleanup_policy,
        zstd_allowed=zstd_allowed,
    )
