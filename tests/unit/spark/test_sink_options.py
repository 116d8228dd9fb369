"""The options of the sink and the columns it takes: each honoured or refused by name."""

from __future__ import annotations

import pytest

from ottla.records import compression
from ottla.spark.errors import OptionError
from ottla.spark.rows_to_records import check_columns
from ottla.spark.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions, parse_sink_options

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(**options: str) -> SinkOptions:
    return parse_sink_options({**NEEDED, **options}, streaming=True)


def parse_batch(**options: str) -> SinkOptions:
    return parse_sink_options({**NEEDED, **options}, streaming=False)


def test_the_defaults() -> None:
    options = parse(topic=" out ")
    assert (options.topic, options.delivery, options.sink_id) == ("out", EXACTLY_ONCE, "")
    assert options.transaction_timeout_ms == 900_000
    assert options.codec == compression.NONE


def test_what_is_given_counts() -> None:
    options = parse(
        SINKID="s-1",
        **{
            "kafka.compression.type": "zstd",
            "kafka.transaction.timeout.ms": "5000",
            "kafka.batch.size": "1000",
            "checkpointLocation": "somewhere",
        },
    )
    assert (options.sink_id, options.transaction_timeout_ms) == ("s-1", 5000)
    assert (options.codec, options.batch_bytes) == (compression.ZSTD, 1000)
    assert parse(delivery="at-least-once").delivery == AT_LEAST_ONCE
    assert parse_batch(sinkId="s", batchToken="t").batch_token == "t"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"transactionalId": "a"}, "the sink has no option 'transactionalid'"),
        ({"sinkId": "a/b"}, "option sinkId: 'a/b'"),
        ({"sinkId": ""}, "option sinkId"),
        ({"sinkId": "a", "delivery": "at_least_once"}, "sinkId has no effect"),
        ({"delivery": "at_most_once"}, "option delivery"),
        ({"batchToken": "t", "sinkId": "s"}, "batchToken: a streaming query"),
        ({"kafka.acks": "1"}, "kafka.acks"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence"),
        ({"kafka.batch.size": "0"}, "kafka.batch.size"),
        ({"kafka.max.request.size": "0"}, "kafka.max.request.size"),
        ({"kafka.partitioner.class": "RoundRobinPartitioner"}, "kafka.partitioner.class"),
        ({"kafka.partitioner.ignore.keys": "true"}, "kafka.partitioner.ignore.keys"),
        ({"delivery": ""}, "option delivery"),
        ({"topic": " "}, "option topic is empty"),
        ({"topic": "__ottla_sinks"}, r"option topic: __ottla_sinks .* another"),
        ({"kafka.transactional.id": "a"}, "name the sink with sinkId"),
        ({"kafka.key.serializer": "a"}, "cast the column"),
        ({"kafka.compression.type": "rar"}, "kafka.compression.type"),
        ({"kafka.transaction.timeout.ms": "0"}, "kafka.transaction.timeout.ms"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse(**options)


def test_a_token_needs_to_know_whose_it_is() -> None:
    with pytest.raises(OptionError, match="needs sinkId"):
        parse_batch(batchToken="t")
    for token in ("t" * 501, "a\0b"):
        with pytest.raises(OptionError, match="batchToken: more than 500 characters"):
            parse_batch(sinkId="s", batchToken=token)


@pytest.mark.parametrize(
    ("names", "types", "topic", "says"),
    [
        (["value"], ["bigint"], "t", "column value is bigint, and must be string or binary"),
        (["value", "Key"], ["string", "string"], "t", "column 'Key' would be left out: it is key"),
        (["value", "value"], ["string", "string"], "t", "two columns named value"),
        (["key"], ["string"], "t", "needs a column named value"),
        (["value"], ["string"], "", "Set the option topic"),
        (["value", "topic"], ["string", "int"], "", "column topic is int"),
        (["value", "partition"], ["string", "bigint"], "t", "column partition is bigint"),
        (["value", "headers"], ["string", "map<string,string>"], "t", "column headers is map"),
    ],
)
def test_columns_that_no_record_has_are_refused(
    names: list[str], types: list[str], topic: str, says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        check_columns(names, types, topic)


def test_other_columns_are_left_out_and_the_option_goes_before_the_column() -> None:
    """As the stock connector has it: rows of its source can be written as they are."""
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    types = ["binary", "binary", "string", "int", "bigint", "timestamp", "int"]
    check_columns(names, types, "t")
    check_columns(["value", "topic"], ["string", "bigint"], "t")


def test_columns_of_a_record() -> None:
    headers = "array<struct<key:string,value:binary>>"
    check_columns(
        ["key", "value", "topic", "partition", "headers"],
        ["binary", "string", "string", "int", headers],
        "",
    )
