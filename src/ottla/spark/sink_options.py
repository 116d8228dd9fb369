"""The options of the sink, each honoured or refused by name. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.records import compression
from ottla.spark import option_values as values
from ottla.spark.decisions import TOPIC as DECISIONS
from ottla.spark.errors import OptionError
from ottla.spark.source_options import Given, client_settings

if TYPE_CHECKING:
    from ottla.client.producer_settings import ProducerSettings

EXACTLY_ONCE: Final = "exactly_once"
AT_LEAST_ONCE: Final = "at_least_once"

# The most that brokers allow by default: a task may wait long for its rows.
TRANSACTION_TIMEOUT_DEFAULT_MS = 900_000
# Many of them stand in one record.
TOKEN_SIZE_MAX = 500
# Sinks share the cluster's transactional ids and one topic; their names are parts of both.
SINK_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")

# `checkpointLocation` and its like are Spark's, which hands them to the sink as well.
_SPARKS_OWN = ("checkpointLocation", "queryName", "path")
NAMES: Final = ("topic", "sinkId", "delivery", "batchToken")

_REFUSED_SETTINGS = {
    "key.serializer": "keys are written as they are: cast the column",
    "value.serializer": "values are written as they are: cast the column",
    "interceptor.classes": "what a query writes must not depend on code beside it",
    "partitioner.class": "rows go where their key says, or their column partition",
    "partitioner.ignore.keys": "rows go where their key says: leave the column key out, or have "
    "a column partition",
    "transactional.id": "the sink makes one for each task: name the sink with sinkId",
}
_CODECS = {
    "none": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    topic: str
    client: Mapping[str, str]
    sink_id: str
    delivery: str
    batch_token: str
    transaction_timeout_ms: int
    codec: int
    batch_bytes: int
    # Of a record; 0: what the topic takes.
    record_bytes_max: int

    def codec_level(self, settings: ProducerSettings) -> int | None:
        levels = {
            compression.GZIP: settings.compression_gzip_level,
            compression.LZ4: settings.compression_lz4_level,
            compression.ZSTD: settings.compression_zstd_level,
        }
        return levels.get(self.codec)


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    given = Given(options)
    given.refuse_unknown((*NAMES, *_SPARKS_OWN), "the sink")
    settings = client_settings(given, _REFUSED_SETTINGS)
    named = given.text("delivery")
    delivery = EXACTLY_ONCE
    if named is not None:
        allowed = (EXACTLY_ONCE, AT_LEAST_ONCE)
        delivery = values.choice("delivery", named.replace("-", "_"), allowed)
    _check_strength(settings, delivery)
    token = _filled(given, "batchToken")
    if token and streaming:
        raise OptionError("option batchToken: a streaming query has its own batch numbers")
    if len(token) > TOKEN_SIZE_MAX or "\0" in token:
        raise OptionError(f"option batchToken: more than {TOKEN_SIZE_MAX} characters, or a NUL")
    sink = _sink_id(given, delivery)
    if token and not sink:
        raise OptionError("option batchToken needs sinkId: whose batch is it?")
    return SinkOptions(
        topic=_topic(given),
        client=settings,
        sink_id=sink,
        delivery=delivery,
        batch_token=token,
        transaction_timeout_ms=values.positive(
            "kafka.transaction.timeout.ms",
            settings.get("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_DEFAULT_MS)),
        ),
        codec=_codec(settings),
        batch_bytes=_positive(settings, "batch.size"),
        record_bytes_max=_positive(settings, "max.request.size"),
    )


def _filled(given: Given, name: str) -> str:
    """Empty if it is not given."""
    text = given.text(name)
    if text is not None and not text.strip():
        raise OptionError(f"option {name} is empty: remove it, or fill it in")
    return (text or "").strip()


def _topic(given: Given) -> str:
    topic = _filled(given, "topic")
    if topic == DECISIONS:
        raise OptionError(f"option topic: {topic} holds what sinks have decided: choose another")
    return topic


def _sink_id(given: Given, delivery: str) -> str:
    text = given.text("sinkId")
    if text is None:
        return ""
    if delivery == AT_LEAST_ONCE:
        raise OptionError("option sinkId has no effect with delivery=at_least_once: remove one")
    if not SINK_NAME.fullmatch(text):
        raise OptionError(
            f"option sinkId: {text!r} is not 1 to 200 of letters, digits, '.', '_' and '-'"
        )
    return text


def _check_strength(settings: Mapping[str, str], delivery: str) -> None:
    if settings.get("acks", "all") not in ("all", "-1"):
        raise OptionError(
            "option kafka.acks: a batch that Spark takes for written must be on all in-sync "
            "replicas: only all"
        )
    if settings.get("enable.idempotence", "true").lower() != "true" and delivery == EXACTLY_ONCE:
        raise OptionError("option kafka.enable.idempotence: exactly once needs it")


def _positive(settings: Mapping[str, str], name: str) -> int:
    """0 if it is not given."""
    return values.positive(f"kafka.{name}", settings[name]) if name in settings else 0


def _codec(settings: Mapping[str, str]) -> int:
    name = values.choice(
        "kafka.compression.type", settings.get("compression.type", "none"), tuple(_CODECS)
    )
    return _CODECS[name]
