"""The options of the source: the stock connector's names, each honoured or refused by name.

Pure. Names are taken in any case, as Spark does. What the stock connector ignores with a warning is
refused here: an option without an effect is a misunderstanding that somebody should hear of.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.spark import option_values as values
from ottla.spark.errors import OptionError
from ottla.spark.option_values import EARLIEST, LATEST, Offsets
from ottla.spark.stock_settings import translated

BATCH: Final = "batch"
STREAM: Final = "streaming"

# A first batch over years of records must not be one task's worth of rows: everything is read
# anyway, in steps that a failure does not undo.
MAX_OFFSETS_PER_TRIGGER_DEFAULT = 1_000_000
MAX_TRIGGER_DELAY_DEFAULT_MS = 15 * 60_000
POLL_TIMEOUT_DEFAULT_MS = 120_000
METADATA_TTL_DEFAULT_MS = 5_000
GROUP_ID_PREFIX_DEFAULT = "spark-ottla"

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)

_SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")
_STRATEGY = "startingOffsetsByTimestampStrategy"
_ONLY_STREAM = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets")
_ONLY_BATCH = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp", "pushFilters")
_BOTH = (
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    _STRATEGY,
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "columns",
)
NAMES: Final = (*_BOTH, *_ONLY_STREAM, *_ONLY_BATCH)

_REFUSED_SETTINGS = {
    "auto.offset.reset": "say startingOffsets; failOnDataLoss says what to do when they are gone",
    "key.deserializer": "keys come as bytes: decode them with DataFrame functions",
    "value.deserializer": "values come as bytes: decode them with DataFrame functions",
    "enable.auto.commit": "the query's own offsets are committed, at the end of each batch",
    "interceptor.classes": "what a query reads must not depend on code beside it",
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.pattern:
            return f"the pattern {self.pattern}"
        assigned = [f"{topic}-{one}" for topic, some in self.partitions.items() for one in some]
        return ", ".join(self.topics or assigned)

    def wants(self, topic: str, partition: int) -> bool:
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or partition in self.partitions.get(topic, ())

    def missing(self, found: Collection[str]) -> list[str]:
        """Topics that are named and not there. A pattern names none."""
        return [topic for topic in self.topics or self.partitions if topic not in found]


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where reading starts or ends: `kind` is earliest, latest, group, offsets or timestamps."""

    kind: str
    offsets: Offsets = field(default_factory=dict)
    # One time for all partitions, or one a partition in `offsets`.
    timestamp_ms: int | None = None
    # What a time after the last record means: an error, or the end.
    after_last: str = "error"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    subscription: Subscription
    client: Mapping[str, str]
    start: Boundary
    end: Boundary
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int
    max_trigger_delay_ms: int
    min_partitions: int
    max_records_per_partition: int | None
    columns: tuple[str, ...]
    push_filters: bool
    commit_offsets: bool
    group_id: str
    group_id_prefix: str
    poll_timeout_ms: int
    fetch_offset_retries: int
    fetch_offset_retry_interval_ms: int
    metadata_ttl_ms: int

    def expect_topics(self, found: Collection[str]) -> None:
        """A name that is mistyped would be a source that is silently not read."""
        named = ", ".join(self.subscription.missing(found))
        if found and not named:
            return
        raise OptionError(
            f"no topic is there for {named or self.subscription} on "
            f"{self.client['bootstrap.servers']}: create it, or correct the option"
        )


class Given:
    """The options as given, under lower-case names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {name.lower(): text for name, text in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def text(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def settings(self) -> dict[str, str]:
        """The client's own settings: kafka.* without the prefix."""
        return {
            name.removeprefix("kafka."): text
            for name, text in self._texts.items()
            if name.startswith("kafka.")
        }

    def refuse_unknown(self, known: tuple[str, ...], what: str) -> None:
        by_lower_name = {name.lower(): name for name in known}
        for name in self._texts:
            if name in by_lower_name or name.startswith("kafka."):
                continue
            near = difflib.get_close_matches(name, by_lower_name, n=1)
            hint = f"; did you mean {by_lower_name[near[0]]}?" if near else ""
            raise OptionError(f"{what} has no option {name!r}{hint}")


def parse_source_options(options: Mapping[str, str], mode: str) -> SourceOptions:
    """`mode` is BATCH or STREAM."""
    given = Given(options)
    given.refuse_unknown(NAMES, "the source")
    for name in _ONLY_STREAM if mode == BATCH else _ONLY_BATCH:
        if name in given:
            raise OptionError(f"option {name} has no effect in a {mode} query: remove it")
    client = _client_settings(given)
    lowest = _number(given, "minOffsetsPerTrigger", 0) or 0
    if "maxTriggerDelay" in given and not lowest:
        raise OptionError("option maxTriggerDelay has no effect without minOffsetsPerTrigger")
    limit = _limit(given, lowest)
    if limit is not None and lowest > limit:
        raise OptionError(f"minOffsetsPerTrigger {lowest} is above maxOffsetsPerTrigger {limit}")
    start, end = _start(given, mode), _end(given, mode)
    since, until = start.timestamp_ms, end.timestamp_ms
    if since is not None and until is not None and since > until:
        raise OptionError(f"startingTimestamp {since} is after endingTimestamp {until}")
    return SourceOptions(
        subscription=_subscription(given),
        client=client,
        start=start,
        end=end,
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        max_offsets_per_trigger=limit,
        min_offsets_per_trigger=lowest,
        max_trigger_delay_ms=_duration(given, "maxTriggerDelay", MAX_TRIGGER_DELAY_DEFAULT_MS),
        min_partitions=_number(given, "minPartitions", 1) or 0,
        max_records_per_partition=_number(given, "maxRecordsPerPartition", 1),
        columns=_columns(given),
        push_filters=_boolean(given, "pushFilters", False),
        commit_offsets=_boolean(given, "commitOffsets", True),
        group_id=client.get("group.id", ""),
        group_id_prefix=_group_id_prefix(given),
        poll_timeout_ms=_number(given, "kafkaConsumer.pollTimeoutMs", 1) or POLL_TIMEOUT_DEFAULT_MS,
        fetch_offset_retries=_or(_number(given, "fetchOffset.numRetries", 0), 3),
        fetch_offset_retry_interval_ms=_or(_number(given, "fetchOffset.retryIntervalMs", 0), 1_000),
        metadata_ttl_ms=_or(
            _number(given, "partition.metadata.cache.ttl.ms", 0), METADATA_TTL_DEFAULT_MS
        ),
    )


def client_settings(given: Given, refused: Mapping[str, str]) -> dict[str, str]:
    settings = given.settings()
    for name, remedy in refused.items():
        if name in settings:
            raise OptionError(f"option kafka.{name} is not supported: {remedy}")
    if not settings.get("bootstrap.servers", "").strip():
        raise OptionError(
            "option kafka.bootstrap.servers is missing: name a broker, such as 127.0.0.1:9092"
        )
    return translated(settings)


def _client_settings(given: Given) -> dict[str, str]:
    settings = client_settings(given, _REFUSED_SETTINGS)
    settings.setdefault("isolation.level", "read_committed")
    values.choice(
        "kafka.isolation.level",
        settings["isolation.level"],
        ("read_committed", "read_uncommitted"),
    )
    return settings


def _subscription(given: Given) -> Subscription:
    found = [name for name in _SUBSCRIPTIONS if name in given]
    if len(found) != 1:
        said = " and ".join(found) if found else "none"
        raise OptionError(f"exactly one of {', '.join(_SUBSCRIPTIONS)} is needed, given: {said}")
    name = found[0]
    text = given.text(name) or ""
    if name == "assign":
        return Subscription(partitions=values.assigned_partitions(name, text))
    if name == "subscribe":
        return Subscription(topics=values.names(name, text))
    return Subscription(pattern=values.pattern(name, text))


def _start(given: Given, mode: str) -> Boundary:
    """startingTimestamp goes before startingOffsetsByTimestamp, that before startingOffsets."""
    named = given.text(_STRATEGY)
    strategy = "error" if named is None else values.choice(_STRATEGY, named, ("error", "latest"))
    by_time = _by_time(given, "startingTimestamp", "startingOffsetsByTimestamp", strategy)
    if by_time is not None:
        return by_time
    if named is not None:
        raise OptionError(
            f"option {_STRATEGY} has no effect without startingTimestamp or "
            "startingOffsetsByTimestamp: remove it"
        )
    text = given.text("startingOffsets")
    if text is None:
        return Boundary("earliest" if mode == BATCH else "latest")
    found = start_of(text, mode)
    if found is None:
        raise OptionError("option startingOffsets is empty: earliest, latest, group or offsets")
    if found.kind == "group" and not given.text("kafka.group.id"):
        raise OptionError("option startingOffsets=group needs kafka.group.id")
    return found


def start_of(text: str, mode: str) -> Boundary | None:
    """What `startingOffsets` says; a number is a time in milliseconds. None if it says nothing."""
    lowered = text.strip().lower()
    if not lowered:
        return None
    if lowered == "latest" and mode == BATCH:
        raise OptionError("option startingOffsets: a batch from latest on would be empty")
    if lowered in ("earliest", "latest", "group"):
        return Boundary(lowered)
    if lowered.isascii() and lowered.isdigit():
        moment = values.at_least("startingOffsets", lowered, 0)
        return Boundary("timestamps", timestamp_ms=moment, after_last="latest")
    offsets = values.offsets_by_partition("startingOffsets", text)
    if mode == BATCH:
        _refuse_number("startingOffsets", offsets, LATEST, "a batch from latest on would be empty")
    return Boundary("offsets", offsets)


def _end(given: Given, mode: str) -> Boundary:
    if mode == STREAM:
        return Boundary("latest")
    by_time = _by_time(given, "endingTimestamp", "endingOffsetsByTimestamp", "latest")
    if by_time is not None:
        return by_time
    text = given.text("endingOffsets")
    if text is None or text.strip().lower() == "latest":
        return Boundary("latest")
    if text.strip().lower() == "earliest":
        raise OptionError("option endingOffsets: a batch up to earliest would be empty")
    offsets = values.offsets_by_partition("endingOffsets", text)
    _refuse_number("endingOffsets", offsets, EARLIEST, "a batch up to earliest would be empty")
    return Boundary("offsets", offsets)


def _by_time(given: Given, one: str, each: str, after_last: str) -> Boundary | None:
    text = given.text(one)
    if text is not None:
        moment = values.at_least(one, text, 0)
        return Boundary("timestamps", timestamp_ms=moment, after_last=after_last)
    text = given.text(each)
    if text is not None:
        moments = values.offsets_by_partition(each, text, least=0)
        return Boundary("timestamps", moments, after_last=after_last)
    return None


def _refuse_number(name: str, offsets: Offsets, number: int, why: str) -> None:
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            if offset == number:
                raise OptionError(f"option {name}: {number} of {topic}-{partition}: {why}")


def mode_of(options: Mapping[str, str]) -> str:
    """The one that may take these options, where Spark does not say which it is. What a streaming
    query refuses without an option of batches is refused in those too."""
    given = Given(options)
    return BATCH if any(name in given for name in _ONLY_BATCH) else STREAM


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Before anything else is looked at: Spark asks for the schema first."""
    return _columns(Given(options))


def _columns(given: Given) -> tuple[str, ...]:
    headers = _boolean(given, "includeHeaders", False)
    text = given.text("columns")
    if text is None:
        return COLUMNS if headers else COLUMNS[:-1]
    by_lower_name = {name.lower(): name for name in COLUMNS}
    chosen = []
    for name in values.names("columns", text):
        if name.lower() not in by_lower_name:
            raise OptionError(f"option columns: {name!r} is none of {', '.join(COLUMNS)}")
        chosen.append(by_lower_name[name.lower()])
    if headers and "headers" not in chosen:
        raise OptionError("includeHeaders=true, but the option columns leaves headers out")
    return tuple(chosen)


def _group_id_prefix(given: Given) -> str:
    text = given.text("groupIdPrefix")
    if text is not None and "kafka.group.id" in given:
        raise OptionError("option groupIdPrefix has no effect beside kafka.group.id: remove one")
    if text is not None and not text.strip():
        raise OptionError("option groupIdPrefix is empty")
    return (text or GROUP_ID_PREFIX_DEFAULT).strip()


def _limit(given: Given, lowest: int) -> int | None:
    text = given.text("maxOffsetsPerTrigger")
    if text is None:
        return max(MAX_OFFSETS_PER_TRIGGER_DEFAULT, lowest)
    if text.strip().lower() == "unlimited":
        return None
    return values.positive("maxOffsetsPerTrigger", text)


def _boolean(given: Given, name: str, default: bool) -> bool:
    text = given.text(name)
    return default if text is None else values.boolean(name, text)


def _number(given: Given, name: str, least: int) -> int | None:
    text = given.text(name)
    return None if text is None else values.at_least(name, text, least)


def _duration(given: Given, name: str, default_ms: int) -> int:
    text = given.text(name)
    return default_ms if text is None else values.duration_ms(name, text)


def _or(number: int | None, default: int) -> int:
    return default if number is None else number
