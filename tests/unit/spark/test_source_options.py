"""The options of the source: each one honoured or refused by name."""

from __future__ import annotations

import pytest

from ottla.spark.errors import OptionError
from ottla.spark.source_options import (
    BATCH,
    COLUMNS,
    NAMES,
    STREAM,
    Boundary,
    SourceOptions,
    parse_source_options,
)

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}

# A value that each option takes; where only one kind of query has it, which.
SAMPLES: dict[str, tuple[str, str | None]] = {
    "assign": ('{"orders":[0]}', None),
    "subscribe": ("orders, payments", None),
    "subscribePattern": ("orders-.*", None),
    "startingOffsets": ("earliest", None),
    "startingOffsetsByTimestamp": ('{"orders":{"0":1000}}', None),
    "startingTimestamp": ("1000", None),
    "startingOffsetsByTimestampStrategy": ("latest", None),
    "failOnDataLoss": ("false", None),
    "minPartitions": ("10", None),
    "maxRecordsPerPartition": ("1000", None),
    "includeHeaders": ("true", None),
    "groupIdPrefix": ("mine", None),
    "kafkaConsumer.pollTimeoutMs": ("512", None),
    "fetchOffset.numRetries": ("5", None),
    "fetchOffset.retryIntervalMs": ("7", None),
    "partition.metadata.cache.ttl.ms": ("0", None),
    "columns": ("key,value", None),
    "maxOffsetsPerTrigger": ("100", STREAM),
    "minOffsetsPerTrigger": ("10", STREAM),
    "maxTriggerDelay": ("3m", STREAM),
    "commitOffsets": ("false", STREAM),
    "endingOffsets": ('{"orders":{"0":5}}', BATCH),
    "endingOffsetsByTimestamp": ('{"orders":{"0":1000}}', BATCH),
    "endingTimestamp": ("1000", BATCH),
    "pushFilters": ("true", BATCH),
}


def parse(mode: str, **options: str) -> SourceOptions:
    return parse_source_options({**NEEDED, **options}, mode)


# Options that have an effect beside another one only.
BESIDE = {
    "startingOffsetsByTimestampStrategy": {"startingTimestamp": "1000"},
    "maxTriggerDelay": {"minOffsetsPerTrigger": "10"},
}


def given(name: str, text: str) -> dict[str, str]:
    if name.lower() in ("assign", "subscribe", "subscribepattern"):
        return {"kafka.bootstrap.servers": "127.0.0.1:9092", name: text}
    return {**NEEDED, name: text}


def test_every_option_has_a_sample() -> None:
    assert set(SAMPLES) == set(NAMES)


@pytest.mark.parametrize("mode", [BATCH, STREAM])
@pytest.mark.parametrize("name", NAMES)
def test_every_option_changes_what_is_done_or_is_refused_by_name(name: str, mode: str) -> None:
    text, only = SAMPLES[name]
    if only not in (None, mode):
        with pytest.raises(OptionError, match=name):
            parse_source_options(given(name, text), mode)
        return
    # In any case, as Spark takes them.
    beside = BESIDE.get(name, {})
    changed = parse_source_options({**given(name.upper(), text), **beside}, mode)
    if (name, mode) != ("startingOffsets", BATCH):  # its default
        assert changed != parse_source_options({**NEEDED, **beside}, mode)
    if beside:
        with pytest.raises(OptionError, match=f"{name} has no effect without"):
            parse_source_options(given(name, text), mode)


def test_the_defaults() -> None:
    stream, batch = parse(STREAM), parse(BATCH)
    assert stream.start == Boundary("latest")
    assert batch.start == Boundary("earliest")
    assert batch.end == Boundary("latest")
    assert stream.fail_on_data_loss
    assert stream.max_offsets_per_trigger == 1_000_000
    assert stream.columns == COLUMNS[:-1]
    assert stream.client["isolation.level"] == "read_committed"


def test_a_limit_can_be_taken_away() -> None:
    assert parse(STREAM, maxOffsetsPerTrigger="unlimited").max_offsets_per_trigger is None


def test_the_clients_settings_lose_their_prefix() -> None:
    options = parse(BATCH, **{"kafka.security.protocol": "SSL", "kafka.group.id": "mine"})
    assert options.client["security.protocol"] == "SSL"
    assert options.group_id == "mine"


def test_a_time_goes_before_times_and_those_before_offsets() -> None:
    both = {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"orders":{"0":5}}'}
    assert parse(STREAM, **both).start.offsets == {"orders": {0: 5}}
    assert parse(STREAM, **both, startingTimestamp="7").start.timestamp_ms == 7


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("subscibe", "orders", "did you mean subscribe"),
        ("path", "/somewhere", "no option 'path'"),
        ("assign", '{"orders":[0]}', "exactly one of"),
        ("subscribe", " , ", "names nothing"),
        ("failOnDataLoss", "maybe", "neither true nor false"),
        ("minPartitions", "0", "less than 1"),
        ("minPartitions", "many", "not a whole number"),
        ("minOffsetsPerTrigger", "", "not a whole number"),
        ("maxOffsetsPerTrigger", "9" * 20, "is above"),
        ("maxOffsetsPerTrigger", "1_000", "not a whole number"),
        ("maxOffsetsPerTrigger", "٣", "not a whole number"),
        ("subscribePattern", "(", "exactly one of"),
        ("maxOffsetsPerTrigger", "-1", "less than 1"),
        ("startingOffsets", "first", "not JSON"),
        ("startingOffsets", "[1]", "not an object"),
        ("startingOffsets", '{"orders":5}', "needs a number a partition"),
        ("startingOffsets", '{"orders":{"a":5}}', "no partition with a number"),
        ("startingOffsets", '{"orders":{"0":true}}', "no partition with a number"),
        ("startingOffsets", '{"orders":{"0":-3}}', "below -2"),
        ("startingOffsets", '{"orders":{"0":1,"0":2}}', "names something twice"),
        ("startingOffsets", '{"orders":{"0":1,"00":2}}', "orders-00 is named twice"),
        ("startingOffsets", '{"orders":{"0":99999999999999999999}}', "is above"),
        ("startingOffsets", '{"orders":{"²":1}}', "no partition with a number"),
        ("startingOffsets", '{"orders":{"99999999999":1}}', "no partition with a number"),
        ("startingOffsets", "[" * 100_000, "not JSON"),
        ("startingOffsets", " ", "startingOffsets is empty"),
        ("startingOffsets", "²", "not JSON"),
        ("startingOffsets", "{}", "names no partition"),
        ("startingOffsets", "group", "needs kafka.group.id"),
        ("startingTimestamp", "-5", "less than 0"),
        ("startingOffsetsByTimestampStrategy", "guess", "none of error, latest"),
        ("columns", "key,valeu", "'valeu' is none of"),
        ("kafka.auto.offset.reset", "latest", "say startingOffsets"),
        ("kafka.key.deserializer", "x", "keys come as bytes"),
        ("kafka.enable.auto.commit", "true", "not supported"),
        ("kafka.isolation.level", "serializable", "none of read_committed"),
    ],
)
def test_what_is_wrong_is_named(name: str, text: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse(STREAM, **{name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"orders":{"0":-1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"orders":{"0":-2}}'),
    ],
)
def test_a_batch_that_could_only_be_empty_is_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"{name}.*would be empty"):
        parse(BATCH, **{name: text})


def test_headers_must_not_be_asked_for_and_left_out() -> None:
    with pytest.raises(OptionError, match="leaves headers out"):
        parse(BATCH, includeHeaders="true", columns="key,value")


def test_the_least_must_not_be_above_the_most() -> None:
    with pytest.raises(OptionError, match="20 is above maxOffsetsPerTrigger 10"):
        parse(STREAM, minOffsetsPerTrigger="20", maxOffsetsPerTrigger="10")
    assert parse(STREAM, minOffsetsPerTrigger="2000000").max_offsets_per_trigger == 2_000_000


def test_a_duration_is_one() -> None:
    for text in ("soon", "5 parsecs", ""):
        with pytest.raises(OptionError, match=r"maxTriggerDelay.*not a duration"):
            parse(STREAM, minOffsetsPerTrigger="5", maxTriggerDelay=text)
    found = parse(STREAM, minOffsetsPerTrigger="5", maxTriggerDelay="2 MIN")
    assert found.max_trigger_delay_ms == 120_000


def test_a_time_must_not_be_after_the_end() -> None:
    with pytest.raises(OptionError, match="startingTimestamp 7 is after endingTimestamp 5"):
        parse(BATCH, startingTimestamp="7", endingTimestamp="5")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("subscribePattern", "(", "is no pattern"),
        ("subscribePattern", " ", "is empty"),
        ("assign", '{"orders":[]}', "names no partition"),
        ("assign", '{"orders":[-1]}', "a partition that cannot be"),
        ("assign", '{"orders":[3000000000]}', "a partition that cannot be"),
    ],
)
def test_what_to_read_must_be_possible(name: str, text: str, says: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}.*{says}"):
        parse_source_options({"kafka.bootstrap.servers": "127.0.0.1:9092", name: text}, STREAM)


def test_a_message_stays_short_whatever_was_given() -> None:
    with pytest.raises(OptionError) as refused:
        parse(STREAM, failOnDataLoss="x" * 10_000)
    assert len(str(refused.value)) < 500


def test_two_ways_to_name_the_group_are_one_too_many() -> None:
    with pytest.raises(OptionError, match=r"beside kafka\.group\.id"):
        parse(STREAM, groupIdPrefix="mine", **{"kafka.group.id": "ours"})


def test_brokers_must_be_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        parse_source_options({"subscribe": "orders"}, BATCH)
